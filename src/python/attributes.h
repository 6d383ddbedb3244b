// Attributes of instances of classes that are written in Python, as they lie in the instance or its dict:
//
//   up to 3.10   object -> dict -> keys, which instances of a class may share, and the values beside them
//   3.11, 3.12   before the object: a pointer to its values, whose keys its class has; or to its dict
//   3.13+        the values are a part of the object, until it has a dict of its own making
#pragma once

#include <optional>
#include <string_view>

#include "python/objects.h"
#include "python/values.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxAttributes = 256;   // of one instance

// Borrows all that it is given.
class AttributeReader {
 public:
  AttributeReader(const Target& target, const Layout& layout, ObjectReader& objects, CodeReader& text) : target_(target), layout_(layout), objects_(objects), text_(text) {}

  // The object that the instance has under this name. 0: it has none. Nothing: that cannot be read, or it is no instance of such a class.
  std::optional<Address> find(Address instance, std::string_view name);

 private:
  std::optional<std::vector<DictEntry>> all_of(Address instance, Address type);
  std::optional<std::vector<DictEntry>> of_dict(Address dict);
  std::optional<std::vector<DictEntry>> of_values(Address type, Address values);

  const Target& target_;
  const Layout& layout_;
  ObjectReader& objects_;
  CodeReader& text_;
};

}  // namespace rankstacks::python
