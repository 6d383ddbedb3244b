// Python objects as `dump --locals` shows them. They are kept as values until they are printed, so that redaction takes
// secrets out of the strings themselves: quotes and escapes, and the cut at the longest repr, would hide some of them.
//
//     {"a": [1, <P at 0x7f10>]}   kDict ── kString "a"
//                                      └── kList ── kWord "1"
//                                                └── kWord "<P at 0x7f10>"
//
// The form is that of py-spy 0.4 (format_variable() in its src/python_data_access.rs), which tests compare with it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/types.h"

namespace rankstacks {

struct PythonValue {
  enum class Kind {
    kWord,    // `text` is shown as it is: a number, None, the type and address of an object
    kString,  // `text` is the beginning of the str, in UTF-8
    kList,
    kTuple,
    kDict,  // `items` are keys and values in turn
  };
  Kind kind = Kind::kWord;
  std::string text;
  std::vector<PythonValue> items;
  bool cut = false;  // the str, or the container, has more than that
  bool operator==(const PythonValue&) const = default;
};

struct LocalVariable {
  std::string name;
  Address address = 0;  // of the object
  bool is_argument = false;
  PythonValue value;
  bool operator==(const LocalVariable&) const = default;
};

// The variables of one Python frame, in the order of its code: the arguments come first.
struct FrameLocals {
  std::size_t frame = 0;  // index into ThreadSnapshot::frames
  std::vector<LocalVariable> variables;
  bool operator==(const FrameLocals&) const = default;
};

// With about `longest` characters at most; "..." is in the place of what is left out.
std::string repr_of(const PythonValue& value, std::ptrdiff_t longest);

// The shortest decimal number that is this one, never with an exponent: "1", "0.1", "NaN", "inf".
std::string repr_of_number(double value);

}  // namespace rankstacks
