// Compressed debug sections (SHF_COMPRESSED with zlib or zstd, GNU's older .zdebug_*), unpacked into an ELF file of their own.
//
// libelf would unpack them too, but it changes the section headers where they lie as it does so (elf_compress), which here is the
// shared, read-only picture of the file; and 0.188 knows no zstd.
#pragma once

#include <memory>

#include "base/result.h"
#include "elf/image.h"

namespace rankstacks {

bool has_packed_debug(const elf::Image& image);

// An image of just those .debug_* sections of `image` that are read for lines and inlined functions, none compressed. Each is unpacked on a processor of
// its own where there are several.
Result<std::shared_ptr<const elf::Image>> unpack_debug(const elf::Image& image);

}  // namespace rankstacks
