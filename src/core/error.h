// Kinds of failure and their process exit codes; the two checks of the project.
//
// A message states what was expected, what came, where it came from and the nearest valid name.
// The library throws; only the command line prints and exits.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace xformer {

// Exit codes of the program, printed by `xformer --help` and documented in README.
enum class ExitCode : int {
  kDone = 0,
  kUser = 2,         // wrong name, option or value
  kData = 3,         // a file is missing, damaged or not what it says
  kResource = 4,     // out of memory, no such device, disk full, no permission
  kDiverged = 5,     // loss not finite after the allowed skips; last good checkpoint kept
  kInterrupted = 6,  // stopped by a signal after saving; the same command goes on
  kInternal = 70,    // a bug in xformer
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

template <ExitCode kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message) : Error(kCode, message) {}
};

using UserError = ErrorOf<ExitCode::kUser>;
using DataError = ErrorOf<ExitCode::kData>;
using ResourceError = ErrorOf<ExitCode::kResource>;
class OutOfMemory : public ResourceError {
 public:
  using ResourceError::ResourceError;
};
using Diverged = ErrorOf<ExitCode::kDiverged>;
using Interrupted = ErrorOf<ExitCode::kInterrupted>;
using InternalError = ErrorOf<ExitCode::kInternal>;

}  // namespace xformer

// XF_CHECK(condition, UserError, "expected {}, got {}", a, b): for input; always evaluated.
#define XF_CHECK(condition, ErrorType, ...)                                   \
  do {                                                                        \
    if (!(condition)) throw ::xformer::ErrorType(::fmt::format(__VA_ARGS__)); \
  } while (false)

// XF_ASSERT(condition, "..."): for bugs; stays on in every build, because NDEBUG is always defined.
#define XF_ASSERT(condition, ...)                                                                                    \
  do {                                                                                                               \
    if (!(condition))                                                                                                \
      throw ::xformer::InternalError(                                                                                \
          ::fmt::format("{}:{}: {} does not hold: {}", __FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__))); \
  } while (false)
