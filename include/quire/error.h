// Errors of the public API: the world's faults are values, never exceptions.
#pragma once

#include <expected>
#include <string>
#include <utility>

namespace quire {

// What kind of fault it is; a door turns it into an exit status or an HTTP status.
enum class ErrorCode {
  kInvalidArgument,    // a value that the caller gave is out of its range
  kNotFound,           // a file, model or name that does not exist
  kUnsupported,        // well formed, but of a kind that this build does not know
  kCorruptFile,        // a file that breaks its own format
  kResourceExhausted,  // it can never fit: larger than the whole pool, the context or a limit
  kOverloaded,         // it would fit later: a bounded queue is full
  kCancelled,          // the caller took it back
  kIo,                 // the operating system refused
  kInternal,           // a fault of ours that could be contained
};

// One fault. `message` is one sentence that names the field, the value and the limit; `field` is the
// offending field or option alone ("" when there is none), for machine use.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string field;
};

template <class T = void>
using Result = std::expected<T, Error>;

}  // namespace quire
