// The C++ exceptions that a process's threads hold: what a thread that terminates was told, read from libstdc++'s own structures.
//
//     fs_base -> dtv[libstdc++] -> __cxa_eh_globals { caughtExceptions, uncaughtExceptions }        a list per thread, innermost first
//                                        |
//                    __cxa_exception { exceptionType, ..., nextException, ..., unwindHeader }  <- 112 bytes before the thrown object
//                                        |                                                |
//                    type_info { vtable, name, base ... }             std::runtime_error { vtable, char* }, c10::Error { vtable, std::string, ... }
//
// Nothing here trusts the process: what is read is bounded, and taken only where it has the shape it must have (the unwinder's mark of a C++
// exception, type_info's vtables at their addresses in libstdc++, a string's length beside its end). What has not, is left out without a word.
//
// Sources: GCC, libstdc++-v3/libsupc++/unwind-cxx.h and eh_globals.cc; Itanium C++ ABI, 2.9.5 (type_info) and "Exception Handling", 2.2.1;
// glibc, sysdeps/x86_64/nptl/tls.h (dtv); PyTorch, c10/util/Exception.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "target/target.h"

namespace rankstacks {

// Where a copy of libstdc++ keeps a thread's exceptions, as the code of its __cxa_get_globals has it.
struct ExceptionStorage {
  std::optional<Address> module_slot;   // of the pair {TLS module, offset} that __tls_get_addr is called with; nothing: at fs_base
  std::optional<Address> offset_slot;   // holds an offset from fs_base
  std::int64_t offset = 0;              // added to all that
};

// Of all modules of a process. Plain addresses: it does not depend on the target that it was found in.
struct CxxRuntime {
  std::vector<ExceptionStorage> storage;
  std::vector<Address> class_types, single_bases, several_bases;   // what type_info objects of classes begin with
};

CxxRuntime find_cxx_runtime(const ModuleMap& modules);

// The code of __cxa_get_globals, at `at`, as it is compiled and linked for x86-64; nothing: it is something else.
std::optional<ExceptionStorage> decode_exception_storage(std::span<const std::byte> code, Address at);

struct HeldException {
  std::string type;                  // mangled, without "_ZTI": "St13runtime_error"
  std::optional<std::string> what;   // its text, where its type is one whose layout is known; at most kMaxExceptionText bytes of UTF-8
  bool operator==(const HeldException&) const = default;
};
inline constexpr std::size_t kMaxExceptionText = 4096;

// Parallel to target.threads(): the exception that each of them handles, or that nobody handles and that ends it. A thread that has another one
// on its way at the same time (uncaughtExceptions) is left out: which of the two it is about, is not told there.
std::vector<std::optional<HeldException>> read_held_exceptions(const Target& target, const CxxRuntime& runtime);

}  // namespace rankstacks
