// From a process's mappings to the ELF files loaded in it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "elf/image.h"
#include "target/modules.h"

namespace rankstacks {

// The mappings of one file as the loader made them, by ascending address; the first one maps the ELF header.
struct FileMappings {
  std::string path;
  Range range;
  std::vector<Mapping> parts;
};

// Groups file mappings that belong together and of which at least one is executable. A file mapped a second time is a group of its own.
std::vector<FileMappings> group_mappings(std::span<const Mapping> mappings);

// What to add to the image's addresses to get the target's; nothing when no PT_LOAD of the image fits any of the mappings.
std::optional<Address> load_bias(const elf::Image& image, const FileMappings& file);

}  // namespace rankstacks
