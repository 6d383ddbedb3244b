// What glibc said before it aborted the process: a failed assertion, "free(): invalid pointer", "*** stack smashing
// detected ***".
//
// glibc keeps this text for debuggers (assert/assert.c, sysdeps/posix/libc_fatal.c):
//
//     __abort_msg -> struct abort_msg_s { unsigned int size; char msg[]; }     mapped for it; size: of the mapping
//
// __abort_msg is exported with the version GLIBC_PRIVATE, so stripped libraries have it, too.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "target/target.h"

namespace rankstacks::target {

inline constexpr std::size_t kMaxAbortMessage = 4096;

// The addresses of __abort_msg in the modules. They do not depend on the target in which they were found.
std::vector<Address> find_abort_messages(const ModuleMap& modules);

// The first of the messages that is set, without white space at its end, cut at kMaxAbortMessage bytes; std::nullopt if
// there is none.
std::optional<std::string> read_abort_message(const Target& target, std::span<const Address> variables);

}  // namespace rankstacks::target
