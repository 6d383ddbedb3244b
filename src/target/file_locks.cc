#include "target/file_locks.h"

#include <algorithm>
#include <charconv>

namespace rankstacks::target {
namespace {

using Kind = FileLock::Kind;

std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

template <class T>
bool is_number(std::string_view word, T& value, int base = 10) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  return error == std::errc() && end == word.data() + word.size() && !word.empty();
}

std::optional<Kind> kind_of(std::string_view word) {
  if (word == "FLOCK") return Kind::kFlock;
  if (word == "POSIX") return Kind::kRecord;
  if (word == "OFDLCK") return Kind::kOpenFile;
  return std::nullopt;
}

// "fe:00:10952738"
std::optional<std::uint64_t> inode_in(std::string_view file) {
  const std::size_t first = file.find(':'),
                    second = first == std::string_view::npos ? first : file.find(':', first + 1);
  unsigned major = 0, minor = 0;
  std::uint64_t inode = 0;
  if (second == std::string_view::npos || !is_number(file.substr(0, first), major, 16) ||
      !is_number(file.substr(first + 1, second - first - 1), minor, 16) || !is_number(file.substr(second + 1), inode))
    return std::nullopt;
  return inode;
}

// flock(2) and fcntl(2) locks do not conflict with each other; the two kinds of fcntl(2) locks do (locks(7) of the
// kernel's documentation).
bool same_family(Kind a, Kind b) { return (a == Kind::kFlock) == (b == Kind::kFlock); }

bool in_the_way(const FileLock& held, const FileLock& awaited) {
  return !held.waits && same_family(held.kind, awaited.kind) && held.file == awaited.file &&
         (held.exclusive || awaited.exclusive) && held.first <= awaited.last && awaited.first <= held.last;
}

}  // namespace

std::optional<std::uint64_t> inode_of(const FileLock& lock) { return inode_in(lock.file); }

std::optional<FileLock> parse_file_lock(std::string_view line) {
  FileLock lock;
  std::uint64_t id = 0;
  std::string_view word = take_word(line);
  if (!word.ends_with(':') || !is_number(word.substr(0, word.size() - 1), id)) return std::nullopt;
  word = take_word(line);
  if (word == "->") {
    lock.waits = true;
    word = take_word(line);
  }
  const auto kind = kind_of(word);
  take_word(line);  // ADVISORY
  const std::string_view mode = take_word(line);
  if (!kind || (mode != "READ" && mode != "WRITE")) return std::nullopt;
  lock.kind = *kind;
  lock.exclusive = mode == "WRITE";
  if (!is_number(take_word(line), lock.pid)) return std::nullopt;
  lock.file = take_word(line);
  if (!inode_in(lock.file)) return std::nullopt;
  if (!is_number(take_word(line), lock.first)) return std::nullopt;
  const std::string_view last = take_word(line);
  if (last == "EOF") lock.last = UINT64_MAX;
  else if (!is_number(last, lock.last)) return std::nullopt;
  return lock;
}

std::vector<FileLock> parse_file_locks(std::string_view text) {
  std::vector<FileLock> locks;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (auto lock = parse_file_lock(line)) locks.push_back(std::move(*lock));
  }
  return locks;
}

std::vector<FileLock> awaited_locks(const std::vector<FileLock>& all, Kind kind, Pid pid,
                                    std::optional<std::uint64_t> inode) {
  std::vector<FileLock> awaited;
  if (kind == Kind::kOpenFile && !inode) return awaited;
  for (const FileLock& lock : all)
    if (lock.waits && lock.kind == kind && (kind == Kind::kOpenFile || lock.pid == pid) &&
        (!inode || inode_of(lock) == inode))
      awaited.push_back(lock);
  const bool one_file = std::all_of(awaited.begin(), awaited.end(),
                                    [&](const FileLock& lock) { return lock.file == awaited.front().file; });
  return one_file ? awaited : std::vector<FileLock>{};
}

std::vector<FileLock> locks_in_the_way(const std::vector<FileLock>& all, const std::vector<FileLock>& awaited) {
  std::vector<FileLock> held;
  for (const FileLock& lock : all)
    if (std::any_of(awaited.begin(), awaited.end(), [&](const FileLock& wanted) { return in_the_way(lock, wanted); }))
      held.push_back(lock);
  return held;
}

}  // namespace rankstacks::target
