#include "model/problem.h"

namespace rankstacks {
inline namespace model {

ProblemCode code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage: return ProblemCode::kOther;
    case ErrorCode::kNotFound: return ProblemCode::kNotFound;
    case ErrorCode::kPermission: return ProblemCode::kPermission;
    case ErrorCode::kUnreadable: return ProblemCode::kUnreadable;
    case ErrorCode::kMalformed: return ProblemCode::kMalformed;
    case ErrorCode::kUnsupported: return ProblemCode::kUnsupported;
    case ErrorCode::kMismatch: return ProblemCode::kMismatch;
    case ErrorCode::kGone: return ProblemCode::kEnded;
    case ErrorCode::kTimeout: return ProblemCode::kTimeout;
    case ErrorCode::kLimit: return ProblemCode::kLimit;
  }
  return ProblemCode::kOther;
}

Problem problem_of(const Error& error) {
  return {error.message(), error.hint.empty() ? std::nullopt : std::optional(error.hint), code_of(error.code)};
}

}  // namespace model
}  // namespace rankstacks
