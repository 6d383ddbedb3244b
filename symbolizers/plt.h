// Names of PLT entries, which are not covered by symbols: "malloc@plt".
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "elf/image.h"

namespace rankstacks::symbolizers {

// Parallel to `addresses`: the name (mangled, without "@plt") of the symbol whose PLT entry contains the address.
std::vector<std::optional<std::string_view>> name_plt_entries(const elf::Image& image,
                                                              std::span<const Vaddr> addresses);

}  // namespace rankstacks::symbolizers
