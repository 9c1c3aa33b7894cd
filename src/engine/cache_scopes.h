// Names of cache scopes.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "kv/radix_tree.h"

namespace quire {

// Gives every salt a scope of its own, the empty one included. Any thread. Invariants: (1) two salts never
// share a scope; (2) one salt keeps its scope while no more than kSaltsMax others come: then all are
// forgotten, so that what they had cached is found no more, and ages away. Memory: kSaltsMax salts at most.
class CacheScopes {
 public:
  static constexpr size_t kSaltsMax = 1 << 16;

  [[nodiscard]] CacheScope scope_of(const std::string& salt) {
    if (salt.empty()) return CacheScope{};
    std::lock_guard lock(mutex_);
    if (scopes_.size() >= kSaltsMax && !scopes_.contains(salt)) scopes_.clear();
    const auto [at, is_new] = scopes_.emplace(salt, CacheScope{last_ + 1});
    if (is_new) ++last_;
    return at->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, CacheScope> scopes_;
  uint64_t last_ = 0;
};

}  // namespace quire
