#include "python/layouts.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstring>

namespace rankstacks::python {
namespace {

// Byte offsets of the fields inside _Py_DebugOffsets, named as in Layout. The `*_size` fields bound the other fields of
// their structure.
struct DebugOffsetsShape {
  int minor = 0;
  Offset size = 0;
  Offset runtime_size = 0, runtime_interpreters_head = 0;
  Offset interp_size = 0, interp_next = 0, interp_id = 0, interp_threads_head = 0, interp_gil = 0;
  Offset interp_gc = 0, interp_modules = 0, interp_sys_dict = 0, interp_builtins = 0;
  Offset gil = 0, gil_locked = 0, gil_last_holder = 0, gil_enabled = 0;
  Offset gc_size = 0, gc_collecting = 0;
  Offset thread_size = 0, thread_next = 0, thread_interp = 0, thread_frame = 0, thread_id = 0, thread_native_id = 0;
  Offset thread_datastack_chunk = 0;
  Offset frame_size = 0, frame_previous = 0, frame_code = 0, frame_instruction = 0, frame_owner = 0,
         frame_tlbc_index = kAbsent;
  Offset frame_slots = 0;
  Offset code_size = 0, code_filename = 0, code_name = 0, code_qualname = 0, code_line_table = 0, code_first_line = 0;
  Offset code_instructions = 0, code_tlbc = kAbsent, code_slot_names = 0, code_slot_kinds = 0;
  Offset object_type = 0, type_name = 0, bytes_size = 0, bytes_data = 0, string_length = 0, string_state = 0,
         string_ascii_data = 0;
  Offset type_flags = 0, tuple_size = 0, tuple_items = 0, int_tag = 0, int_digits = 0, dict_keys = 0, dict_values = 0;
};

#include "python/layouts_generated.inc"

constexpr char kCookie[] = {'x', 'd', 'e', 'b', 'u', 'g', 'p', 'y'};

// 3.7.4 aligned PyGC_Head to 16 bytes (bpo-27987), which moved everything after the collector's state in _PyRuntime by
// 88 bytes.
constexpr int kGcHeadAligned = 4;
constexpr Offset kGcHeadShift = 88;

// An upper bound, far above any structure: _PyRuntime of 3.14 has 300 KB (it holds the main interpreter),
// PyInterpreterState 200 KB.
constexpr std::uint64_t kMaxStructure = 16u << 20;

const DebugOffsetsShape* find_shape(const Version& version) {
  if (version.major != 3 || is_early_prerelease(version)) return nullptr;
  const auto it = std::find_if(std::begin(kDebugOffsetsShapes), std::end(kDebugOffsetsShapes),
                               [&](const DebugOffsetsShape& s) { return s.minor == version.minor; });
  return it == std::end(kDebugOffsetsShapes) ? nullptr : &*it;
}

std::uint64_t word_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint64_t value = 0;
  if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Reads offsets from the table and remembers the first one that cannot be right.
class TableReader {
 public:
  explicit TableReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Returns the size of a structure, which bounds the offsets read after it.
  Offset structure(const char* name, Offset where) {
    name_ = name;
    limit_ = word_at(bytes_, where);
    if (limit_ < 8 || limit_ > kMaxStructure) reject("size", limit_);
    return static_cast<Offset>(limit_);
  }

  // An offset, which must leave room for `width` bytes in the structure.
  Offset offset(const char* field, Offset where, std::uint64_t width = 8) {
    const std::uint64_t value = word_at(bytes_, where);
    if (value > limit_ || limit_ - value < width) reject(field, value);
    return static_cast<Offset>(value);
  }

  // A structure whose size the table does not state, or states in a form that does not bound its fields.
  void unbounded(const char* name, std::uint64_t limit) {
    name_ = name;
    limit_ = limit;
  }

  bool failed() const { return !problem_.empty(); }
  const std::string& problem() const { return problem_; }

 private:
  void reject(const char* field, std::uint64_t value) {
    if (problem_.empty()) problem_ = fmt::format("{}.{} is {}", name_, field, value);
  }

  std::span<const std::byte> bytes_;
  const char* name_ = "";
  std::uint64_t limit_ = 0;
  std::string problem_;
};

}  // namespace

std::string Version::to_string() const { return fmt::format("{}.{}.{}{}", major, minor, micro, suffix); }

std::optional<Version> version_from_hex(std::uint64_t hex) {
  // Include/patchlevel.h: one byte each of major, minor, micro; then the release level (a, b, c, f) and the serial, 4
  // bits each.
  if (hex >> 32) return std::nullopt;
  Version version{static_cast<int>(hex >> 24), static_cast<int>((hex >> 16) & 0xff),
                  static_cast<int>((hex >> 8) & 0xff), ""};
  const unsigned level = (hex >> 4) & 0xf, serial = hex & 0xf;
  switch (level) {
    case 0xa: version.suffix = fmt::format("a{}", serial); break;
    case 0xb: version.suffix = fmt::format("b{}", serial); break;
    case 0xc: version.suffix = fmt::format("rc{}", serial); break;
    case 0xf: break;
    default: return std::nullopt;
  }
  if (version.major != 3 || version.minor > 99) return std::nullopt;
  return version;
}

std::optional<Version> parse_version(std::string_view text) {
  Version version;
  std::size_t at = 0;
  const auto number = [&](int& into) {
    const std::size_t begin = at;
    for (into = 0; at < text.size() && text[at] >= '0' && text[at] <= '9' && at - begin < 3; ++at)
      into = into * 10 + (text[at] - '0');
    return at > begin;
  };
  const auto literal = [&](std::string_view expected) {
    if (text.substr(at).substr(0, expected.size()) != expected) return false;
    at += expected.size();
    return true;
  };
  if (!number(version.major) || !literal(".") || !number(version.minor) || !literal(".") || !number(version.micro))
    return std::nullopt;
  if (version.major != 3 || version.minor > 99 || version.micro > 99) return std::nullopt;
  for (const std::string_view level : {"a", "b", "rc"}) {
    const std::size_t before = at;
    int serial = 0;
    if (literal(level) && number(serial)) {
      version.suffix = fmt::format("{}{}", level, serial);
      break;
    }
    at = before;
  }
  if (literal("+")) version.suffix += "+";
  return version;
}

bool is_early_prerelease(const Version& version) {
  return !version.suffix.empty() && (version.suffix[0] == 'a' || version.suffix[0] == 'b');
}

std::optional<Layout> find_layout(const Version& version, bool free_threaded) {
  if (is_early_prerelease(version)) return std::nullopt;
  for (const Layout& measured : kLayouts) {
    if (measured.major != version.major || measured.minor != version.minor || measured.free_threaded != free_threaded)
      continue;
    Layout layout = measured;
    if (version.minor == 7 && version.micro < kGcHeadAligned) {
      layout.runtime_tstate_current -= kGcHeadShift;
      layout.runtime_gil -= kGcHeadShift;
    }
    return layout;
  }
  return std::nullopt;
}

std::optional<DebugOffsetsHeader> decode_debug_offsets_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kDebugOffsetsHeader || std::memcmp(bytes.data(), kCookie, sizeof kCookie) != 0)
    return std::nullopt;
  const auto version = version_from_hex(word_at(bytes, 8));
  const std::uint64_t free_threaded = word_at(bytes, 16);
  if (!version || free_threaded > 1) return std::nullopt;
  return DebugOffsetsHeader{*version, free_threaded == 1};
}

std::size_t debug_offsets_size(const Version& version) {
  const DebugOffsetsShape* shape = find_shape(version);
  return shape ? shape->size : 0;
}

namespace {

// Each of these functions reads the part of the table that describes one of CPython's structures.
void read_runtime(TableReader& table, const DebugOffsetsShape& shape, Layout& layout) {
  table.structure("runtime_state", shape.runtime_size);
  layout.runtime_interpreters_head = table.offset("interpreters_head", shape.runtime_interpreters_head);
}

void read_interpreter(TableReader& table, const DebugOffsetsShape& shape, const Layout& measured, Layout& layout) {
  layout.interp_size = table.structure("interpreter_state", shape.interp_size);
  layout.interp_next = table.offset("next", shape.interp_next);
  layout.interp_id = table.offset("id", shape.interp_id);
  layout.interp_threads_head = table.offset("threads_head", shape.interp_threads_head);
  layout.interp_gil = table.offset("ceval_gil", shape.interp_gil);
  layout.interp_modules = table.offset("imports_modules", shape.interp_modules);
  layout.interp_sys_dict = table.offset("sysdict", shape.interp_sys_dict);
  layout.interp_builtins = table.offset("builtins", shape.interp_builtins);
  // These are stated relative to the interpreter, for its own GIL; the pointer at ceval_gil may lead to another
  // interpreter's.
  const Offset gil = table.offset("gil_runtime_state", shape.gil);
  const Offset locked = table.offset("gil_runtime_state_locked", shape.gil_locked, 4);
  const Offset holder = table.offset("gil_runtime_state_holder", shape.gil_last_holder);
  if (locked >= gil && holder >= gil && locked - gil < measured.gil_size && holder - gil < measured.gil_size) {
    layout.gil_locked = locked - gil;
    layout.gil_last_holder = holder - gil;
  } else {
    layout.interp_gil = kAbsent;
  }
  // The collector's state is a part of the interpreter.
  const Offset gc = table.offset("gc", shape.interp_gc);
  table.structure("gc", shape.gc_size);
  layout.interp_collecting = gc + table.offset("collecting", shape.gc_collecting, 4);
}

void read_thread(TableReader& table, const DebugOffsetsShape& shape, const Layout& measured, Layout& layout) {
  layout.thread_size = table.structure("thread_state", shape.thread_size);
  layout.thread_next = table.offset("next", shape.thread_next);
  layout.thread_interp = table.offset("interp", shape.thread_interp);
  layout.thread_frame = table.offset("current_frame", shape.thread_frame);
  layout.thread_id = table.offset("thread_id", shape.thread_id);
  layout.thread_native_id = table.offset("native_thread_id", shape.thread_native_id);
  layout.thread_datastack_chunk = table.offset("datastack_chunk", shape.thread_datastack_chunk);
  // The table lacks exc_info, which is at a fixed distance before thread_id.
  const Offset before_id = measured.thread_id - measured.thread_exc_info;
  layout.thread_exc_info = layout.thread_id >= before_id ? layout.thread_id - before_id : kAbsent;
}

void read_frame(TableReader& table, const DebugOffsetsShape& shape, const Layout& measured, Layout& layout) {
  table.structure("interpreter_frame", shape.frame_size);
  layout.frame_previous = table.offset("previous", shape.frame_previous);
  layout.frame_code = table.offset("executable", shape.frame_code);
  layout.frame_instruction = table.offset("instr_ptr", shape.frame_instruction);
  layout.frame_owner = table.offset("owner", shape.frame_owner, 1);
  layout.frame_slots = table.offset("localsplus", shape.frame_slots);
  if (measured.free_threaded && shape.frame_tlbc_index != kAbsent) {
    layout.frame_tlbc_index = table.offset("tlbc_index", shape.frame_tlbc_index, 4);
  }
}

void read_code(TableReader& table, const DebugOffsetsShape& shape, const Layout& measured, Layout& layout) {
  table.structure("code_object", shape.code_size);
  layout.code_filename = table.offset("filename", shape.code_filename);
  layout.code_name = table.offset("name", shape.code_name);
  layout.code_qualname = table.offset("qualname", shape.code_qualname);
  layout.code_line_table = table.offset("linetable", shape.code_line_table);
  layout.code_first_line = table.offset("firstlineno", shape.code_first_line, 4);
  layout.code_slot_names = table.offset("localsplusnames", shape.code_slot_names);
  layout.code_slot_kinds = table.offset("localspluskinds", shape.code_slot_kinds);
  layout.code_instructions = table.offset("co_code_adaptive", shape.code_instructions, 1);
  if (measured.free_threaded && shape.code_tlbc != kAbsent) layout.code_tlbc = table.offset("co_tlbc", shape.code_tlbc);
  // The table lacks _co_firsttraceable, which is at a fixed distance before the instructions.
  const Offset before = measured.code_instructions - measured.code_first_traceable;
  layout.code_first_traceable = layout.code_instructions >= before ? layout.code_instructions - before : kAbsent;
}

void read_objects(TableReader& table, const DebugOffsetsShape& shape, Layout& layout) {
  // The table states only the sizes of the fixed headers of these structures. All their fields are within one page.
  table.unbounded("object", 4096);
  layout.object_type = table.offset("ob_type", shape.object_type);
  layout.type_name = table.offset("tp_name", shape.type_name);
  layout.type_flags = table.offset("tp_flags", shape.type_flags);
  layout.tuple_size = table.offset("tuple ob_size", shape.tuple_size);
  layout.tuple_items = table.offset("ob_item", shape.tuple_items);
  layout.int_tag = table.offset("lv_tag", shape.int_tag);
  layout.int_digits = table.offset("ob_digit", shape.int_digits, 4);
  layout.dict_keys = table.offset("ma_keys", shape.dict_keys);
  layout.dict_values = table.offset("ma_values", shape.dict_values);
  layout.bytes_size = table.offset("ob_size", shape.bytes_size);
  layout.bytes_data = table.offset("ob_sval", shape.bytes_data);
  layout.string_length = table.offset("length", shape.string_length);
  layout.string_state = table.offset("state", shape.string_state, 4);
  layout.string_ascii_data = table.offset("asciiobject_size", shape.string_ascii_data);
  // PyCompactUnicodeObject adds a length and a pointer to PyASCIIObject (3.13-3.15).
  layout.string_compact_data = layout.string_ascii_data + 16;
}

}  // namespace

Result<Layout> decode_debug_offsets(std::span<const std::byte> bytes) {
  const auto header = decode_debug_offsets_header(bytes);
  if (!header)
    return fail({.code = ErrorCode::kMalformed, .what = "no debug offsets: the cookie or the version is wrong"});
  const DebugOffsetsShape* shape = find_shape(header->version);
  const auto measured = find_layout(header->version, header->free_threaded);
  if (!shape || !measured) {
    return fail({.code = ErrorCode::kUnsupported,
                 .what = fmt::format("the debug offsets of CPython {} are not known", header->version.to_string())});
  }
  if (bytes.size() < shape->size) {
    return fail({.code = ErrorCode::kMalformed,
                 .what = fmt::format("the debug offsets have {} bytes, {} expected", bytes.size(), shape->size)});
  }

  Layout layout = *measured;
  TableReader table(bytes);
  read_runtime(table, *shape, layout);
  read_interpreter(table, *shape, *measured, layout);
  read_thread(table, *shape, *measured, layout);
  read_frame(table, *shape, *measured, layout);
  read_code(table, *shape, *measured, layout);
  read_objects(table, *shape, layout);
  if (table.failed()) {
    return fail({.code = ErrorCode::kMalformed, .what = "the debug offsets cannot be true: " + table.problem()});
  }
  return layout;
}

}  // namespace rankstacks::python
