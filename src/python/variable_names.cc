#include "python/variable_names.h"

#include <string>

#include "base/text.h"
#include "known/known_programs.h"
#include "known/places.h"

namespace rankstacks::python {

bool is_user_file(std::string_view file) {
  if (file.starts_with('<')) return !file.starts_with("<frozen ");
  return !known::is_library_file(file);
}

bool is_c10d_file(std::string_view file) { return known::is_file_of(known::Place::kC10d, file); }

bool is_c10d_number(std::string_view name) {
  constexpr std::string_view kNames[] = {"src", "dst", "tag", "group_src", "group_dst"};
  return is_one_of(name, kNames);
}

}  // namespace rankstacks::python
