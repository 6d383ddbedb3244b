// The modules that an interpreter has loaded, and their globals: interpreter -> sys.modules -> a module -> its dict.
#pragma once

#include <map>
#include <string_view>

#include "python/objects.h"
#include "python/running.h"
#include "python/values.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxModules = 65'536, kMaxGlobals = 65'536;

// Keeps references to all constructor arguments.
class LoadedModules {
 public:
  LoadedModules(const target::Target& target, const Runtime& runtime, ObjectReader& objects, CodeReader& text);

  // The dict of a module's globals; 0 if there is no such module, or if it cannot be read.
  Address globals_of(std::string_view module);
  // The value of an entry of a dict with str keys; 0 if it was not found.
  Address entry(Address dict, std::string_view name, std::size_t limit);

 private:
  Address find_modules(Address runtime) const;
  bool is_string(Address object, std::string_view text);

  const target::Target& target_;
  const Layout& layout_;
  const Address hash_secret_;
  ObjectReader& objects_;
  CodeReader& text_;
  const Address modules_;                        // sys.modules; 0: not known
  std::map<std::string_view, Address> globals_;  // by module
};

}  // namespace rankstacks::python
