#include "python/variable_names.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "known/known_programs.h"
#include "known/places.h"

namespace rankstacks::python {
namespace {

constexpr std::string_view kCounterWords[] = {
    "step", "iter", "iteration", "epoch", "batch", "micro",   "microbatch", "idx",  "index", "i",   "j",       "k",
    "n",    "it",   "t",         "round", "count", "counter", "cnt",        "tick", "chunk", "cur", "current", "phase"};
// Words in a name that make it a limit, a size, or some other number of the job that does not change.
constexpr std::string_view kOtherWords[] = {"num",  "max", "total", "size", "per",  "every", "len", "world",
                                            "rank", "dim", "bytes", "seed", "port", "pid",   "fd"};

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

bool is_counter_name(std::string_view name) {
  bool counts = false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('_', begin), name.size());
    std::string word(name.substr(begin, end - begin));
    for (char& c : word) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (is_one_of(kOtherWords, word)) return false;
    counts = counts || is_one_of(kCounterWords, word);
    begin = end + 1;
  }
  return counts;
}

bool is_c10d_number(std::string_view name) {
  constexpr std::string_view kNames[] = {"src", "dst", "tag", "group_src", "group_dst"};
  return is_one_of(kNames, name);
}

}  // namespace rankstacks::python
