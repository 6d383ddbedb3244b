// The part of an ELF file that libdw needs to unwind, in memory that libdw may write to and that nobody else changes.
//
// libdw unpacks a compressed debug section by writing into its section header. An Image is mapped read-only and shared
// by all ranks, so that write would crash the tool. And libelf and libdw read headers and tables again that they have
// checked before. So of a file with compressed sections, and of one that others may change, libdw gets a copy: the
// headers as the Image has checked them, the unwind tables at their places, zeros that take no memory everywhere else,
// and every debug section except .debug_frame declared empty.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "elf/image.h"

namespace rankstacks::unwind {

class UnwindOnlyElf {
 public:
  // Whether libdw would write to the bytes of this file, or others may.
  static bool is_needed(const elf::Image& image);

  // std::nullopt if there is no memory for it, or its headers lie one on the other.
  static std::optional<UnwindOnlyElf> copy_of(const elf::Image& image);

  UnwindOnlyElf(UnwindOnlyElf&& other) noexcept;
  UnwindOnlyElf& operator=(UnwindOnlyElf&&) = delete;
  ~UnwindOnlyElf();

  std::span<std::byte> bytes() { return bytes_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit UnwindOnlyElf(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;  // an anonymous mapping as long as the file
};

}  // namespace rankstacks::unwind
