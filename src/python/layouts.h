// The memory layout of CPython: the offsets of the fields in each version, as data.
//
// Up to 3.12 the offsets follow from the version alone (layouts_generated.inc, measured by scripts/gen-python-layouts
// in the headers of each version). From 3.13 on _PyRuntime begins with a table of offsets, _Py_DebugOffsets, which
// comes from the process itself: after bounds checks it overrides the measured values. All of this is for x86-64 Linux.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "python/python.h"

namespace rankstacks::python {

// The range of `size` bytes at `start`, clamped to the address space: addresses and sizes in a target's memory can have
// any value.
inline Range range_of(Address start, std::uint64_t size) {
  return {start, start + size < start ? ~Address{0} : start + size};
}

using Offset = std::uint32_t;
inline constexpr Offset kAbsent = 0xffffffff;  // this version has no such field

struct Layout {
  int major = 0, minor = 0, measured_micro = 0;
  bool free_threaded = false;

  // _PyRuntimeState. 3.6 has none: there RuntimeCandidate::runtime is the address of `interp_head`, so the offset is 0.
  Offset runtime_interpreters_head = 0;
  Offset runtime_tstate_current = kAbsent;  // 3.7-3.11: the thread state that holds the GIL
  Offset runtime_gil = kAbsent;             // 3.7-3.11: struct _gil_runtime_state

  Offset runtime_faulthandler = kAbsent;  // 3.12+: struct _faulthandler_runtime_state, which begins with fatal_error

  // PyInterpreterState
  Offset interp_size = kAbsent;  // bytes, by the debug offsets alone (3.13+)
  Offset interp_next = kAbsent;
  Offset interp_id = kAbsent;  // 3.6 has none
  Offset interp_threads_head = kAbsent;
  Offset interp_gil = kAbsent;  // 3.12+: pointer to a struct _gil_runtime_state, which may be another interpreter's
  Offset interp_collecting = kAbsent;                           // 3.9+: an int, 1 while Python's collector runs in it
  Offset interp_modules = kAbsent;                              // sys.modules: a dict
  Offset interp_sys_dict = kAbsent, interp_builtins = kAbsent;  // the dicts of these modules

  // struct _gil_runtime_state
  Offset gil_size = kAbsent;
  Offset gil_locked = kAbsent;
  Offset gil_last_holder = kAbsent;
  Offset gil_enabled = kAbsent;  // free-threaded builds: 0 while they run without a GIL

  // PyThreadState
  Offset thread_size = kAbsent;  // bytes, by the debug offsets alone (3.13+)
  Offset thread_next = kAbsent;
  Offset thread_interp = kAbsent;
  Offset thread_id = kAbsent;               // pthread_self()
  Offset thread_native_id = kAbsent;        // 3.11+: gettid()
  Offset thread_datastack_chunk = kAbsent;  // 3.11+: the chunk that holds the innermost frames
  Offset thread_frame = kAbsent;            // up to 3.10 and from 3.13; 3.11 and 3.12: in the _PyCFrame
  Offset thread_exc_info = kAbsent;         // 3.7+: pointer to the innermost _PyErr_StackItem
  // Up to 3.12: in a thread that threading has started, a weak reference to the lock that is released when the thread
  // ends.
  Offset thread_on_delete_data = kAbsent;
  Offset thread_cframe = kAbsent;  // 3.10-3.12: pointer to the innermost CFrame
  // 3.10-3.12: the outermost CFrame, embedded in the thread state; it belongs to no call of the eval loop.
  Offset thread_root_cframe = kAbsent;

  // CFrame (3.10), _PyCFrame (3.11, 3.12): on the C stack, one per call of the eval loop
  Offset cframe_previous = kAbsent;
  Offset cframe_current_frame = kAbsent;  // 3.11, 3.12

  // _PyErr_StackItem: the exception that a thread, or a generator that it runs, is handling. 3.6 has these fields in
  // the thread state; there these are offsets in the thread state.
  Offset exc_item_value = kAbsent;
  // Up to 3.10; from 3.11 on the exception's own traceback is the one that counts.
  Offset exc_item_traceback = kAbsent;
  Offset exc_item_previous = kAbsent;  // 3.7+

  // PyFrameObject up to 3.10, _PyInterpreterFrame from 3.11
  Offset frame_previous = kAbsent;
  Offset frame_code = kAbsent;
  Offset frame_instruction = kAbsent;  // f_lasti (int), prev_instr (3.11, 3.12: pointer), instr_ptr (3.13+: pointer)
  Offset frame_executing = kAbsent;    // 3.9: a byte, 1 while a call of the eval loop executes the frame
  Offset frame_owner = kAbsent;        // 3.11+
  Offset frame_is_entry = kAbsent;     // 3.11
  Offset frame_tlbc_index = kAbsent;   // free-threaded 3.14+
  Offset frame_globals = kAbsent;
  Offset frame_locals = kAbsent;
  Offset frame_slots =
      kAbsent;  // the values of locals, cells and free variables, in this order; from 3.14 each a _PyStackRef
  // Up to 3.10: pointer to the bottom of the value stack; from 3.11 on the value stack follows the slots.
  Offset frame_value_stack = kAbsent;
  Offset frame_blocks =
      kAbsent;  // up to 3.10: an array of PyTryBlock, three ints each: type, handler, level of the value stack
  Offset frame_block_count = kAbsent;  // up to 3.10: an int

  // PyFrameObject from 3.11 on; tracebacks point to these.
  Offset frame_object_frame = kAbsent;  // its _PyInterpreterFrame

  // PyCodeObject
  Offset code_filename = kAbsent;
  Offset code_name = kAbsent;
  Offset code_first_line = kAbsent;
  Offset code_line_table = kAbsent;       // co_lnotab, from 3.10 co_linetable
  Offset code_qualname = kAbsent;         // 3.11+
  Offset code_first_traceable = kAbsent;  // 3.11+
  Offset code_instructions = kAbsent;     // 3.11+: co_code_adaptive, inside the code object
  Offset code_tlbc = kAbsent;             // free-threaded 3.14+
  Offset code_global_names = kAbsent;     // co_names
  Offset code_slot_names =
      kAbsent;  // co_varnames, from 3.11 co_localsplusnames, which holds cells and free variables too
  Offset code_cell_names = kAbsent;       // up to 3.10
  Offset code_free_names = kAbsent;       // up to 3.10
  Offset code_slot_kinds = kAbsent;       // 3.11+: a byte for each slot
  Offset code_slot_count = kAbsent;       // 3.11+: an int
  Offset code_exception_table = kAbsent;  // 3.11+
  Offset code_stack_size = kAbsent;       // an int: slots of the value stack

  // PyObject, PyTypeObject, PyBytesObject, tuple, int, cell
  Offset object_type = kAbsent;
  Offset type_name = kAbsent;
  Offset type_flags = kAbsent;
  Offset type_base = kAbsent;
  Offset type_basic_size = kAbsent;
  // Offset of the dict pointer in instances; from 3.11 on a type flag says that there is one, before the object.
  Offset type_dict_offset = kAbsent;
  Offset type_cached_keys = kAbsent;  // 3.11+, of classes: the struct _dictkeysobject of their instances' attributes
  Offset bytes_size = kAbsent;
  Offset bytes_data = kAbsent;
  Offset tuple_size = kAbsent;
  Offset tuple_items = kAbsent;
  Offset int_size = kAbsent;  // up to 3.11: the number of digits, negative for negative numbers
  Offset int_tag = kAbsent;   // 3.12+: the number of digits and the sign in one word
  Offset int_digits = kAbsent;
  Offset cell_content = kAbsent;

  // PyBaseExceptionObject, PyTracebackObject
  Offset exception_args = kAbsent;
  Offset exception_traceback = kAbsent;
  Offset traceback_next = kAbsent;
  Offset traceback_frame = kAbsent;
  Offset traceback_instruction = kAbsent;  // tb_lasti: a byte offset in every version
  Offset traceback_line = kAbsent;         // -1: from 3.11 on tb_lasti determines the line

  // dict, and struct _dictkeysobject
  Offset dict_keys = kAbsent;
  Offset dict_values = kAbsent;  // not NULL: the values are stored separately from the keys, as those of instances are
  // 3.11+, struct _dictvalues: the first value; up to 3.10 the values are a plain array.
  Offset values_first = kAbsent;
  Offset keys_size = kAbsent;              // up to 3.10: slots of the hash table
  Offset keys_log2_size = kAbsent;         // 3.11+
  Offset keys_log2_index_bytes = kAbsent;  // 3.11+
  Offset keys_kind = kAbsent;              // 3.11+
  Offset keys_entry_count = kAbsent;
  Offset keys_indices = kAbsent;  // the hash table; the entries come right after it

  // str
  Offset string_length = kAbsent;
  Offset string_state = kAbsent;  // a 32-bit word, of which:
  Offset string_ascii_data = kAbsent;
  Offset string_compact_data = kAbsent;  // also the offset of the pointer to the data in a str that is not compact
  std::uint32_t string_kind_mask = 0, string_compact_mask = 0, string_ascii_mask = 0;

  // Offset at which an object's own fields begin: the type is the last member of PyObject, also in free-threaded
  // builds.
  Offset object_head() const { return object_type + sizeof(Address); }

  // co_argcount, an int. Include/code.h, Include/cpython/code.h: up to 3.10 it is the first field of a code object;
  // from 3.11 on co_posonlyargcount and co_kwonlyargcount are between it and co_stacksize.
  Offset code_argument_count() const {
    constexpr int kFirstBeforeStackSize = 11;
    constexpr Offset kBeforeStackSize = 3 * sizeof(std::int32_t);
    return minor < kFirstBeforeStackSize ? object_head() : code_stack_size - kBeforeStackSize;
  }
};

// The measured layout of a version. std::nullopt if the version is unknown, or is a pre-release before the first
// release candidate, when the structures still changed.
std::optional<Layout> find_layout(const Version& version, bool free_threaded);

// The size of the header of _Py_DebugOffsets, which is the same in all versions.
inline constexpr std::size_t kDebugOffsetsHeader = 24;

struct DebugOffsetsHeader {
  Version version;
  bool free_threaded = false;
};

// std::nullopt if `bytes` do not begin with the cookie "xdebugpy" and a version of CPython 3.
std::optional<DebugOffsetsHeader> decode_debug_offsets_header(std::span<const std::byte> bytes);

// The size in bytes of _Py_DebugOffsets in this version; 0 if it has no such table, or if the table's shape is not
// known.
std::size_t debug_offsets_size(const Version& version);

// The layout that `bytes` (the whole of _Py_DebugOffsets) state, over the measured layout of the same minor version.
// Errors: the version's shape is not known (kUnsupported), or an offset cannot be right (kMalformed).
Result<Layout> decode_debug_offsets(std::span<const std::byte> bytes);

// From PY_VERSION_HEX: 0x030e00f0 is 3.14.0. std::nullopt if it is not a version of CPython 3.
std::optional<Version> version_from_hex(std::uint64_t hex);

// From the start of `text`, in the form of PY_VERSION: "3.9.18+", "3.13.0rc2". std::nullopt if `text` does not begin
// with such a version.
std::optional<Version> parse_version(std::string_view text);

// Whether the structures of `version` may still differ from those of the release: true for alpha and beta versions.
bool is_early_prerelease(const Version& version);

}  // namespace rankstacks::python
