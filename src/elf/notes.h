// ELF notes, as far as a build-id needs them.
#pragma once

#include <cstddef>
#include <span>

#include "base/types.h"

namespace rankstacks::elf {

// The NT_GNU_BUILD_ID in a sequence of notes (a PT_NOTE segment or an SHT_NOTE section) of that alignment; empty if
// there is none.
BuildId build_id_of_notes(std::span<const std::byte> notes, std::uint64_t alignment);

}  // namespace rankstacks::elf
