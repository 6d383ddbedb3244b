// Finds the dynamic symbol table of an image without section headers through PT_DYNAMIC, as the loader does.
#pragma once

#include <functional>
#include <span>

#include "elf/symbol_table.h"

namespace rankstacks::elf {

// Bytes from a Vaddr to the end of what is available; see Image::at.
using VaddrView = std::function<std::span<const std::byte>(Vaddr)>;

// `dynamic` is the PT_DYNAMIC segment; `low` and `high` bound the PT_LOAD segments. Empty if the table cannot be found
// with certainty.
SymbolTable find_dynamic_symbols(std::span<const std::byte> dynamic, const VaddrView& at, Vaddr low, Vaddr high);

}  // namespace rankstacks::elf
