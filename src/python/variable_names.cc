#include "python/variable_names.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "known/known_programs.h"
#include "known/places.h"

namespace rankstacks::python {
namespace {

template <std::size_t N>
bool is_one_of(const std::string_view (&words)[N], std::string_view word) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

}  // namespace

bool is_user_file(std::string_view file) {
  if (file.starts_with('<')) return !file.starts_with("<frozen ");
  return !known::is_library_file(file);
}

bool is_c10d_file(std::string_view file) { return known::is_file_of(known::Place::kC10d, file); }

bool is_c10d_number(std::string_view name) {
  constexpr std::string_view kNames[] = {"src", "dst", "tag", "group_src", "group_dst"};
  return is_one_of(kNames, name);
}

}  // namespace rankstacks::python
