#include "model/gpu_exception.h"

namespace rankstacks {
inline namespace model {

// CUDBGException_t, cudadebugger.h of CUDA 12.9: the same numbers since 5.0, new ones appended.
std::string gpu_exception_kind(std::uint32_t code) {
  switch (code) {
    case 0: return "none";
    case 1:
    case 10:
    case 14: return "illegal address";
    case 2: return "user stack overflow";
    case 3:
    case 9: return "hardware stack overflow";
    case 4: return "illegal instruction";
    case 5: return "address out of range";
    case 6:
    case 11: return "misaligned address";
    case 7: return "invalid address space";
    case 8: return "invalid pc";
    case 12: return "assert";
    case 13: return "syscall error";
    case 15: return "non-migratable atomic";
    case 16: return "invalid atomic";
    case 17: return "cluster: address out of range";
    case 18: return "cluster: block not present";
    case 19: return "stack canary";
    default: return "exception " + std::to_string(code);
  }
}

}  // namespace model
}  // namespace rankstacks
