// Result<T>: a value, or an Error that says who failed, what failed, where, and what to do.
//
// A failing rank, thread or file is data: it becomes a line of the report, and never an exception that would end the
// work on the other ranks too. Errors are made with the named fields of `Error`; message() puts them into the one form
// that is printed everywhere:
//
//     SUBJECT: WHAT (at WHERE): STRERROR
//
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>

namespace rankstacks {
inline namespace base {

enum class ErrorCode {
  kUsage,        // the command line asks for something impossible
  kNotFound,     // no such process, file or symbol
  kPermission,   // the kernel refuses; the hint says how to get the permission
  kUnreadable,   // I/O failed, or the memory is not available
  kMalformed,    // bytes that violate the format they claim to have
  kUnsupported,  // well formed, but of a kind that this tool does not read (machine, version)
  kMismatch,     // two things that should be identical are not (build-ids)
  kGone,         // it vanished while it was being read
  kTimeout,      // a bounded wait timed out
  kLimit,        // a documented limit was reached
};

struct Error {
  ErrorCode code = ErrorCode::kUnreadable;
  std::string subject;                 // "core.4711", "pid 4711 tid 4790"
  std::string what;                    // what was expected and what was found
  std::optional<std::uint64_t> where;  // an offset in a file or an address in the target
  int os_errno = 0;                    // 0: the error has no errno
  std::string hint;                    // what a person can do; empty if there is nothing to do

  // "core.4711: program header 3 reaches past the end of the file (at 0x40): strerror". Does not contain the tool's
  // name or the hint.
  std::string message() const;
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace base
}  // namespace rankstacks
