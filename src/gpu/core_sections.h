// A GPU core's bytes and sections. Only the section headers and the sections that are asked for are ever touched: the
// rest is the GPU's memory.
#pragma once

#include <elf.h>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "gpu/core_layout.h"
#include "model/snapshot.h"

namespace rankstacks::gpu::core {

// A row of a table: those members that the driver which wrote it knew; others read as zero.
class Row {
 public:
  explicit Row(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  bool has(Member<T> member) const {
    return member.offset + sizeof(T) <= bytes_.size();
  }
  template <class T>
  T operator[](Member<T> member) const {
    T value{};
    if (has(member)) std::memcpy(&value, bytes_.data() + member.offset, sizeof value);
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
};

class Table {
 public:
  Table() = default;
  Table(std::uint32_t section, std::span<const std::byte> bytes, std::uint64_t stride)
      : section_(section), bytes_(bytes), stride_(stride) {}
  std::uint32_t section() const { return section_; }
  std::uint64_t size() const { return stride_ != 0 ? bytes_.size() / stride_ : 0; }
  Row operator[](std::uint64_t row) const { return Row(bytes_.subspan(row * stride_, stride_)); }

 private:
  std::uint32_t section_ = 0;
  std::span<const std::byte> bytes_;
  std::uint64_t stride_ = 0;
};

class Sections {
 public:
  // std::nullopt if the file is not from a GPU (or cannot be opened): other readers say what it is. Errors: an ELF file
  // of a GPU that is not a core, or one without a section that can be read. A compressed file is unpacked within the
  // deadline.
  static std::optional<Result<std::unique_ptr<Sections>>> open(const std::string& path, const Deadline& deadline);
  Sections(const Sections&) = delete;
  Sections& operator=(const Sections&) = delete;

  // The table of that type below row `row` of section `parent` (0, 0: of the whole core); empty if there is none.
  // `least`: the bytes that its rows have in every version.
  Table table(SectionType type, std::uint32_t parent, std::uint64_t row, std::uint64_t least);
  std::span<const std::byte> contents(SectionType type, std::uint32_t parent, std::uint64_t row) const;
  // For a type with too many sections to be indexed: one pass over all headers finds the tables of all `wanted`
  // (parent, row) pairs, which must be ascending. The result is parallel to `wanted`.
  std::vector<Table> tables(SectionType type, std::span<const std::pair<std::uint32_t, std::uint64_t>> wanted,
                            std::uint64_t least);
  std::string text(std::uint64_t offset) const;  // in .strtab; empty if it is not there

  // The file is cut off, or changed while it was read. Each is reported once.
  bool is_complete() const { return complete_; }
  bool has_lost_pages() const noexcept { return mapped_.has_lost_pages(); }
  std::vector<Problem>& problems() { return problems_; }
  void report(std::string message, std::string hint);

 private:
  struct Entry {
    std::uint32_t type, parent, row, section;
    auto key() const { return std::tie(type, parent, row, section); }
  };
  Sections() = default;
  std::optional<Error> index_sections();
  Elf64_Shdr header(std::uint64_t index) const;
  std::span<const std::byte> bytes_of(const Elf64_Shdr& header) const;
  const Entry* find(SectionType type, std::uint32_t parent, std::uint64_t row) const;
  Table table_of(std::uint32_t section, std::uint64_t least);

  std::string subject_;
  MappedFile mapped_;
  std::span<const std::byte> bytes_;
  std::span<const std::byte> headers_;
  std::span<const std::byte> strings_;
  std::vector<Entry> entries_;  // sorted; without return addresses, which have one section for each thread
  std::vector<Problem> problems_;
  bool complete_ = true;
  bool short_rows_reported_ = false;
};

}  // namespace rankstacks::gpu::core
