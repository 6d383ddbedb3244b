// Command line and environment as the kernel wrote them on the main thread's stack at exec.
//
//     low addresses
//         argc | argv[0] ... NULL | envp[0] ... NULL | auxv ... AT_NULL | padding, AT_RANDOM's bytes |
//         "argv[0]\0" ... "NAME=value\0" ... | AT_EXECFN's string
//     top of the stack
//
// Source: Linux fs/binfmt_elf.c, create_elf_tables(). Programs may have overwritten the strings since (setproctitle);
// the pointers stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"

namespace rankstacks::target {

using AuxiliaryVector = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // type, value; without AT_NULL

std::optional<std::uint64_t> value_of(const AuxiliaryVector& auxv, std::uint64_t type);

struct InitialBlock {
  std::vector<std::string> command;  // empty: not found
  std::map<std::string, std::string> environment;
};

// `stack`: the memory of the main stack up to its top, as far as available; `start`: the address of its first byte. The
// auxiliary vector is found by its bytes. The pointers are below it and must be consistent: NULLs in place, argc equal
// to the number of arguments, strings inside the stack. If they are not, the strings below AT_EXECFN's string that look
// like variables are taken as the environment.
InitialBlock read_initial_block(std::span<const std::byte> stack, Address start, const AuxiliaryVector& auxv);

}  // namespace rankstacks::target
