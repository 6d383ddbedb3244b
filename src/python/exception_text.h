// What str() gives of an exception, as far as memory tells it: nothing of the target runs.
//
//   class of the exception -> tp_str: whose is it?   KeyError's, OSError's, ...: as that one puts the fields together
//                                                    BaseException's: the arguments
//                                                    of a class written in Python: not known; the arguments as well
//
// The arguments are shown as Python shows them: str, int, bool, None, float, bytes, tuple, list, and exceptions. A
// value of another type inside of these is <type>.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "python/layouts.h"
#include "python/objects.h"
#include "python/values.h"

namespace rankstacks::python {

inline constexpr std::size_t kLongestMessage = 200;  // characters
inline constexpr int kMaxValueDepth = 8;             // of tuples in tuples, exceptions in exceptions
inline constexpr std::size_t kMaxValuesInAll = 65'536;

// repr() of a float, and of a str: from UTF-8 to UTF-8.
std::string repr_of_float(double value);
std::string repr_of_text(std::string_view utf8);

// Keeps references to all constructor arguments; owns none of them.
class ExceptionText {
 public:
  ExceptionText(const target::Target& target, const Layout& layout, ObjectReader& objects, CodeReader& text)
      : target_(target), layout_(layout), objects_(objects), text_(text) {}

  // The first kLongestMessage characters. std::nullopt if it has no arguments, if its only one is of a type that cannot
  // be shown, or if they cannot be read.
  std::optional<std::string> of(Address exception);
  // Of an exception that has not been made yet (up to 3.11): of its class, and its argument, or a tuple of them.
  std::optional<std::string> of_argument(Address type, Address argument);

  // How many bytes of an exception are read, for Target::prefetch.
  std::size_t size() const;

 private:
  // Whose __str__ a class has.
  enum class Form { kArguments, kKey, kOs, kSyntax, kDecode, kEncode, kGroup };
  class Text;

  bool add_exception(Text& text, Address exception, int depth);
  bool add_arguments(Text& text, const std::vector<Address>& items, std::size_t count, int depth);
  bool add_os(Text& text, Address number, Address said, Address file, Address other, int depth);
  bool add_syntax(Text& text, Address fields, int depth);
  bool add_codec(Text& text, Address fields, bool decodes, int depth);
  bool add_group(Text& text, Address fields, int depth);
  bool add_str(Text& text, Address object, int depth);
  bool add_repr(Text& text, Address object, int depth);
  void add_repr_or_type(Text& text, Address object, int depth);
  void add_items(Text& text, std::string_view ends, const std::vector<Address>& items, std::size_t count, int depth);
  bool add_repr_of_exception(Text& text, Address exception, int depth);
  bool add_bytes(Text& text, Address object);
  bool add_string(Text& text, Address string, bool quoted);

  Address word_at(Address address) const { return target_.read_value<Address>(address).value_or(0); }
  Address fields_of(Address exception) const;
  Address type_of(Address object) const { return word_at(object + layout_.object_type); }
  std::string name_of(Address type) const;
  std::string type_in_brackets(Address object) const;
  bool is_builtin(Address object, std::string_view name);
  std::optional<std::vector<Address>> items_of(Address tuple, std::size_t& count);
  std::optional<std::vector<Address>> list_of(Address list, std::size_t& count);
  std::vector<Address> first_items(Address items, std::size_t count);
  Address owner_of(Address type, std::size_t slot);
  Form form_of(Address type);

  const target::Target& target_;
  const Layout& layout_;
  ObjectReader& objects_;
  CodeReader& text_;
  std::unordered_map<Address, Form> forms_;  // by class
  std::size_t values_left_ = kMaxValuesInAll;
};

}  // namespace rankstacks::python
