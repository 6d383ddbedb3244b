#include "symbolizers/line_program.h"

#include <dwarf.h>
#include <algorithm>

#include "elf/bytes.h"
#include "elf/leb128.h"

namespace rankstacks::symbolizers {
namespace {

// The longest possible path (PATH_MAX). Each of a million files may name the rest of a large string table.
constexpr std::size_t kLongestPath = 4096;

std::string_view c_string_at(std::span<const std::byte> bytes, std::uint64_t offset,
                             std::size_t longest = kLongestPath) {
  if (offset >= bytes.size()) return {};
  const auto* start = reinterpret_cast<const char*>(bytes.data()) + offset;
  const auto* end =
      static_cast<const char*>(std::memchr(start, 0, std::min<std::size_t>(bytes.size() - offset, longest)));
  return end == nullptr ? std::string_view{} : std::string_view(start, static_cast<std::size_t>(end - start));
}

}  // namespace

// Reads forwards; past the end it returns zeros and clears `good`.
struct LineProgram::Reader {
  std::span<const std::byte> bytes;
  std::uint64_t at = 0;
  bool good = true;

  bool done() const { return !good || at >= bytes.size(); }
  std::uint64_t left() const { return at < bytes.size() ? bytes.size() - at : 0; }

  template <class T>
  T fixed() {
    const auto value = elf::load<T>(bytes, at);
    at += sizeof(T);
    if (!value) good = false;
    return value.value_or(T{});
  }
  std::uint64_t offset(bool is_64) { return is_64 ? fixed<std::uint64_t>() : fixed<std::uint32_t>(); }

  std::uint64_t unsigned_leb() {
    const auto value = elf::load_uleb(bytes, at);
    if (!value) good = false;
    return value.value_or(0);
  }
  std::int64_t signed_leb() {
    const auto value = elf::load_sleb(bytes, at);
    if (!value) good = false;
    return value.value_or(0);
  }
  std::string_view c_string() {
    const std::string_view text = c_string_at(bytes, at, bytes.size());
    if (text.data() == nullptr) good = false;
    at += text.size() + 1;
    return text;
  }
  void skip(std::uint64_t count) {
    if (count > left()) good = false;
    at = good ? at + count : bytes.size();
  }
};

std::optional<LineProgram> LineProgram::parse(const LineSections& sections, std::uint64_t offset,
                                              std::string_view directory) {
  // DWARF 5, 6.2.4: the first 4 bytes of unit_length show whether offsets have 8 bytes.
  Reader length{elf::clip(sections.line, offset, 12)};
  std::uint64_t unit_length = length.fixed<std::uint32_t>();
  const bool is_64 = unit_length == 0xffffffffU;
  if (is_64) unit_length = length.fixed<std::uint64_t>();
  const auto unit = elf::clip(elf::clip(sections.line, offset, sections.line.size()), length.at, unit_length);
  if (!length.good || unit.size() != unit_length) return std::nullopt;

  LineProgram program;
  program.directory_ = directory;
  Reader reader{unit};
  program.version_ = reader.fixed<std::uint16_t>();
  if (program.version_ < 2 || program.version_ > 5) return std::nullopt;
  if (program.version_ == 5) {
    const auto address_size = reader.fixed<std::uint8_t>();
    const auto selector_size = reader.fixed<std::uint8_t>();
    if (address_size != 8 || selector_size != 0) return std::nullopt;
  }
  const std::uint64_t header_length = reader.offset(is_64);
  const std::uint64_t tables_end = reader.at + std::min(header_length, reader.left());
  program.step_ = reader.fixed<std::uint8_t>();
  const auto operations = program.version_ >= 4 ? reader.fixed<std::uint8_t>() : std::uint8_t{1};
  reader.fixed<std::uint8_t>();  // default_is_stmt: all rows count, whether or not a breakpoint would go there
  program.line_base_ = reader.fixed<std::int8_t>();
  program.line_range_ = reader.fixed<std::uint8_t>();
  program.opcode_base_ = reader.fixed<std::uint8_t>();
  // Only VLIW machines have more than one operation per instruction.
  if (!reader.good || operations != 1 || program.line_range_ == 0 || program.opcode_base_ == 0) return std::nullopt;
  program.opcode_lengths_ = elf::clip(unit, reader.at, program.opcode_base_ - 1U);
  reader.skip(program.opcode_base_ - 1U);
  const bool tables_read =
      program.version_ == 5 ? program.read_tables_v5(reader, sections, is_64) : program.read_tables_v4(reader);
  if (!tables_read || reader.at > tables_end) return std::nullopt;
  program.program_ = elf::clip(unit, tables_end, unit.size());
  return program;
}

bool LineProgram::read_tables_v4(Reader& reader) {
  directories_.push_back({});  // 0: the directory of the unit
  for (std::string_view name = reader.c_string(); !name.empty(); name = reader.c_string()) directories_.push_back(name);
  files_.push_back({});  // 0: no file
  for (std::string_view name = reader.c_string(); !name.empty(); name = reader.c_string()) {
    const std::uint64_t directory = reader.unsigned_leb();
    reader.unsigned_leb();  // time of modification
    reader.unsigned_leb();  // size
    files_.push_back({name, directory});
  }
  return reader.good;
}

bool LineProgram::read_tables_v5(Reader& reader, const LineSections& sections, bool is_64) {
  for (const bool are_files : {false, true}) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> format(reader.fixed<std::uint8_t>());  // content, form
    for (auto& [content, form] : format) {
      content = reader.unsigned_leb();
      form = reader.unsigned_leb();
    }
    const std::uint64_t count = reader.unsigned_leb();
    if (!reader.good || count > reader.left() || (format.empty() && count > 0)) return false;
    for (std::uint64_t i = 0; i < count; ++i) {
      File entry;
      for (const auto& [content, form] : format) {
        std::string_view text;
        std::uint64_t number = 0;
        switch (form) {
          case DW_FORM_string: text = reader.c_string(); break;
          case DW_FORM_line_strp: text = c_string_at(sections.line_str, reader.offset(is_64)); break;
          case DW_FORM_strp: text = c_string_at(sections.str, reader.offset(is_64)); break;
          case DW_FORM_udata: number = reader.unsigned_leb(); break;
          case DW_FORM_data1: number = reader.fixed<std::uint8_t>(); break;
          case DW_FORM_data2: number = reader.fixed<std::uint16_t>(); break;
          case DW_FORM_data4: number = reader.fixed<std::uint32_t>(); break;
          case DW_FORM_data8: number = reader.fixed<std::uint64_t>(); break;
          case DW_FORM_data16: reader.skip(16); break;
          case DW_FORM_block: reader.skip(reader.unsigned_leb()); break;
          default: return false;  // of unknown length: what follows cannot be found
        }
        if (content == DW_LNCT_path) entry.name = text;
        if (content == DW_LNCT_directory_index) entry.directory = number;
      }
      if (!reader.good) return false;
      if (are_files) files_.push_back(entry);
      else directories_.push_back(entry.name);
    }
  }
  return true;
}

// The registers of the state machine (DWARF 5, 6.2.2) that determine the file and line of an address.
struct LineProgram::Machine {
  std::uint64_t address = 0;
  LineRow row{1, 1};
  // Linkers leave 0 as the address of a function that they dropped; no image has code there.
  bool dropped = true;
  // The sequence has a row; the row covers the addresses up to the start of the next one.
  bool has_row = false;
  std::uint64_t row_address = 0;
  LineRow last_row;
};

std::vector<std::optional<LineRow>> LineProgram::find(std::span<const Vaddr> addresses, DeadlineCheck& deadline) const {
  std::vector<std::optional<LineRow>> found(addresses.size());
  std::size_t missing = addresses.size();
  Machine m;
  std::size_t next = 0;  // the first address that is not before the start of the current row
  const auto write_row = [&](bool end_of_sequence) {
    if (m.has_row && !m.dropped && m.address > m.row_address) {
      for (; next < addresses.size() && addresses[next] < m.address; ++next) {
        if (found[next]) continue;
        found[next] = m.last_row;
        --missing;
      }
    }
    if (!m.has_row || m.address < m.row_address) {
      next =
          static_cast<std::size_t>(std::lower_bound(addresses.begin(), addresses.end(), m.address) - addresses.begin());
    }
    m.has_row = !end_of_sequence;
    m.row_address = m.address;
    m.last_row = m.row;
    if (end_of_sequence) m = Machine{};
  };

  Reader reader{program_};
  while (missing > 0 && !reader.done() && !deadline.passed()) {
    const auto opcode = reader.fixed<std::uint8_t>();
    if (opcode >= opcode_base_) {
      const unsigned adjusted = opcode - opcode_base_;
      m.address += std::uint64_t{adjusted / line_range_} * step_;
      m.row.line += static_cast<std::uint64_t>(std::int64_t{line_base_}) + adjusted % line_range_;
      write_row(false);
      continue;
    }
    switch (opcode) {
      case 0: {
        const std::uint64_t length = reader.unsigned_leb();
        const std::uint64_t end = reader.at + length;
        if (length == 0 || length > reader.left()) return found;
        const auto extended = reader.fixed<std::uint8_t>();
        if (extended == DW_LNE_end_sequence) write_row(true);
        if (extended == DW_LNE_set_address && length == 9) {
          m.address = reader.fixed<std::uint64_t>();
          m.dropped = m.address == 0;
        }
        reader.at = end;
        break;
      }
      case DW_LNS_copy: write_row(false); break;
      case DW_LNS_advance_pc: m.address += reader.unsigned_leb() * step_; break;
      case DW_LNS_advance_line: m.row.line += static_cast<std::uint64_t>(reader.signed_leb()); break;
      case DW_LNS_set_file: m.row.file = reader.unsigned_leb(); break;
      case DW_LNS_const_add_pc: m.address += std::uint64_t{(255U - opcode_base_) / line_range_} * step_; break;
      case DW_LNS_fixed_advance_pc: m.address += reader.fixed<std::uint16_t>(); break;
      default:  // is_stmt, column and others that do not affect the line; their number of operands is known
        for (auto n = static_cast<unsigned>(opcode_lengths_[opcode - 1U]); n > 0; --n) reader.unsigned_leb();
        break;
    }
  }
  return found;
}

std::optional<std::string> LineProgram::path(std::uint64_t file) const {
  if (file >= files_.size() || files_[file].name.empty()) return std::nullopt;
  const auto join = [](std::string_view directory, std::string path) {
    return directory.empty() || path.starts_with('/') ? path : std::string(directory) + "/" + path;
  };
  std::string path(files_[file].name);
  if (files_[file].directory < directories_.size()) path = join(directories_[files_[file].directory], std::move(path));
  return join(directory_, std::move(path));
}

}  // namespace rankstacks::symbolizers
