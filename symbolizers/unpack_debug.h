// Unpacks compressed debug sections (SHF_COMPRESSED with zlib or zstd, GNU's older .zdebug_*) into an ELF file of their
// own.
//
// libelf can unpack them too, but it changes the section headers in place (elf_compress), which here are in the shared,
// read-only mapping of the file; and 0.188 does not support zstd.
#pragma once

#include <memory>

#include "base/result.h"
#include "elf/image.h"

namespace rankstacks::symbolizers {

bool has_packed_debug(const elf::Image& image);

// An image with those .debug_* sections of `image` that are read for lines and inlined functions, all uncompressed: a
// private copy, also of a file in which nothing is compressed.
// Each is unpacked on a processor of its own if there are several.
Result<std::shared_ptr<const elf::Image>> unpack_debug(const elf::Image& image);

}  // namespace rankstacks::symbolizers
