// The memory of a Python process, built by hand: objects laid out as one version has them, which a test may then
// damage.
#pragma once

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "python/layouts.h"
#include "support/fake_target.h"

namespace rankstacks::testing {

class FakeInterpreter {
 public:
  static constexpr Address kRuntime = 0x10000, kInterpreter = 0x20000, kType = 0x8000, kOtherType = 0x9000,
                           kNoneType = 0xa000;
  static constexpr Address kTypeType = 0xb000, kObjectType = 0xb400, kIntType = 0xb800, kBoolType = 0xbc00,
                           kStringType = 0xc000, kBytesType = 0xc400, kTupleType = 0xc800, kDictType = 0xcc00,
                           kCellType = 0xd000, kTracebackType = 0xd400, kFrameType = 0xd800, kErrorType = 0xdc00;
  static constexpr Address kLockType = 0xe000, kRLockType = 0xe400, kHandleType = 0xe800, kBuiltinType = 0xec00,
                           kDescriptorType = 0xf000;
  static constexpr Address kCStack = 0x7ffd0000;

  // Up to 3.12; for later versions pass the words of _Py_DebugOffsets.
  explicit FakeInterpreter(python::Version version) : version_(version), layout_(*python::find_layout(version, false)) {
    begin({});
  }
  explicit FakeInterpreter(std::span<const std::uint64_t> words)
      : version_(*python::version_from_hex(words[1])), layout_(*python::decode_debug_offsets(std::as_bytes(words))) {
    begin(words);
  }

  python::RuntimeCandidate candidate() const {
    return {.module = "/usr/bin/python3", .runtime = kRuntime, .version = version_, .how = "symbol _PyRuntime"};
  }
  Result<python::State> read() const {
    const auto one = candidate();
    return python::read_python_state(target, std::span(&one, 1));
  }

  // A zeroed block of memory; set() writes into it.
  Address block(std::size_t size) {
    const Address at = next_;
    next_ += (size + 0xff) & ~std::size_t{0xff};
    return block_at(at, size);
  }
  Address block_at(Address at, std::size_t size) {
    blocks_.emplace_back(at, size);
    target.put(at, std::vector<std::byte>(size));
    return at;
  }
  template <class T>
  void set(Address at, T value) {
    for (const auto& [start, size] : blocks_) {
      if (at < start || at + sizeof value > start + size) continue;
      std::vector<std::byte> bytes(size);
      target.read(start, bytes);
      std::memcpy(bytes.data() + (at - start), &value, sizeof value);
      target.put(start, std::move(bytes));
      return;
    }
    throw std::logic_error("no block there");
  }

  Address string(const std::u32string& text, unsigned width = 1, bool compact = true) {
    bool ascii = width == 1;
    for (const char32_t c : text) ascii = ascii && c < 0x80;
    const Address at = block(layout_.string_compact_data + 8 + text.size() * width);
    set(at + layout_.object_type, kStringType);
    set<std::int64_t>(at + layout_.string_length, static_cast<std::int64_t>(text.size()));
    const std::uint32_t kind = layout_.string_kind_mask & (~layout_.string_kind_mask + 1);
    set<std::uint32_t>(at + layout_.string_state, kind * width | (compact ? layout_.string_compact_mask : 0) |
                                                      (ascii ? layout_.string_ascii_mask : 0));
    Address data = at + (ascii ? layout_.string_ascii_data : layout_.string_compact_data);
    if (!compact) {
      data = block(text.size() * width + 1);
      set(at + layout_.string_compact_data, data);
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (width == 1) set(data + i, static_cast<std::uint8_t>(text[i]));
      if (width == 2) set(data + 2 * i, static_cast<std::uint16_t>(text[i]));
      if (width == 4) set(data + 4 * i, static_cast<std::uint32_t>(text[i]));
    }
    return at;
  }
  Address string(const std::string& text) { return string(std::u32string(text.begin(), text.end())); }

  // Code of 100 units, all on `line`.
  Address code(const std::string& name, int line = 7) {
    return code_of(string(name), string("/x/" + name + ".py"), line);
  }
  Address code_of(Address name, Address file, int line) {
    const Address at = block(1024);
    set(at + layout_.object_type, kType);
    set(at + layout_.code_name, name);
    set(at + layout_.code_filename, file);
    if (layout_.code_qualname != python::kAbsent) set(at + layout_.code_qualname, name);
    set<std::int32_t>(at + layout_.code_first_line, line);
    std::vector<std::uint8_t> table;
    if (version_.minor == 10) table = {200, 0};
    for (int i = 0; version_.minor >= 11 && i < 13; ++i) table.insert(table.end(), {0xef, 0});
    const Address bytes = block(64 + table.size());
    set<std::int64_t>(bytes + layout_.bytes_size, static_cast<std::int64_t>(table.size()));
    for (std::size_t i = 0; i < table.size(); ++i) set(bytes + layout_.bytes_data + i, table[i]);
    set(at + layout_.code_line_table, bytes);
    if (layout_.code_instructions != python::kAbsent) {
      set<std::int64_t>(at + layout_.bytes_size, 100);
      set<std::int32_t>(at + layout_.code_first_traceable, 2);
    }
    return at;
  }

  // A frame at instruction word `unit`, with the given caller. From 3.11 on `owner` is the kind of frame.
  Address frame(Address code_at, Address previous, int unit = 20, std::uint8_t owner = 0, Address at = 0) {
    at = at ? block_at(at, 256) : block(512);
    set(at + layout_.frame_previous, previous);
    set(at + layout_.frame_code, version_.minor >= 14 ? code_at | 1 : code_at);
    if (layout_.frame_owner == python::kAbsent) {
      set(at + layout_.object_type, kFrameType);
      set<std::int32_t>(at + layout_.frame_instruction, version_.minor == 10 ? unit : unit * 2);
      if (layout_.frame_executing != python::kAbsent) set<std::uint8_t>(at + layout_.frame_executing, 1);
    } else {
      set<Address>(at + layout_.frame_instruction,
                   code_at + layout_.code_instructions + static_cast<Address>(unit * 2));
      set(at + layout_.frame_owner, owner);
    }
    return at;
  }
  // The shim that a call of the eval loop keeps on the C stack (3.12+).
  Address shim(Address previous, Address at) { return frame(none_, previous, 0, 3, at); }
  void mark_entry(Address frame_at) { set<std::uint8_t>(frame_at + layout_.frame_is_entry, 1); }

  Address cframe(Address previous, Address current, Address at) {
    at = block_at(at, 64);
    set(at + layout_.cframe_previous, previous);
    if (layout_.cframe_current_frame != python::kAbsent) set(at + layout_.cframe_current_frame, current);
    return at;
  }

  // A thread state of the (only) interpreter, linked in as the newest. Its chain of frames begins at `top`; 3.11, 3.12:
  // see set_cframe.
  Address thread(std::uint64_t pthread_id, Address top = 0) {
    const Address at = block(1024);
    set(at + layout_.thread_next, threads_);
    set(at + layout_.thread_interp, kInterpreter);
    set(at + layout_.thread_id, pthread_id);
    if (layout_.thread_frame != python::kAbsent) set(at + layout_.thread_frame, top);
    if (layout_.thread_cframe != python::kAbsent) {
      const Address root = at + layout_.thread_root_cframe;
      set(at + layout_.thread_cframe, root);
      if (layout_.cframe_current_frame != python::kAbsent) set(root + layout_.cframe_current_frame, top);
    }
    threads_ = at;
    set(kInterpreter + layout_.interp_threads_head, at);
    return at;
  }
  Address root_cframe(Address thread_at) const { return thread_at + layout_.thread_root_cframe; }
  void set_cframe(Address thread_at, Address cframe_at) { set(thread_at + layout_.thread_cframe, cframe_at); }

  // The frame object of a frame. Up to 3.10 that is the frame itself.
  Address frame_object(Address frame_at) {
    if (layout_.frame_object_frame == python::kAbsent) return frame_at;
    const Address at = block(128);
    set(at + layout_.object_type, kFrameType);
    set(at + layout_.frame_object_frame, frame_at);
    return at;
  }
  // An entry of a traceback, at instruction word `unit` of the frame's code.
  Address traceback(Address frame_object_at, Address next, int line, int unit = 20) {
    const Address at = block(128);
    set(at + layout_.object_type, kTracebackType);
    set(at + layout_.traceback_next, next);
    set(at + layout_.traceback_frame, frame_object_at);
    set<std::int32_t>(at + layout_.traceback_instruction, unit * 2);
    set<std::int32_t>(at + layout_.traceback_line, line);
    return at;
  }
  Address exception(Address args, Address traceback_at) {
    const Address at = block(128);
    set(at + layout_.object_type, kErrorType);
    set(at + layout_.exception_args, args);
    set(at + layout_.exception_traceback, traceback_at);
    return at;
  }
  Address exc_item(Address exception_at, Address previous = 0) {
    const Address at = block(64);
    set_item(at, exception_at);
    if (layout_.exc_item_previous != python::kAbsent) set(at + layout_.exc_item_previous, previous);
    return at;
  }
  // Makes a thread handle an exception, by an item of its own; 3.6: by the thread state itself.
  void set_handled(Address thread_at, Address exception_at) {
    if (layout_.thread_exc_info == python::kAbsent) set_item(thread_at, exception_at);
    else set(thread_at + layout_.thread_exc_info, exc_item(exception_at));
  }

  // An int of any digits, least significant first; `sign` is -1, 0 or 1.
  Address integer(std::vector<std::uint32_t> digits, int sign, Address type = kIntType) {
    const Address at = block(64);
    const auto count = static_cast<std::int64_t>(digits.size());
    set(at + layout_.object_type, type);
    if (layout_.int_tag != python::kAbsent)
      set<std::uint64_t>(at + layout_.int_tag,
                         static_cast<std::uint64_t>(count) << 3 | static_cast<std::uint64_t>(1 - sign));
    else set<std::int64_t>(at + layout_.int_size, sign * count);
    for (std::size_t i = 0; i < digits.size(); ++i) set(at + layout_.int_digits + 4 * i, digits[i]);
    return at;
  }
  Address integer(std::uint32_t value) { return value == 0 ? integer({}, 0) : integer({value}, 1); }
  Address none() const { return none_; }

  Address tuple(const std::vector<Address>& items) {
    const Address at = block(layout_.tuple_items + 8 * items.size() + 8);
    set(at + layout_.object_type, kTupleType);
    set<std::uint64_t>(at + layout_.tuple_size, items.size());
    for (std::size_t i = 0; i < items.size(); ++i) set(at + layout_.tuple_items + 8 * i, items[i]);
    return at;
  }
  Address cell(Address content) {
    const Address at = block(64);
    set(at + layout_.object_type, kCellType);
    set(at + layout_.cell_content, content);
    return at;
  }
  // A dict without a usable hash table; `with_hash`: with the kind of entry that dicts have whose keys are not all str.
  Address dict(const std::vector<std::pair<Address, Address>>& entries, bool with_hash = true) {
    const bool old = layout_.keys_size != python::kAbsent;
    std::uint64_t slots = 8, log2_slots = 3;
    for (; slots < 2 * entries.size(); ++log2_slots) slots *= 2;
    const std::size_t words = old || with_hash ? 3 : 2;
    const Address keys = block(layout_.keys_indices + slots + entries.size() * words * 8 + 8), at = block(128);
    if (old) {
      set(keys + layout_.keys_size, slots);
    } else {
      set(keys + layout_.keys_log2_size, static_cast<std::uint8_t>(log2_slots));
      set(keys + layout_.keys_log2_index_bytes, static_cast<std::uint8_t>(log2_slots));
      set<std::uint8_t>(keys + layout_.keys_kind, with_hash ? 0 : 1);
    }
    set<std::uint64_t>(keys + layout_.keys_entry_count, entries.size());
    for (std::uint64_t i = 0; i < slots; ++i) set<std::uint8_t>(keys + layout_.keys_indices + i, 0xff);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Address entry = keys + layout_.keys_indices + slots + 8 * words * i;
      set(entry + 8 * (words - 2), entries[i].first);
      set(entry + 8 * (words - 1), entries[i].second);
    }
    set(at + layout_.object_type, kDictType);
    set(at + layout_.dict_keys, keys);
    return at;
  }

  // The variables of a code object: its locals, and those of them that closures share.
  void name_slots(Address code_at, const std::vector<std::string>& locals, const std::vector<std::string>& cells = {}) {
    std::vector<Address> names, shared;
    for (const std::string& name : locals) names.push_back(string(name));
    for (const std::string& name : cells) shared.push_back(string(name));
    if (layout_.code_slot_kinds == python::kAbsent) {
      set(code_at + layout_.code_slot_names, tuple(names));
      set(code_at + layout_.code_cell_names, tuple(shared));
      set(code_at + layout_.code_free_names, tuple({}));
      return;
    }
    names.insert(names.end(), shared.begin(), shared.end());
    set(code_at + layout_.code_slot_names, tuple(names));
    const Address kinds = block(layout_.bytes_data + names.size() + 1);
    set(kinds + layout_.object_type, kBytesType);
    set<std::uint64_t>(kinds + layout_.bytes_size, names.size());
    for (std::size_t i = 0; i < names.size(); ++i)
      set<std::uint8_t>(kinds + layout_.bytes_data + i, i < locals.size() ? 0x20 : 0x40);
    set(code_at + layout_.code_slot_kinds, kinds);
  }
  void set_slot(Address frame_at, std::size_t index, Address object) {
    set(frame_at + layout_.frame_slots + 8 * index, object);
  }
  void set_globals(Address frame_at, Address globals, Address locals) {
    set(frame_at + layout_.frame_globals, globals);
    set(frame_at + layout_.frame_locals, locals);
  }

  // A _thread.lock that is held, and an RLock; lock_word() is its semaphore, or from 3.14 on its byte.
  Address lock() { return held(kLockType); }
  Address rlock(std::uint64_t owner, std::uint64_t count = 1) {
    const Address at = held(kRLockType), head = at + layout_.object_head();
    set(head + 8, owner);
    set<std::uint64_t>(head + 16, layout_.minor < 14 ? count : count - 1);
    return at;
  }
  Address lock_word(Address lock_at) const {
    const Address head = lock_at + layout_.object_head();
    return layout_.minor < 14 ? target.read_value<Address>(head).value_or(0) : head;
  }
  Address builtin(const std::string& name, Address self) {
    const Address at = method(kBuiltinType, name, 0);
    set(at + layout_.object_head() + 8, self);
    return at;
  }
  Address method_descriptor(const std::string& name) { return method(kDescriptorType, name, 24); }
  // What a `with` statement of a lock keeps on the value stack.
  std::vector<Address> exit_of(Address lock_at) {
    return layout_.minor < 14 ? std::vector{builtin("__exit__", lock_at)}
                              : std::vector{method_descriptor("__exit__"), lock_at};
  }
  // 3.13+: the handle of a thread, and the address at which threads that join it wait.
  Address thread_handle(std::uint64_t ident) {
    const Address handle = block(80), at = block(64);
    set(handle + 32, ident);
    set(at + layout_.object_type, kHandleType);
    set(at + layout_.object_head(), handle);
    return at;
  }
  Address weak_reference(Address object) {
    const Address at = block(64);
    set(at + layout_.object_head(), object);
    return at;
  }
  // An instance of a class of its own, with these attributes; `apart`: in a dict that was assigned to it.
  Address instance(const std::vector<std::pair<std::string, Address>>& attributes, bool apart = false) {
    std::vector<std::pair<Address, Address>> entries;
    for (const auto& [name, value] : attributes) entries.emplace_back(string(name), value);
    const Address type = block(1024), at = block(256) + 64, values = block(256);
    set(type + layout_.type_name, c_string("Class"));
    set(type + layout_.object_type, kTypeType);
    set(type + layout_.type_base, kObjectType);
    set<std::uint64_t>(type + layout_.type_flags, (1u << 12) | (1u << 9) | (layout_.minor >= 11 ? 1u << 4 : 0u) |
                                                      (layout_.minor >= 13 ? 1u << 2 : 0u));
    const Address size = layout_.object_head();
    set(type + layout_.type_basic_size, size);
    set(at + layout_.object_type, type);
    const Address dict_at = dict(entries, false), keys = *target.read_value<Address>(dict_at + layout_.dict_keys);
    const Address first = layout_.minor >= 13   ? at + size + layout_.values_first
                          : layout_.minor >= 11 ? values + layout_.values_first
                                                : values;
    for (std::size_t i = 0; i < entries.size() && !apart; ++i) set(first + 8 * i, entries[i].second);
    if (layout_.minor < 11) {
      set<std::int64_t>(type + layout_.type_dict_offset, 24);
      if (!apart) set(dict_at + layout_.dict_values, values);
      set(at + 24, dict_at);
      return at;
    }
    if (!apart) {
      set(type + layout_.type_cached_keys, keys);
      if (layout_.minor == 11) set(at - 32, values);
      if (layout_.minor == 12) set(at - 24, values - 1);
      if (layout_.minor >= 13) set<std::uint8_t>(at + size + 3, 1);
      return at;
    }
    set(at - (layout_.free_threaded ? 8 : 24), dict_at);
    return at;
  }
  // The value stack of a frame whose code was made for that frame alone. The statements around its instruction, word
  // `unit`, use that many slots.
  void set_stack(Address frame_at, const std::vector<Address>& objects, std::size_t in_use = 0, int unit = 20) {
    constexpr std::size_t kVariables = 2;
    const Address code_at = *target.read_value<Address>(frame_at + layout_.frame_code) & ~Address{3};
    const Address bottom = frame_at + layout_.frame_slots + 8 * kVariables;
    set<std::int32_t>(code_at + layout_.code_stack_size, 8);
    for (std::size_t i = 0; i < objects.size(); ++i) set(bottom + 8 * i, objects[i]);
    if (layout_.frame_blocks != python::kAbsent) {
      set(frame_at + layout_.frame_value_stack, bottom);
      set<std::int32_t>(frame_at + layout_.frame_block_count, in_use > 0 ? 2 : 0);
      set<std::int32_t>(frame_at + layout_.frame_blocks + 12 + 8, static_cast<std::int32_t>(in_use));
      return;
    }
    set<std::int32_t>(code_at + layout_.code_slot_count, kVariables);
    const Address table = block(layout_.bytes_data + 16);
    if (in_use > 0) {
      const auto first = static_cast<std::uint8_t>(unit - 1);
      const std::array<std::uint8_t, 8> entries = {
          0x80, 1, 40, 0, static_cast<std::uint8_t>(0x80 | first), 3, 40, static_cast<std::uint8_t>(in_use * 2 + 1)};
      set<std::uint64_t>(table + layout_.bytes_size, entries.size());
      for (std::size_t i = 0; i < entries.size(); ++i) set(table + layout_.bytes_data + i, entries[i]);
    }
    set(code_at + layout_.code_exception_table, table);
  }
  // The OS thread of a thread state, in a futex call.
  void waits_on(std::uint64_t pthread_id, Tid tid, Address futex) {
    target::ThreadInfo info;
    info.tid = tid;
    info.registers.emplace();
    info.registers->fs_base = pthread_id;
    if (futex != 0) {
      constexpr std::uint64_t kRestarts = static_cast<std::uint64_t>(-512), kFutex = 202;
      info.registers->orig_rax = kFutex;
      info.registers->set(target::kRax, kRestarts);
      info.registers->set(target::kRdi, futex);
    }
    target.threads_.push_back(info);
  }
  // An entry of the parking lot (3.13+): the futex that a thread waits on which waits for the object at `address`.
  Address parked_at(Address address) {
    const Address entry = block(64);
    set(entry + 8, address);
    return entry + 16;
  }
  Address futex_of(Address lock_at) { return layout_.minor < 14 ? lock_word(lock_at) : parked_at(lock_word(lock_at)); }

  const python::Layout& layout() const { return layout_; }
  FakeTarget target;

 private:
  Address c_string(const std::string& text) {
    const Address at = block(64);
    for (std::size_t i = 0; i < text.size(); ++i) set(at + i, text[i]);
    return at;
  }
  Address held(Address type) {
    const Address at = block(64), head = at + layout_.object_head();
    set(at + layout_.object_type, type);
    if (layout_.minor >= 14) set<std::uint8_t>(head, 1);
    else set(head, block(32));
    if (layout_.minor < 14) set<std::uint8_t>(head + 16, 1);
    return at;
  }
  Address method(Address type, const std::string& name, Address definition_at) {
    const Address at = block(64), definition = block(32);
    set(definition, c_string(name));
    set(at + layout_.object_type, type);
    set(at + layout_.object_head() + definition_at, definition);
    return at;
  }

  void set_item(Address at, Address exception_at) {
    set(at + layout_.exc_item_value, exception_at);
    if (layout_.exc_item_traceback == python::kAbsent || exception_at == 0) return;
    set(at + layout_.exc_item_traceback,
        target.read_value<Address>(exception_at + layout_.exception_traceback).value_or(0));
  }

  void begin(std::span<const std::uint64_t> words) {
    block_at(kRuntime, 4096);
    for (std::size_t i = 0; i < words.size(); ++i) set(kRuntime + 8 * i, words[i]);
    block_at(kInterpreter, 16384);
    set(kRuntime + layout_.runtime_interpreters_head, kInterpreter);
    const auto add_type = [&](Address type, const char* name, unsigned subclass_bit, Address base) {
      block_at(type, 512);
      set(type + layout_.type_name, c_string(name));
      set(type + layout_.object_type, kTypeType);
      set(type + layout_.type_base, base);
      set<std::uint64_t>(type + layout_.type_flags, (1u << 12) | (subclass_bit ? 1u << subclass_bit : 0u));
    };
    add_type(kObjectType, "object", 0, 0);
    add_type(kTypeType, "type", 31, kObjectType);
    add_type(kType, "code", 0, kObjectType);
    add_type(kOtherType, "dict", 0, kObjectType);
    add_type(kNoneType, "NoneType", 0, kObjectType);
    add_type(kIntType, "int", 24, kObjectType);
    add_type(kBoolType, "bool", 24, kIntType);
    add_type(kStringType, "str", 28, kObjectType);
    add_type(kBytesType, "bytes", 27, kObjectType);
    add_type(kTupleType, "tuple", 26, kObjectType);
    add_type(kDictType, "dict", 29, kObjectType);
    add_type(kCellType, "cell", 0, kObjectType);
    add_type(kTracebackType, "traceback", 0, kObjectType);
    add_type(kFrameType, "frame", 0, kObjectType);
    add_type(kErrorType, "RuntimeError", 30, kObjectType);
    add_type(kLockType, "_thread.lock", 0, kObjectType);
    add_type(kRLockType, "_thread.RLock", 0, kObjectType);
    add_type(kHandleType, "_thread._ThreadHandle", 0, kObjectType);
    add_type(kBuiltinType, "builtin_function_or_method", 0, kObjectType);
    add_type(kDescriptorType, "method_descriptor", 0, kObjectType);
    none_ = block(1024);
    set(none_ + layout_.object_type, kNoneType);
  }

  python::Version version_;
  python::Layout layout_;
  std::vector<std::pair<Address, std::size_t>> blocks_;
  Address next_ = 0x100000, threads_ = 0, none_ = 0;
};

}  // namespace rankstacks::testing
