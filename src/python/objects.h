// Python objects copied out of a target: code objects with their strings and line tables, in batches.
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

inline constexpr std::size_t kMaxString = 1u << 20;       // bytes of a str's data; more is cut off
inline constexpr std::size_t kMaxLineTable = 4u << 20;    // bytes; no real one comes near
inline constexpr std::size_t kMaxText = 256u << 20;       // bytes of all names and line tables of a process: torch's are 10 MB

inline constexpr std::size_t kMaxSearchedCopies = 1u << 20;   // entries of arrays of copies looked through for frames that change theirs
inline constexpr std::int64_t kCodeUnit = 2;              // bytes per instruction word, from 3.6

// A structure copied from the target, read field by field. Fields outside it read as 0.
class StructCopy {
 public:
  bool read(const Target& target, Address address, std::size_t size) {
    bytes_.resize(size);
    complete_ = target.read_exact(address, bytes_);
    return complete_;
  }
  bool complete() const { return complete_; }

  template <class T>
  T get(Offset offset) const {
    T value{};
    if (complete_ && offset != kAbsent && offset + sizeof(T) <= bytes_.size()) std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

 private:
  std::vector<std::byte> bytes_;
  bool complete_ = false;
};

// The size of a copy that holds all of `fields` (each 8 bytes wide at most).
std::size_t span_of(std::initializer_list<Offset> fields);

// The code objects that the frames of a target name, each read once.
class CodeReader {
 public:
  enum class Kind {
    kCode,
    kNone,         // None: in 3.13+ a frame that runs no Python code
    kOther,        // some other object, or no object at all: the frame that names it is damaged
    kUnreadable,   // mapped, but not to be had (a core without that page): nothing speaks against the frame
  };

  // What a frame needs to know of its code besides Code.
  struct Body {
    Kind kind = Kind::kUnreadable;
    Address instructions = 0;              // of the first one; 0: up to 3.10
    Address copies = 0;                    // free-threaded 3.14+: struct _PyCodeArray, its copies for threads; 0: none
    std::int64_t size = 0;                 // of the bytecode, in bytes (3.11+)
    std::int64_t first_traceable = 0;      // byte offset: before it a frame is still being set up (3.11+)
    // Of its variables (layouts.h); 0: this version has none.
    Address global_names = 0, slot_names = 0, cell_names = 0, free_names = 0, slot_kinds = 0;
    std::int32_t slot_count = 0;           // 3.11+
    std::int32_t stack_size = 0;           // slots of its value stack
    Address exception_table = 0;           // bytes; 0: up to 3.10
  };

  CodeReader(const Target& target, const Layout& layout, std::size_t most_text = kMaxText) : target_(target), layout_(layout), text_left_(most_text) {}

  // Index into codes(). `copy`, free-threaded 3.14+: which thread's copy of the bytecode a frame executes, its tlbc_index.
  std::uint32_t add(Address code, std::int32_t copy = 0);
  void read_all();                         // all that were added, in five batches

  const Body& body(std::uint32_t index) const { return bodies_[index]; }
  // The byte offset of an instruction into its code, whichever copy of it that lies in; `copy` is looked at first, and must have been added.
  // Nothing: it lies in none. (-kCodeUnit, right before the code, is an offset too: 3.11 and 3.12 name the instruction before the next one.)
  std::optional<std::int64_t> offset_of(Address instruction, std::uint32_t index, std::int32_t copy);
  std::vector<Code>& codes() { return codes_; }
  const std::vector<Code>& codes() const { return codes_; }
  std::size_t cut_strings() const { return cut_strings_; }
  std::size_t damaged() const;             // code objects, or what is mapped where one should be, that miss a part; nothing that is no code object
  // A str's text; nothing: unreadable, or of more than `longest` characters. That it is a str is for the caller to know.
  std::optional<std::string> text(Address string, std::size_t longest);
  // Its first characters, `most` of them; nothing: unreadable.
  std::optional<std::string> beginning(Address string, std::size_t most);
  bool text_exhausted() const { return text_left_ == 0; }   // kMaxText is used up: code objects are without names or lines

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
  bool spend(std::size_t bytes);   // false: kMaxText is used up
  std::optional<Range> string_data(Address address, std::uint32_t& state, bool& cut) const;
  std::optional<Range> bytes_data(Address address) const;

  const Target& target_;
  const Layout& layout_;
  std::unordered_map<Address, std::uint32_t> index_;
  std::vector<Code> codes_;
  std::vector<Body> bodies_;
  std::vector<StructCopy> copies_;
  std::map<std::pair<std::uint32_t, std::int32_t>, Address> thread_local_instructions_;   // by code and tlbc_index; of those alone that frames name
  std::unordered_map<Address, Text> strings_;
  std::size_t cut_strings_ = 0;
  std::size_t text_left_;
  std::size_t searched_copies_left_ = kMaxSearchedCopies;
};

// The line of the instruction at a byte offset into the code; nothing where CPython itself says None.
std::optional<int> line_in(const Code& code, int minor_version, std::int64_t instruction);

// UTF-8 of `count` characters of 1, 2 or 4 bytes; surrogates and values beyond Unicode become U+FFFD.
std::string decode_characters(std::span<const std::byte> data, unsigned width);

}  // namespace rankstacks::python
