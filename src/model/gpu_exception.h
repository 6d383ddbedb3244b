// The kinds of exceptions of GPUs, by the driver's numbers (CUDBGException_t, cudadebugger.h).
#pragma once

#include <cstdint>
#include <string>

namespace rankstacks {
inline namespace model {

// "illegal address" for 1, 10 and 14 ...; an unknown code: "exception 99".
std::string gpu_exception_kind(std::uint32_t code);

}  // namespace model
}  // namespace rankstacks
