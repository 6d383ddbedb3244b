#include "known/counter_names.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"

namespace rankstacks::known {
namespace {

constexpr std::string_view kCounterWords[] = {
    "step", "iter", "iteration", "epoch", "batch", "micro",   "microbatch", "idx",  "index", "i",   "j",       "k",
    "n",    "it",   "t",         "round", "count", "counter", "cnt",        "tick", "chunk", "cur", "current", "phase"};
constexpr std::string_view kPositionWords[] = {
    "number", "sample", "example", "item",     "task",     "file",  "shard",    "page",     "block",
    "part",   "row",    "record",  "document", "sequence", "image", "frame",    "episode",  "trial",
    "game",   "done",   "offset",  "pos",      "line",     "token", "position", "processed"};
// Words in a name that make it a limit, a size, or some other number of the job that does not change.
constexpr std::string_view kOtherWords[] = {"num",  "max", "total", "size", "per",  "every", "len", "world",
                                            "rank", "dim", "bytes", "seed", "port", "pid",   "fd"};
constexpr std::string_view kAttemptWords[] = {"try",   "tries",   "attempt", "attempts",
                                              "retry", "retries", "poll",    "polls"};

// In lower case, without the underscores between them.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('_', begin), name.size());
    std::string& word = words.emplace_back(name.substr(begin, end - begin));
    for (char& c : word) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    begin = end + 1;
  }
  return words;
}

}  // namespace

bool is_counter_name(std::string_view name) {
  bool counts = false;
  for (const std::string& word : words_of(name)) {
    if (is_one_of(word, kOtherWords)) return false;
    counts = counts || is_one_of(word, kCounterWords);
  }
  return counts;
}

bool is_position_name(std::string_view name) {
  bool counts = false;
  for (const std::string& word : words_of(name)) {
    if (is_one_of(word, kOtherWords) || is_one_of(word, kAttemptWords)) return false;
    counts = counts || is_one_of(word, kPositionWords);
  }
  return counts;
}

}  // namespace rankstacks::known
