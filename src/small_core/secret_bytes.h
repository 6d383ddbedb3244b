// Overwrites secrets in the memory and notes of a process that is kept.
//
// A small core is made to be sent to others. The values of variables and arguments that hold secrets are on the main
// stack, and often in the interpreter's copies of them; those in names of functions, in paths and exceptions are in the
// interpreter's objects. Wherever their bytes are, 'x' takes their place. Nothing moves: pointers to them, and their
// lengths, stay right.
#pragma once

#include <string>
#include <vector>

#include "small_core/kept_process.h"

namespace rankstacks::small_core {

// A shorter value is not looked for: its bytes are anywhere by chance.
inline constexpr std::size_t kShortestSecret = 6;
inline constexpr std::size_t kMaxSecrets = 4096;  // the longest ones: a program may make as many as it likes

void overwrite_secrets(KeptProcess& process, const std::vector<std::string>& secrets);

}  // namespace rankstacks::small_core
