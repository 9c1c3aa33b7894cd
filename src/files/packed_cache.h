// The folder of packed files, one a model and layout, and its size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "files/packed_file.h"
#include "files/packed_writer.h"

namespace quire {

struct PackedCacheOptions {
  std::string folder;      // "" = no cache
  uint64_t bytes_max = 0;  // of all files together
};

// One file of the cache.
struct PackedCacheEntry {
  std::string path;
  uint64_t bytes = 0;
  int64_t used_ns = 0;  // since 1970
};

// What writers have left behind, and what those that live have written so far.
struct PackedLeftovers {
  int files_removed = 0;
  uint64_t bytes_removed = 0;
  uint64_t bytes_alive = 0;
};

// Holds nothing but its options: the folder is the state, shared with every process that uses it. Files are
// named for their key; all that change the folder are atomic renames and removals of files that nobody has
// locked.
class PackedCache {
 public:
  explicit PackedCache(PackedCacheOptions options) : options_(std::move(options)) {}

  // The file for `plan`. Errors: kNotFound; those of PackedFile::open() and check().
  [[nodiscard]] Result<PackedFile> find(const PackedPlan& plan) const;
  // Makes the folder and the room: removes what dead processes left, then the files that have not been used
  // for longest, never one in use. `plan` outlives the writer. Errors: kResourceExhausted with the numbers,
  // kIo.
  [[nodiscard]] Result<PackedWriter> begin(const PackedPlan& plan) const;

  // Longest unused first. None when there is no folder.
  [[nodiscard]] std::vector<PackedCacheEntry> list() const;
  // Removes a file unless it is in use; tells whether it did.
  [[nodiscard]] static bool remove(const std::string& path);
  // Removes the files of writers that died.
  PackedLeftovers remove_dead_writers() const;

 private:
  [[nodiscard]] std::string path_of(const ContentHash& key) const;
  [[nodiscard]] Result<> make_room(uint64_t bytes, const std::string& replaced) const;

  PackedCacheOptions options_;
};

}  // namespace quire
