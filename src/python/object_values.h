// Reads a target's Python objects as values that can be printed: int, float, bool, None, str, list, tuple and dict with
// their subclasses, and numpy's scalars. Of any other object the type and the address are stated.
//
// Where the fields are: layouts.h; Include/cpython/listobject.h (ob_size, ob_item, as in tuples) and floatobject.h
// (ob_fval behind the head), the same in every CPython 3; numpy/arrayscalars.h (obval behind the head).
#pragma once

#include <cstdint>

#include "model/python_value.h"
#include "python/layouts.h"
#include "python/objects.h"
#include "python/values.h"

namespace rankstacks::python {

inline constexpr std::ptrdiff_t kLongestRepr = 1024;  // whatever is asked for; bounds the depth of containers
inline constexpr std::size_t kMaxOfString = 4096;     // characters read, so that no secret in it is cut
// Of lists within lists most may be left out of the repr after they were read.
inline constexpr std::size_t kMaxObjectsOfVariable = 8192;
inline constexpr std::size_t kMaxObjectsInAll = 1u << 20;     // of one process
inline constexpr std::size_t kMaxBytesOfStrings = 64u << 20;  // of one process

// Keeps references to all constructor arguments; owns none of them. Nothing in the target's memory is trusted: lists
// that contain themselves end where their repr does.
class ValueReader {
 public:
  ValueReader(const target::Target& target, const Layout& layout, ObjectReader& objects, CodeReader& text)
      : target_(target), layout_(layout), objects_(objects), text_(text) {}

  // As much of it as a repr of `longest` characters shows.
  PythonValue read(Address object, std::ptrdiff_t longest);
  // One of the limits is used up, or the target's time is over: further values are "...".
  bool exhausted() const { return objects_left_ == 0 || bytes_left_ == 0 || target_.expired(); }

 private:
  PythonValue read_within(Address object, std::ptrdiff_t longest);
  PythonValue read_int(Address object, bool is_bool) const;
  PythonValue read_string(Address object);
  PythonValue read_sequence(Address object, PythonValue::Kind kind, std::ptrdiff_t longest);
  PythonValue read_dict(Address object, std::ptrdiff_t longest);
  std::optional<PythonValue> read_numpy(Address object, std::string_view type) const;

  const target::Target& target_;
  const Layout& layout_;
  ObjectReader& objects_;
  CodeReader& text_;
  std::size_t of_variable_left_ = kMaxObjectsOfVariable;
  std::size_t objects_left_ = kMaxObjectsInAll, bytes_left_ = kMaxBytesOfStrings;
};

}  // namespace rankstacks::python
