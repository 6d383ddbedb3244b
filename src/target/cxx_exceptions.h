// The C++ exceptions that a process's threads hold, read from the own structures of libstdc++ and of libc++'s
// libc++abi: what a thread handles in a catch block, or the reason why it terminates.
//
//     fs_base -> dtv[libstdc++] -> __cxa_eh_globals { caughtExceptions, uncaughtExceptions }
//                                        |              a list for each thread, innermost first
//                    __cxa_exception { exceptionType, ..., nextException, ..., unwindHeader }
//                                        |                112 bytes before the thrown object
//                                        |                                                |
//                    type_info { vtable, name, base ... }             std::runtime_error { vtable, char* },
//                                                                     c10::Error { vtable, std::string, ... }
//
// libc++abi differs in three places:
//   - its __cxa_exception has 16 bytes more before the type (`reserve`, `referenceCount`), and the list refers to these;
//     from the type to the object everything is as in libstdc++. In versions before `reserve` the field there is not a
//     type_info, so they yield nothing;
//   - a dependent exception (std::rethrow_exception) has the address of the thrown object in place of `referenceCount`
//     (`primaryException`), not of the type;
//   - built without thread-local variables, as those of Debian's LLVM 14 to 16 are, it keeps the address of a thread's
//     __cxa_eh_globals by a key of pthread_getspecific: fs_base -> struct pthread's `specific` -> { seq, data }, where
//     glibc says by variables for debuggers what the offset of `specific` is.
// The texts of its std::runtime_error and std::logic_error have the form of libstdc++'s, on purpose
// (__libcpp_refstring: length, capacity and count of references precede the characters). Its std::string has another
// one.
//
// Whoever unwinds the stack notes in unwindHeader's private_2 the stack pointer of the frame that it has found a
// handler in: libgcc's unwinder and LLVM's alike. It stays there while the exception is handled.
//
// Nothing here trusts the process: reads are bounded, and a value is used only if it has the required form (the
// unwinder's mark of a C++ exception, type_info's vtables at their addresses in the library, a string's length next to
// its end). Anything else is left out silently.
//
// Sources: GCC, libstdc++-v3/libsupc++/unwind-cxx.h and eh_globals.cc; LLVM, libcxxabi/src/cxa_exception.h (layout,
// marks), cxa_exception_storage.cpp (key), cxa_exception.cpp (__cxa_throw counts the exception as caught before it
// terminates; __cxa_rethrow), libunwind/src/UnwindLevel1.c (unwind_phase1: private_2); GCC, libgcc/unwind.inc
// (_Unwind_RaiseException: private_2), libstdc++-v3/libsupc++/eh_throw.cc and eh_catch.cc (__cxa_rethrow: a negative
// handlerCount until the catch block is left); LLVM, libcxx/src/include/refstring.h, libcxx/include/string (__long,
// __short); checked against Debian's libc++ of LLVM 14, 16 and 19; Itanium C++ ABI, 2.9.5 (type_info), 5.1.5.2 (names
// of builtin types) and "Exception Handling", 2.2.1; glibc, sysdeps/x86_64/nptl/tls.h (dtv), nptl/descr.h (specific,
// pthread_key_data), nptl_db/structs.def
// (_thread_db_pthread_specific); PyTorch, c10/util/Exception.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "target/target.h"

namespace rankstacks::target {

// Where a copy of a C++ library keeps a thread's exceptions, according to the code of its __cxa_get_globals.
struct ExceptionStorage {
  // Address of the pair {TLS module, offset} that __tls_get_addr is called with; std::nullopt: at fs_base.
  std::optional<Address> module_slot;
  std::optional<Address> offset_slot;  // address of a slot with an offset from fs_base
  std::int64_t offset = 0;             // added to the above
  // Address of a pthread_key_t, whose value in a thread is the address of its exceptions; nothing of the above then.
  std::optional<Address> key;
};

// What pthread_getspecific() reads, according to glibc: offset of struct pthread's array of addresses of blocks.
struct ThreadSpecifics {
  std::uint32_t offset = 0;
  std::uint32_t blocks = 0;            // in the array
  std::uint32_t values_per_block = 0;  // each of 16 bytes
};

// For all modules of a process. These are plain addresses: they do not depend on the target in which they were found.
struct CxxRuntime {
  std::vector<ExceptionStorage> storage;
  std::vector<Address> class_types, single_bases, several_bases;  // the first words of type_info objects of classes
  std::optional<ThreadSpecifics> specifics;                       // only if a storage needs it
  std::vector<Address> plain_types;                               // those of int and the like, of enums and of pointers
};

CxxRuntime find_cxx_runtime(const ModuleMap& modules);

// Reads the code of __cxa_get_globals at `at`, as it is compiled and linked for x86-64; std::nullopt if it is anything
// else.
std::optional<ExceptionStorage> decode_exception_storage(std::span<const std::byte> code, Address at);

// Reads the code of libc++abi's __cxa_get_globals_fast at `at`, if it is built without thread-local variables: the
// address of its key.
std::optional<Address> decode_exception_key(std::span<const std::byte> code, Address at);

struct HeldException {
  std::string type;  // mangled, without "_ZTI": "St13runtime_error"
  // Its text, if it has a type whose layout is known, or its value: "42" of an int, the characters of a char*; at most
  // kMaxExceptionText bytes of UTF-8.
  std::optional<std::string> what;
  Address handler_sp = 0;  // the stack pointer of the frame that handles it, as the unwinder has noted it
  // The thread has no exception on its way at the same time (uncaughtExceptions), nor one of another library. Otherwise
  // its structures do not show which of them is the reason if it terminates.
  bool alone = true;
  friend bool operator==(const HeldException& a, const HeldException& b) {
    return a.type == b.type && a.what == b.what;
  }
};
inline constexpr std::size_t kMaxExceptionText = 4096;

// Parallel to target.threads().
struct HeldExceptions {
  // The innermost exception that the thread is handling, or the unhandled one that ends it. One that its catch block
  // has thrown again is on its way, and the next outer one is here instead.
  std::vector<std::optional<HeldException>> handled;
  // The one that is on its way (uncaughtExceptions) while destructors run or a handler is looked for; the innermost
  // if there are several. Nothing in the library's structures refers to it, but the code that will pass it on keeps its
  // address, in a register or on the stack. So it is searched for there, and only in threads that count such
  // exceptions. What is found has to be an exception that nobody has caught and that is in use; if more of these are
  // found than the thread counts, none is taken.
  std::vector<std::optional<HeldException>> raised;
};

HeldExceptions read_held_exceptions(const Target& target, const CxxRuntime& runtime);

}  // namespace rankstacks::target
