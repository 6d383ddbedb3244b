#include "python/objects.h"

#include <algorithm>
#include <array>

#include "python/line_table.h"

namespace rankstacks::python {
namespace {

// The number of bytes fetched with the header of a str or bytes: enough for nearly all names, paths and line tables, so
// that few need another batch.
constexpr std::size_t kLikelyString = 256;
constexpr std::size_t kLikelyLineTable = 1024;

// A str with more characters is not a name or path but damage.
constexpr std::int64_t kAbsurdLength = 1 << 24;

// An upper bound for the per-thread copies of a code object: no process has more threads.
constexpr std::int64_t kMaxThreadLocalCopies = 1 << 16;

// struct _PyCodeArray { Py_ssize_t size; char *entries[]; }: an entry that has not been created yet is NULL.
constexpr Address kCodeArrayEntries = 8;

// std::nullopt if it is outside of the code of `size` bytes at `start`, and not right before it either.
std::optional<std::int64_t> offset_into(Address start, Address instruction, std::int64_t size) {
  const auto offset = static_cast<std::int64_t>(instruction - start);
  return offset == -kCodeUnit || (offset >= 0 && offset < size) ? std::optional(offset) : std::nullopt;
}

void append_utf8(std::string& out, std::uint32_t c) {
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

}  // namespace

std::size_t span_of(std::initializer_list<Offset> fields) {
  std::size_t end = 0;
  for (const Offset field : fields) {
    if (field != kAbsent) end = std::max<std::size_t>(end, field + 8);
  }
  return end;
}

std::string decode_characters(std::span<const std::byte> data, unsigned width) {
  std::string out;
  out.reserve(data.size() / width);
  for (std::size_t i = 0; i + width <= data.size(); i += width) {
    std::uint32_t c = 0;
    std::memcpy(&c, data.data() + i, width);
    append_utf8(out, c);
  }
  return out;
}

std::optional<int> line_in(const Code& code, int minor_version, std::int64_t instruction) {
  if (code.damaged && code.line_table.empty()) return std::nullopt;
  if (minor_version >= 11) return line_in_locations(code.line_table, code.first_line, instruction);
  if (minor_version == 10) return line_in_ranges(code.line_table, code.first_line, instruction);
  return line_in_lnotab(code.line_table, code.first_line, instruction);
}

std::uint32_t CodeReader::add(Address code, std::int32_t copy) {
  const auto [it, is_new] = index_.try_emplace(code, static_cast<std::uint32_t>(codes_.size()));
  if (is_new) {
    codes_.push_back({.address = code});
    bodies_.emplace_back();
  }
  if (copy != 0) thread_local_instructions_.try_emplace({it->second, copy}, 0);
  return it->second;
}

std::optional<std::int64_t> CodeReader::offset_of(Address instruction, std::uint32_t index, std::int32_t copy) {
  const Body& body = bodies_[index];
  const auto known = copy == 0 ? thread_local_instructions_.end() : thread_local_instructions_.find({index, copy});
  const Address start = copy == 0 ? body.instructions : known == thread_local_instructions_.end() ? 0 : known->second;
  if (start != 0) {
    if (const auto offset = offset_into(start, instruction, body.size)) return offset;
  }
  return body.copies == 0 ? std::nullopt : offset_in_other_copy(instruction, body);
}

// A frame starts with the code's own instructions, a generator's frame with those of the thread that ran it last, and
// changes to the thread's copy when it executes RESUME. It stores its index and its instruction one after the other;
// between the two stores the instruction is in another copy than the index says.
std::optional<std::int64_t> CodeReader::offset_in_other_copy(Address instruction, const Body& body) {
  const auto count = target_.read_value<std::int64_t>(body.copies).value_or(0);
  if (count <= 0 || count > kMaxThreadLocalCopies || static_cast<std::size_t>(count) > searched_copies_left_)
    return std::nullopt;
  searched_copies_left_ -= static_cast<std::size_t>(count);
  std::vector<Address> entries(static_cast<std::size_t>(count));
  if (!target_.read_exact(body.copies + kCodeArrayEntries, std::as_writable_bytes(std::span(entries))))
    return std::nullopt;
  for (const Address start : entries) {
    if (start == 0) continue;
    if (const auto offset = offset_into(start, instruction, body.size); offset && *offset >= 0) return offset;
  }
  return std::nullopt;
}

std::size_t CodeReader::damaged() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < codes_.size(); ++i) {
    if (codes_[i].damaged && (bodies_[i].kind == Kind::kCode || bodies_[i].kind == Kind::kUnreadable)) ++count;
  }
  return count;
}

void CodeReader::read_all() {
  read_structures();
  read_types();
  read_thread_local_code();
  read_strings_and_tables();
  copies_.clear();
}

void CodeReader::read_structures() {
  const std::size_t size = span_of(
      {layout_.object_type, layout_.bytes_size, layout_.code_filename, layout_.code_name, layout_.code_qualname,
       layout_.code_first_line, layout_.code_line_table, layout_.code_first_traceable, layout_.code_tlbc,
       layout_.code_global_names, layout_.code_slot_names, layout_.code_cell_names, layout_.code_free_names,
       layout_.code_slot_kinds, layout_.code_slot_count, layout_.code_stack_size, layout_.code_exception_table});
  std::vector<Range> ranges;
  for (const Code& code : codes_) ranges.push_back(range_of(code.address, size));
  target_.prefetch(ranges);

  copies_.resize(codes_.size());
  for (std::size_t i = 0; i < codes_.size(); ++i) {
    if (!copies_[i].read(target_, codes_[i].address, size)) {
      codes_[i].damaged = true;
      const auto mappings = target_.mappings();
      const bool mapped = std::any_of(mappings.begin(), mappings.end(),
                                      [&](const target::Mapping& m) { return m.range.contains(codes_[i].address); });
      bodies_[i].kind = mapped ? Kind::kUnreadable : Kind::kOther;
      continue;
    }
    codes_[i].first_line = copies_[i].get<std::int32_t>(layout_.code_first_line);
    Body& body = bodies_[i];
    body.global_names = copies_[i].get<Address>(layout_.code_global_names);
    body.slot_names = copies_[i].get<Address>(layout_.code_slot_names);
    body.cell_names = copies_[i].get<Address>(layout_.code_cell_names);
    body.free_names = copies_[i].get<Address>(layout_.code_free_names);
    body.slot_kinds = copies_[i].get<Address>(layout_.code_slot_kinds);
    body.slot_count = copies_[i].get<std::int32_t>(layout_.code_slot_count);
    body.stack_size = copies_[i].get<std::int32_t>(layout_.code_stack_size);
    body.exception_table = copies_[i].get<Address>(layout_.code_exception_table);
    if (layout_.code_instructions == kAbsent) continue;
    body.instructions = codes_[i].address + layout_.code_instructions;
    // From 3.11 a code object is a variable-size object whose items are its code units; ob_size has the same offset as
    // in bytes.
    body.size = std::clamp<std::int64_t>(copies_[i].get<std::int64_t>(layout_.bytes_size), 0, INT32_MAX) * kCodeUnit;
    body.first_traceable = copies_[i].get<std::int32_t>(layout_.code_first_traceable) * kCodeUnit;
  }
}

// Distinguishes code objects from other objects that a damaged frame may point to, by the name of their type. This
// needs no symbols.
void CodeReader::read_types() {
  std::unordered_map<Address, Kind> kinds;
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < codes_.size(); ++i) {
    if (!copies_[i].complete()) continue;
    const auto type = copies_[i].get<Address>(layout_.object_type);
    if (kinds.try_emplace(type, Kind::kOther).second) ranges.push_back(range_of(type, layout_.type_name + 8));
  }
  target_.prefetch(ranges);
  for (auto& [type, kind] : kinds) {
    constexpr std::size_t kLongName = 64;
    const auto name_at = target_.read_value<Address>(type + layout_.type_name);
    if (!name_at) continue;
    const auto name = target_.read_c_string(*name_at, kLongName);
    // The literal is in .rodata, which a core without its files lacks: then nothing can be proved, and the object is
    // assumed to be a code object.
    const bool unavailable = !target_.read_value<char>(*name_at);
    if (name == "code" || unavailable) {
      kind = Kind::kCode;
    } else if (name == "NoneType") {
      kind = Kind::kNone;
    }
  }
  for (std::size_t i = 0; i < codes_.size(); ++i) {
    if (copies_[i].complete()) bodies_[i].kind = kinds[copies_[i].get<Address>(layout_.object_type)];
  }
}

void CodeReader::read_thread_local_code() {
  if (layout_.code_tlbc == kAbsent) return;
  for (std::size_t i = 0; i < codes_.size(); ++i) {
    if (bodies_[i].kind == Kind::kCode) bodies_[i].copies = copies_[i].get<Address>(layout_.code_tlbc);
  }
  // Reads the size of each array, and only those entries that frames use: the array has one for each thread.
  const auto entry_at = [](Address array, std::int32_t copy) {
    return array + kCodeArrayEntries + sizeof(Address) * static_cast<Address>(copy);
  };
  const auto array_of = [&](const std::pair<std::uint32_t, std::int32_t>& which) {
    return which.second < 0 ? 0 : bodies_[which.first].copies;
  };
  std::vector<Range> ranges;
  for (const auto& [which, unused] : thread_local_instructions_) {
    const Address array = array_of(which);
    if (array == 0) continue;
    ranges.push_back(range_of(array, kCodeArrayEntries));
    ranges.push_back(range_of(entry_at(array, which.second), sizeof(Address)));
  }
  target_.prefetch(ranges);
  for (auto& [which, instructions] : thread_local_instructions_) {
    const Address array = array_of(which);
    if (array == 0) continue;
    const auto count = target_.read_value<std::int64_t>(array).value_or(0);
    if (count <= which.second || count > kMaxThreadLocalCopies) continue;
    instructions = target_.read_value<Address>(entry_at(array, which.second)).value_or(0);
  }
}

void CodeReader::read_strings_and_tables() {
  // First reads the headers, which state the sizes, along with the data that usually follows them; then data that was
  // longer.
  std::vector<Range> headers, rest;
  std::unordered_map<Address, bool> seen;
  const auto string_fields = {layout_.code_filename, layout_.code_name, layout_.code_qualname};
  for (std::size_t i = 0; i < codes_.size(); ++i) {
    if (bodies_[i].kind != Kind::kCode) continue;
    for (const Offset field : string_fields) {
      const auto at = copies_[i].get<Address>(field);
      if (field != kAbsent && seen.try_emplace(at, true).second) headers.push_back(range_of(at, kLikelyString));
    }
    headers.push_back(range_of(copies_[i].get<Address>(layout_.code_line_table), kLikelyLineTable));
  }
  target_.prefetch(headers);

  for (const auto& [at, unused] : seen) {
    std::uint32_t state = 0;
    bool cut = false;
    const auto data = string_data(at, state, cut);
    if (data && (data->start > at + kLikelyString || data->end > at + kLikelyString)) rest.push_back(*data);
  }
  for (std::size_t i = 0; i < codes_.size(); ++i) {
    if (bodies_[i].kind != Kind::kCode) continue;
    const auto at = copies_[i].get<Address>(layout_.code_line_table);
    const auto data = bytes_data(at);
    if (data && data->end > at + kLikelyLineTable) rest.push_back(*data);
  }
  if (!rest.empty()) target_.prefetch(rest);

  for (std::size_t i = 0; i < codes_.size(); ++i) {
    Code& code = codes_[i];
    if (bodies_[i].kind != Kind::kCode) continue;
    const auto take = [&](Offset field, std::string& into) {
      const Text& text = read_string(copies_[i].get<Address>(field));
      const bool taken = text.ok && spend(text.text.size());
      if (taken) into = text.text;
      else code.damaged = true;
      return taken;
    };
    take(layout_.code_name, code.name);
    take(layout_.code_filename, code.file);
    std::string qualname;
    if (layout_.code_qualname != kAbsent && take(layout_.code_qualname, qualname)) code.qualname = std::move(qualname);
    if (!read_bytes(copies_[i].get<Address>(layout_.code_line_table), code.line_table)) code.damaged = true;
  }
}

std::uint32_t CodeReader::character_width(std::uint32_t state) const {
  const std::uint32_t lowest = layout_.string_kind_mask & (~layout_.string_kind_mask + 1);
  return lowest != 0 ? (state & layout_.string_kind_mask) / lowest : 0;
}

// The range of a str's characters. std::nullopt if it is not a str, or cannot be read.
std::optional<Range> CodeReader::string_data(Address address, std::uint32_t& state, bool& cut) const {
  const auto length = target_.read_value<std::int64_t>(address + layout_.string_length);
  const auto word = target_.read_value<std::uint32_t>(address + layout_.string_state);
  if (!length || !word || *length < 0 || *length > kAbsurdLength) return std::nullopt;
  state = *word;
  const std::uint32_t width = character_width(state);
  if (width != 1 && width != 2 && width != 4) return std::nullopt;
  Address data = 0;
  if (state & layout_.string_compact_mask) {
    data = address + ((state & layout_.string_ascii_mask) ? layout_.string_ascii_data : layout_.string_compact_data);
  } else {
    const auto pointer = target_.read_value<Address>(address + layout_.string_compact_data);
    if (!pointer) return std::nullopt;
    data = *pointer;
  }
  const auto characters = static_cast<std::uint64_t>(*length);
  cut = characters > kMaxString / width;
  return range_of(data, cut ? kMaxString : characters * width);
}

bool CodeReader::spend(std::size_t bytes) {
  if (bytes > text_left_) text_left_ = 0;
  else text_left_ -= bytes;
  return text_left_ > 0;
}

const CodeReader::Text& CodeReader::read_string(Address address) {
  const auto known = strings_.find(address);
  if (known != strings_.end()) return known->second;
  Text result;
  std::uint32_t state = 0;
  bool cut = false;
  if (const auto data = string_data(address, state, cut)) {
    std::vector<std::byte> bytes(spend(data->size()) ? data->size() : 0);
    if (bytes.size() == data->size() && target_.read_exact(data->start, bytes)) {
      result = {decode_characters(bytes, character_width(state)), true};
      if (cut) ++cut_strings_;
    }
  }
  return strings_.emplace(address, std::move(result)).first->second;
}

std::optional<std::string> CodeReader::text(Address string, std::size_t longest) {
  const auto length = target_.read_value<std::uint64_t>(string + layout_.string_length);
  if (!length || *length > longest) return std::nullopt;
  const Text& text = read_string(string);
  return text.ok ? std::optional(text.text) : std::nullopt;
}

std::optional<std::string> CodeReader::beginning(Address string, std::size_t most) {
  std::uint32_t state = 0;
  bool cut = false;
  const auto data = string_data(string, state, cut);
  if (!data) return std::nullopt;
  const std::uint32_t width = character_width(state);
  std::vector<std::byte> bytes(std::min<std::size_t>(data->size(), most * width));
  if (!target_.read_exact(data->start, bytes)) return std::nullopt;
  return decode_characters(bytes, width);
}

std::optional<char32_t> CodeReader::character(Address string, std::uint64_t index) const {
  std::uint32_t state = 0;
  bool cut = false;
  const auto data = string_data(string, state, cut);
  if (!data) return std::nullopt;
  const std::uint32_t width = character_width(state);
  if (index >= data->size() / width) return std::nullopt;
  std::array<std::byte, sizeof(char32_t)> bytes{};
  if (!target_.read_exact(data->start + index * width, std::span(bytes).first(width))) return std::nullopt;
  std::uint32_t character = 0;
  std::memcpy(&character, bytes.data(), sizeof character);
  return character;
}

std::optional<Range> CodeReader::bytes_data(Address address) const {
  const auto size = target_.read_value<std::int64_t>(address + layout_.bytes_size);
  if (!size || *size < 0 || static_cast<std::uint64_t>(*size) > kMaxLineTable) return std::nullopt;
  return range_of(address + layout_.bytes_data, static_cast<std::size_t>(*size));
}

bool CodeReader::read_bytes(Address address, std::vector<std::uint8_t>& into) {
  const auto data = bytes_data(address);
  if (!data || !spend(data->size())) return false;
  into.resize(data->size());
  if (target_.read_exact(data->start, std::as_writable_bytes(std::span(into)))) return true;
  into.clear();
  return false;
}

}  // namespace rankstacks::python
