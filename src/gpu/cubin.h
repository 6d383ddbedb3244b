// The functions of a relocated cubin: the ELF file of one loaded module on the GPU.
//
//     .text.KERNEL   sh_addr: where it lies on the GPU; 0: not loaded (yet)
//       +------------------------------------------+
//       |  kernel's code  |  a device function     |
//       +------------------------------------------+
//
//     symbol KERNEL             STT_FUNC, st_other & 0x10: an entry, launched by the host
//     symbol $KERNEL$function   STT_FUNC: inside of it
//
// The bytes come from a GPU core or from the driver, and are untrusted. Cubins with more than 65,279 sections occur:
// the section numbers of their symbols are in a table of their own (SHT_SYMTAB_SHNDX). Source of the numbers: the
// toolkit's ELF files as readelf of binutils 2.40 shows them; EM_CUDA is in <elf.h>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace rankstacks::gpu {

// Views into the cubin's bytes.
struct CubinFunction {
  std::string_view name;  // mangled, without the "$KERNEL$" that a device function's symbol begins with
  Address start = 0;
};

struct CubinPlace {
  CubinFunction function;               // the innermost that covers the address
  std::optional<CubinFunction> kernel;  // the entry that covers it: it runs as part of this kernel
};

// For each of `addresses` (sorted, unique) the function that covers it, or std::nullopt. Errors: not an ELF file of a
// GPU, or tables outside of the file. Overlaps beyond those of any real file are not all examined.
Result<std::vector<std::optional<CubinPlace>>> find_functions(std::span<const std::byte> cubin,
                                                              std::span<const Address> addresses);

// Whether code of the cubin is loaded at one of `addresses` (sorted), judged by its sections alone. False for a broken
// file.
bool has_code_at(std::span<const std::byte> cubin, std::span<const Address> addresses);

}  // namespace rankstacks::gpu
