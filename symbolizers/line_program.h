// The line table of one compilation unit: its program is run once for the requested addresses, and the table is never
// stored.
//
// libdw stores all rows of a unit and sorts them: that took 25 of the 45 ms for 100 addresses of a libpython (146
// units, 2.5 MB of line programs). Here a row that was not requested is dropped at once: 5 ms.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"

namespace rankstacks::symbolizers {

// Decompressed; empty if the file does not have them.
struct LineSections {
  std::span<const std::byte> line;      // .debug_line
  std::span<const std::byte> line_str;  // .debug_line_str
  std::span<const std::byte> str;       // .debug_str
};

struct LineRow {
  std::uint64_t file = 0;  // for LineProgram::path
  std::uint64_t line = 0;  // 0: code that belongs to no line
};

class LineProgram {
 public:
  // Parses the header at `offset` (DW_AT_stmt_list), of DWARF 2 to 5. std::nullopt if it is cut off or of another form.
  // `directory` is the unit's DW_AT_comp_dir. The sections must outlive the result.
  static std::optional<LineProgram> parse(const LineSections& sections, std::uint64_t offset,
                                          std::string_view directory);

  // Parallel to `addresses` (sorted): the row that covers each address.
  std::vector<std::optional<LineRow>> find(std::span<const Vaddr> addresses, DeadlineCheck& deadline) const;

  // The path of a file in the table, by the number that rows and DW_AT_call_file have; absolute if the compiler's
  // directory is known.
  std::optional<std::string> path(std::uint64_t file) const;

 private:
  struct File {
    std::string_view name;
    std::uint64_t directory = 0;
  };
  struct Reader;
  struct Machine;

  bool read_tables_v4(Reader& reader);
  bool read_tables_v5(Reader& reader, const LineSections& sections, bool is_64);

  std::span<const std::byte> program_;
  std::span<const std::byte> opcode_lengths_;  // [0] is for opcode 1
  unsigned version_ = 0;
  std::uint8_t step_ = 1;
  std::int8_t line_base_ = 0;
  std::uint8_t line_range_ = 1;
  std::uint8_t opcode_base_ = 1;
  std::string_view directory_;
  std::vector<std::string_view> directories_;  // numbered as in the version: [0] is the compiler's own
  std::vector<File> files_;                    // likewise: [0] is unused before DWARF 5
};

}  // namespace rankstacks::symbolizers
