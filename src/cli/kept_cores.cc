#include "cli/kept_cores.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <ctime>
#include <map>
#include <set>
#include <thread>

#include "base/deadline.h"
#include "base/directory_stream.h"
#include "base/text.h"
#include "watch/report_store.h"

namespace rankstacks::cli {
namespace {

constexpr std::uint64_t kMaxKeptFree = std::uint64_t{4} << 30;
constexpr std::chrono::seconds kMaxWait{5};  // for the lock, which is held for milliseconds
// --within is an hour at most; in seconds.
constexpr time_t kOldTemporary = 2 * 3600;
constexpr std::size_t kMaxList = 4u << 20;
constexpr std::string_view kHead = "# What rankstacks core-handler has written here and removes when it is too much.\n";
constexpr const char* kEndings[] = {".core.zst", ".core", ".full-core"};

// The name of a file without its ending; empty: it is none of the handler's.
std::string base_of(const std::string& name) {
  if (name.starts_with('.') || contains(name, '/')) return "";
  for (const std::string_view ending : kEndings)
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  return "";
}

// ".HOST-PID-TIME.core.zst.PID": a file that is being written, or that a handler which was ended has left.
bool is_temporary(std::string_view name) {
  if (!name.starts_with('.')) return false;
  const auto numbered = [&](char before) {  // takes "-4711" from the end
    const std::size_t at = name.find_last_not_of("0123456789");
    if (at == std::string_view::npos || at + 1 == name.size() || name[at] != before) return false;
    name = name.substr(0, at);
    return true;
  };
  if (!numbered('.')) return false;
  const std::string base = base_of(std::string(name.substr(1)));
  name = base;
  return numbered('-') && numbered('-') && !name.empty();
}

void remove_old_temporaries(const FileDescriptor& directory) {
  const int again = openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const DirectoryStream stream(again < 0 ? nullptr : fdopendir(again));
  while (const dirent* entry = stream ? readdir(stream.get()) : nullptr) {
    struct stat status {};
    if (is_temporary(entry->d_name) && fstatat(directory.get(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(status.st_mode) && status.st_mtime < time(nullptr) - kOldTemporary)
      unlinkat(directory.get(), entry->d_name, 0);
  }
}

}  // namespace

// The list, locked as long as this lives.
class KeptCores::List {
 public:
  static Result<List> open(const FileDescriptor& directory, const std::string& called) {
    const Deadline deadline = Deadline::after(kMaxWait);
    List list(directory);
    const auto error = [&](const char* what, int why) {
      return fail({.code = ErrorCode::kUnreadable,
                   .subject = called + "/" + kListName,
                   .what = what,
                   .os_errno = why,
                   .hint = "older cores are not removed: look at this file, and remove it"});
    };
    list.file_ = FileDescriptor(
        openat(directory.get(), kListName, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!list.file_.is_open()) return error("cannot be opened", errno);
    struct stat status {};
    if (fstat(list.file_.get(), &status) != 0) return error("cannot be read", errno);
    // It decides what is removed.
    if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 ||
        status.st_nlink != 1)
      return error("is not a file of this user's alone", 0);
    while (flock(list.file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return error("cannot be locked", errno);
      if (deadline.passed()) return error("is locked by another handler for too long", 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    list.read();
    return list;
  }

  std::vector<File>& files() { return files_; }

  void write() {
    std::string text(kHead);
    for (const File& file : files_) text += fmt::format("{} {}\n", file.inode, file.name);
    if (pwrite(file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
        ftruncate(file_.get(), static_cast<off_t>(text.size())) != 0)
      return;  // lines that remain at the end name files that are gone
  }

  // Whether this is still the file that was written.
  bool is_there(File& file) const {
    struct stat status {};
    if (fstatat(directory_->get(), file.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode) ||
        status.st_ino != file.inode)
      return false;
    file.bytes = static_cast<std::uint64_t>(status.st_blocks) * 512;
    return true;
  }

 private:
  explicit List(const FileDescriptor& directory) : directory_(&directory) {}

  void read() {
    std::set<std::string> names;
    std::string text(kMaxList, '\0');
    const ssize_t n = pread(file_.get(), text.data(), text.size(), 0);
    text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      if (end == std::string::npos) break;  // a handler was ended while it wrote this line
      File file;
      const std::size_t blank = std::min(text.find(' ', at), end);
      const bool numbered =
          std::from_chars(text.data() + at, text.data() + blank, file.inode).ptr == text.data() + blank;
      if (numbered && blank < end) {
        file.name = text.substr(blank + 1, end - blank - 1);
        file.base = base_of(file.name);
        if (!file.base.empty() && names.insert(file.name).second && is_there(file)) files_.push_back(std::move(file));
      }
      at = end + 1;
    }
  }

  const FileDescriptor* directory_;
  FileDescriptor file_;
  std::vector<File> files_;
};

KeptCores::KeptCores(const FileDescriptor& directory, std::string called, const KeepLimits& limits)
    : directory_(directory), called_(std::move(called)), limits_(limits) {}

KeptCores::Space KeptCores::space() const {
  struct statvfs status {};
  if (fstatvfs(directory_.get(), &status) != 0) return {~std::uint64_t{0}, ~std::uint64_t{0}};
  return {status.f_frsize * status.f_bavail, status.f_frsize * status.f_blocks};
}

std::uint64_t KeptCores::missing(std::uint64_t bytes) const {
  const Space now = space();
  const std::uint64_t wanted = bytes + limits_.keep_free.value_or(std::min(now.total / 20, kMaxKeptFree));
  return wanted > now.available ? wanted - now.available : 0;
}

void KeptCores::remove_beyond(List& list, const std::string& base, std::uint64_t bytes) const {
  remove_old_temporaries(directory_);
  // One event for watch's quota is one process, in the order of the list.
  std::map<std::string, std::string> events;
  const auto event = [&](const std::string& of) {
    return events.try_emplace(of, fmt::format("{:09}", events.size())).first->second;
  };
  std::vector<watch::StoredFile> stored;
  for (const File& file : list.files()) stored.push_back({file.name, file.bytes, event(file.base)});
  if (bytes > 0 || !events.contains(base)) stored.push_back({"", bytes, event(base)});
  const auto removed = watch::beyond_quota(
      std::move(stored),
      {.keep = limits_.keep, .max_bytes = limits_.max_bytes.value_or(space().total / 10), .to_free = missing(bytes)});
  for (const std::string& name : removed) {
    const auto file =
        std::find_if(list.files().begin(), list.files().end(), [&](const File& f) { return f.name == name; });
    if (file == list.files().end()) continue;
    if (list.is_there(*file) && unlinkat(directory_.get(), name.c_str(), 0) != 0 && errno != ENOENT) continue;
    list.files().erase(file);
  }
  list.write();
}

Result<void> KeptCores::make_room(const std::string& base, std::uint64_t bytes, Size size) const {
  auto list = List::open(directory_, called_);
  if (list) remove_beyond(*list, base, bytes);
  const std::uint64_t available = space().available;
  if (size == Size::kFull ? missing(bytes) > 0 : bytes > available)
    return fail(
        {.code = ErrorCode::kLimit,
         .subject = called_ + "/" + base,
         .what = fmt::format("no room for the {} core: {} MB are free", size == Size::kFull ? "full" : "small",
                             available >> 20),
         .hint = size == Size::kFull ? "make room there; --keep-free says how much is to be left" : "make room there"});
  if (!list) return fail(list.error());
  return {};
}

Result<void> KeptCores::add(const std::string& base, const std::string& name) const {
  auto list = List::open(directory_, called_);
  if (!list) return fail(list.error());
  std::erase_if(list->files(), [&](const File& f) { return f.name == name; });
  struct stat status {};
  if (fstatat(directory_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return fail(
        {.code = ErrorCode::kUnreadable, .subject = called_ + "/" + name, .what = "is gone", .os_errno = errno});
  list->files().push_back({status.st_ino, base, name, static_cast<std::uint64_t>(status.st_blocks) * 512});
  remove_beyond(*list, base, 0);
  return {};
}

}  // namespace rankstacks::cli
