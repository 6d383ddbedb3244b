// Copies Python objects out of a target: code objects with their strings and line tables, in batches.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "python/layouts.h"
#include "python/python.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxString = 1u << 20;     // bytes of a str's data; longer data is cut off
inline constexpr std::size_t kMaxLineTable = 4u << 20;  // bytes; real line tables are far smaller
inline constexpr std::size_t kMaxText = 256u
                                        << 20;  // bytes of all names and line tables of a process: torch's are 10 MB

// Entries of the arrays of bytecode copies, searched for frames that are switching to another copy.
inline constexpr std::size_t kMaxSearchedCopies = 1u << 20;
inline constexpr std::int64_t kCodeUnit = 2;  // bytes per instruction word, from 3.6

// A structure copied from the target, read field by field. Fields outside of the copy read as 0.
class StructCopy {
 public:
  bool read(const target::Target& target, Address address, std::size_t size) {
    bytes_.resize(size);
    complete_ = target.read_exact(address, bytes_);
    return complete_;
  }
  bool complete() const { return complete_; }

  template <class T>
  T get(Offset offset) const {
    T value{};
    if (complete_ && offset != kAbsent && offset + sizeof(T) <= bytes_.size())
      std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

 private:
  std::vector<std::byte> bytes_;
  bool complete_ = false;
};

// The size of a copy that holds all of `fields` (each 8 bytes wide at most).
std::size_t span_of(std::initializer_list<Offset> fields);

// The code objects that the frames of a target refer to, each read once.
class CodeReader {
 public:
  enum class Kind {
    kCode,
    kNone,        // None: in 3.13+ a frame that runs no Python code
    kOther,       // some other object, or no object at all: the frame that refers to it is damaged
    kUnreadable,  // mapped, but not available (a core without that page): the frame itself may be sound
  };

  // What is needed of a frame's code object in addition to Code.
  struct Body {
    Kind kind = Kind::kUnreadable;
    Address instructions = 0;  // of the first instruction; 0: up to 3.10
    Address copies = 0;     // free-threaded 3.14+: struct _PyCodeArray, the per-thread copies of the bytecode; 0: none
    std::int64_t size = 0;  // of the bytecode, in bytes (3.11+)
    std::int64_t first_traceable = 0;  // byte offset: before this instruction the frame is still being set up (3.11+)
    // Of its variables (layouts.h); 0: this version has none.
    Address global_names = 0, slot_names = 0, cell_names = 0, free_names = 0, slot_kinds = 0;
    std::int32_t slot_count = 0;  // 3.11+
    std::int32_t stack_size = 0;  // slots of its value stack
    Address exception_table = 0;  // bytes; 0: up to 3.10
  };

  CodeReader(const target::Target& target, const Layout& layout, std::size_t most_text = kMaxText)
      : target_(target), layout_(layout), text_left_(most_text) {}

  // Returns an index into codes(). `copy` (free-threaded 3.14+) is the frame's tlbc_index: which thread's copy of the
  // bytecode it executes.
  std::uint32_t add(Address code, std::int32_t copy = 0);
  void read_all();  // all that were added, in five batches

  const Body& body(std::uint32_t index) const { return bodies_[index]; }
  // The byte offset of an instruction into its code, whichever copy of the bytecode it is in. `copy` is searched first,
  // and must have been added. std::nullopt if the instruction is in none of them. (-kCodeUnit, right before the code,
  // is an offset too: 3.11 and 3.12 state the instruction before the next one.)
  std::optional<std::int64_t> offset_of(Address instruction, std::uint32_t index, std::int32_t copy);
  std::vector<Code>& codes() { return codes_; }
  const std::vector<Code>& codes() const { return codes_; }
  std::size_t cut_strings() const { return cut_strings_; }
  // The number of code objects that miss a part, including mapped memory where a code object should be; objects known
  // to be of another type are not counted.
  std::size_t damaged() const;
  // A str's text. std::nullopt if it is unreadable or has more than `longest` characters. The caller must know that it
  // is a str.
  std::optional<std::string> text(Address string, std::size_t longest);
  // Its first characters, at most `most` of them. std::nullopt if it is unreadable.
  std::optional<std::string> beginning(Address string, std::size_t most);
  // One of its characters. std::nullopt if it has none there, or if that cannot be read.
  std::optional<char32_t> character(Address string, std::uint64_t index) const;
  // kMaxText is used up: some code objects have no names or lines.
  bool text_exhausted() const { return text_left_ == 0; }

 private:
  struct Text {
    std::string text;
    bool ok = false;
  };

  void read_structures();
  void read_types();
  void read_thread_local_code();
  std::optional<std::int64_t> offset_in_other_copy(Address instruction, const Body& body);
  void read_strings_and_tables();
  const Text& read_string(Address address);
  bool read_bytes(Address address, std::vector<std::uint8_t>& into);
  bool spend(std::size_t bytes);  // false: kMaxText is used up
  std::optional<Range> string_data(Address address, std::uint32_t& state, bool& cut) const;
  // Bytes of a character of a str with that state; 0: it has none.
  std::uint32_t character_width(std::uint32_t state) const;
  std::optional<Range> bytes_data(Address address) const;

  const target::Target& target_;
  const Layout& layout_;
  std::unordered_map<Address, std::uint32_t> index_;
  std::vector<Code> codes_;
  std::vector<Body> bodies_;
  std::vector<StructCopy> copies_;
  // By code and tlbc_index; only those that frames use.
  std::map<std::pair<std::uint32_t, std::int32_t>, Address> thread_local_instructions_;
  std::unordered_map<Address, Text> strings_;
  std::size_t cut_strings_ = 0;
  std::size_t text_left_;
  std::size_t searched_copies_left_ = kMaxSearchedCopies;
};

// The line of the instruction at a byte offset into the code; std::nullopt where CPython itself gives None.
std::optional<int> line_in(const Code& code, int minor_version, std::int64_t instruction);

// UTF-8 of `count` characters of 1, 2 or 4 bytes; surrogates and values beyond Unicode become U+FFFD.
std::string decode_characters(std::span<const std::byte> data, unsigned width);

}  // namespace rankstacks::python
