// From the mappings of a process to the ELF files loaded in it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "elf/image.h"
#include "target/modules.h"

namespace rankstacks::target {

// The mappings of one file as the loader made them, by ascending address. The first one maps the ELF header.
struct FileMappings {
  std::string path;
  Range range;
  std::vector<Mapping> parts;  // without their path: a process has thousands of mappings
};

// Groups file mappings that belong together, at least one of which is executable. A second mapping of the same file
// forms a group of its own.
std::vector<FileMappings> group_mappings(std::span<const Mapping> mappings);

// The offset from the image's addresses to the target's; std::nullopt if no PT_LOAD of the image fits any of the
// mappings.
std::optional<Address> load_bias(const elf::Image& image, const FileMappings& file);

}  // namespace rankstacks::target
