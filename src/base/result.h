// Result<T> in use: TRY passes an error up, fail() makes one.
#pragma once

#include <fmt/format.h>

#include <expected>
#include <string>
#include <utility>

#include "quire/error.h"

namespace quire {

// fail(ErrorCode::kCorruptFile, "n_dims", "n_dims is {} at offset {}, limit is 4", n, at)
template <class... Args>
[[nodiscard]] std::unexpected<Error> fail(ErrorCode code, std::string field, fmt::format_string<Args...> text,
                                          Args&&... args) {
  return std::unexpected(Error{code, fmt::format(text, std::forward<Args>(args)...), std::move(field)});
}

}  // namespace quire

// The value of a Result expression; on error the enclosing function returns that error.
#define TRY(...)                                                                                        \
  ({                                                                                                    \
    auto&& try_result_ = (__VA_ARGS__);                                                                 \
    if (!try_result_) return std::unexpected(std::forward<decltype(try_result_)>(try_result_).error()); \
    *std::forward<decltype(try_result_)>(try_result_);                                                  \
  })
