// A defect of a report: something that is missing or doubtful. A code for programs, a sentence for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace rankstacks {
inline namespace model {

enum class ProblemCode : std::uint8_t {
  kOther,
  kEnded,  // the process, or the request, has ended
  kNotFound,
  kPermission,
  kUnreadable,
  kMalformed,
  kUnsupported,
  kMismatch,  // two things that should be the same are not
  kTimeout,
  kLimit,           // a stated bound was reached
  kIncomplete,      // some part is missing: a truncated core, frames whose memory is gone
  kFileMissing,     // files of the process are not on this machine
  kFileMismatch,    // a module's file on this machine is not the one that the process or core had
  kFileUnverified,  // it is not known whether a module's file is the one that the process or core had
  kModuleOverlap,   // a module that overlaps another one, according to the list of mappings
  kGpu,             // of a GPU session or the GPU's management library
  kFromOtherTool,   // what the dump of another tool cannot tell
};

struct Problem {
  std::string message;
  std::optional<std::string> hint;
  ProblemCode code = ProblemCode::kOther;
  std::string subject = {};  // kFileMismatch, kModuleOverlap: the module's path. Not in the report
  bool operator==(const Problem&) const = default;
};

ProblemCode code_of(ErrorCode code);
Problem problem_of(const Error& error);

}  // namespace model
}  // namespace rankstacks
