// The C++ exceptions that a process's threads hold, read from libstdc++'s own structures: the reason why a thread
// terminates.
//
//     fs_base -> dtv[libstdc++] -> __cxa_eh_globals { caughtExceptions, uncaughtExceptions }
//                                        |              a list for each thread, innermost first
//                    __cxa_exception { exceptionType, ..., nextException, ..., unwindHeader }
//                                        |                112 bytes before the thrown object
//                                        |                                                |
//                    type_info { vtable, name, base ... }             std::runtime_error { vtable, char* },
//                                                                     c10::Error { vtable, std::string, ... }
//
// Nothing here trusts the process: reads are bounded, and a value is used only if it has the required form (the
// unwinder's mark of a C++ exception, type_info's vtables at their addresses in libstdc++, a string's length next to
// its end). Anything else is left out silently.
//
// Sources: GCC, libstdc++-v3/libsupc++/unwind-cxx.h and eh_globals.cc; Itanium C++ ABI, 2.9.5 (type_info) and
// "Exception Handling", 2.2.1; glibc, sysdeps/x86_64/nptl/tls.h (dtv); PyTorch, c10/util/Exception.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "target/target.h"

namespace rankstacks::target {

// Where a copy of libstdc++ keeps a thread's exceptions, according to the code of its __cxa_get_globals.
struct ExceptionStorage {
  // Address of the pair {TLS module, offset} that __tls_get_addr is called with; std::nullopt: at fs_base.
  std::optional<Address> module_slot;
  std::optional<Address> offset_slot;  // address of a slot with an offset from fs_base
  std::int64_t offset = 0;             // added to the above
};

// For all modules of a process. These are plain addresses: they do not depend on the target in which they were found.
struct CxxRuntime {
  std::vector<ExceptionStorage> storage;
  std::vector<Address> class_types, single_bases, several_bases;  // the first words of type_info objects of classes
};

CxxRuntime find_cxx_runtime(const ModuleMap& modules);

// Reads the code of __cxa_get_globals at `at`, as it is compiled and linked for x86-64; std::nullopt if it is anything
// else.
std::optional<ExceptionStorage> decode_exception_storage(std::span<const std::byte> code, Address at);

struct HeldException {
  std::string type;  // mangled, without "_ZTI": "St13runtime_error"
  // Its text, if it has a type whose layout is known; at most kMaxExceptionText bytes of UTF-8.
  std::optional<std::string> what;
  bool operator==(const HeldException&) const = default;
};
inline constexpr std::size_t kMaxExceptionText = 4096;

// Parallel to target.threads(): the exception that each of them is handling, or the unhandled one that ends it. A
// thread that has another exception in flight at the same time (uncaughtExceptions) is left out: its structures do not
// show which of the two is the reason.
std::vector<std::optional<HeldException>> read_held_exceptions(const Target& target, const CxxRuntime& runtime);

}  // namespace rankstacks::target
