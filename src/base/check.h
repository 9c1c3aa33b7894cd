// Checks for our own faults. They stay on in release builds: a wrong block table must crash, not answer.
#pragma once

namespace quire {

// Prints file, line and the broken condition to stderr, then aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace quire

#define CHECK(condition)                                     \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      ::quire::check_failed(__FILE__, __LINE__, #condition); \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition) \
  do {                    \
  } while (false && (condition))
#else
#define DCHECK(condition) CHECK(condition)
#endif

#define UNREACHABLE() ::quire::check_failed(__FILE__, __LINE__, "unreachable")
