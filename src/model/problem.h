// What is missing from a report, or doubtful in it: a code for programs, a sentence for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace rankstacks {

enum class ProblemCode : std::uint8_t {
  kOther,
  kEnded,            // the process, or what was asked for, has ended
  kNotFound,
  kPermission,
  kUnreadable,
  kMalformed,
  kUnsupported,
  kMismatch,         // two things that should be the same are not
  kTimeout,
  kLimit,            // a stated bound was reached
  kIncomplete,       // a part of it is not there: a core that is cut short, frames whose memory is gone
  kFileMissing,      // files of the process are not on this machine
  kFileMismatch,     // a module's file here is not the one that the process or core had
  kFileUnverified,   // nothing tells whether it is
  kModuleOverlap,    // a module that the list of mappings says lies inside another one
  kGpu,              // of a GPU session or the GPU's management library
};

struct Problem {
  std::string message;
  std::optional<std::string> hint;
  ProblemCode code = ProblemCode::kOther;
  std::string subject = {};   // kFileMismatch, kModuleOverlap: the module's path. Not in the report
  bool operator==(const Problem&) const = default;
};

ProblemCode code_of(ErrorCode code);
Problem problem_of(const Error& error);

}  // namespace rankstacks
