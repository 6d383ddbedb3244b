// Reads the attributes of instances of classes written in Python, from the instance itself or from its dict:
//
//   up to 3.10   object -> dict -> keys (possibly shared by instances of a class) and a separate array of values
//   3.11, 3.12   before the object: a pointer to its values, whose keys its class has; or a pointer to its dict
//   3.13+        the values are a part of the object, until the object gets a dict of its own
#pragma once

#include <optional>
#include <string_view>

#include "python/objects.h"
#include "python/values.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxAttributes = 256;  // of one instance

// Keeps references to all constructor arguments; owns none of them.
class AttributeReader {
 public:
  AttributeReader(const target::Target& target, const Layout& layout, ObjectReader& objects, CodeReader& text)
      : target_(target), layout_(layout), objects_(objects), text_(text) {}

  // The value of the attribute `name`; 0 if the instance has no such attribute. std::nullopt if it cannot be read, or
  // if `instance` is not an instance of such a class.
  std::optional<Address> find(Address instance, std::string_view name);

 private:
  std::optional<std::vector<DictEntry>> all_of(Address instance, Address type);
  std::optional<std::vector<DictEntry>> of_dict(Address dict);
  std::optional<std::vector<DictEntry>> of_values(Address type, Address values);

  const target::Target& target_;
  const Layout& layout_;
  ObjectReader& objects_;
  CodeReader& text_;
};

}  // namespace rankstacks::python
