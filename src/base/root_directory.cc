#include "base/root_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <string_view>

namespace rankstacks {
inline namespace base {
namespace {

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};

}  // namespace

FileDescriptor walk_below(const FileDescriptor& root, const std::string& path) {
  constexpr int kMaxLinks = 40;  // as the kernel's (path_resolution(7))
  const auto failed = [](int why) {
    errno = why;
    return FileDescriptor();
  };
  const auto names_of = [](std::string_view text) {
    std::vector<std::string> names;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('/'), text.size());
      if (end > 0 && text.substr(0, end) != ".") names.emplace_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    std::reverse(names.begin(), names.end());
    return names;
  };
  std::vector<std::string> left = names_of(path);  // the next is the last
  std::vector<FileDescriptor> reached;             // below the root
  int links = 0;
  while (!left.empty()) {
    const std::string name = std::move(left.back());
    left.pop_back();
    if (name == "..") {
      if (!reached.empty()) reached.pop_back();
      continue;
    }
    const FileDescriptor& here = reached.empty() ? root : reached.back();
    FileDescriptor next(openat(here.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (!next.is_open() || fstat(next.get(), &status) != 0) return failed(errno);
    if (!S_ISLNK(status.st_mode)) {
      if (!left.empty() && !S_ISDIR(status.st_mode)) return failed(ENOTDIR);
      reached.push_back(std::move(next));
      continue;
    }
    if (++links > kMaxLinks) return failed(ELOOP);
    std::string text(PATH_MAX, '\0');
    const ssize_t size = readlinkat(next.get(), "", text.data(), text.size());
    if (size <= 0) return failed(size == 0 ? ENOENT : errno);
    text.resize(static_cast<std::size_t>(size));
    if (text.front() == '/') reached.clear();
    for (std::string& one : names_of(text)) left.push_back(std::move(one));
  }
  if (reached.empty()) return FileDescriptor(openat(root.get(), ".", O_PATH | O_CLOEXEC));
  return std::move(reached.back());
}

std::optional<RootDirectory> RootDirectory::open(const std::string& path) {
  RootDirectory root;
  root.root_ = FileDescriptor(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!root.root_.is_open() || fstat(root.root_.get(), &status) != 0) return std::nullopt;
  root.identity_ = {status.st_dev, status.st_ino};
  return root;
}

FileDescriptor RootDirectory::open_below(const std::string& path, int flags) const {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const long opened = syscall(SYS_openat2, root_.get(), path.c_str(), &how, sizeof how);
  // A container's filter of system calls answers EPERM to those that it does not know.
  if (opened >= 0 || (errno != ENOSYS && errno != EPERM)) return FileDescriptor(static_cast<int>(opened));
  FileDescriptor place = walk_below(root_, path);
  if (!place.is_open() || (flags & O_PATH) != 0) return place;
  return FileDescriptor(openat(place.get(), ".", flags | O_CLOEXEC));  // only directories are opened otherwise
}

FileDescriptor RootDirectory::place(const std::string& path) const { return open_below(path, O_PATH); }

bool RootDirectory::has(const std::string& path) const { return open_below(path, O_PATH).is_open(); }

std::optional<std::string> RootDirectory::read(const std::string& path, std::size_t most) const {
  const FileDescriptor place = open_below(path, O_PATH);
  if (!place.is_open()) return std::nullopt;
  const auto file = open_regular_file(place);
  if (!file) return std::nullopt;
  std::string text(most, '\0');
  std::size_t used = 0;
  while (used < most) {
    const ssize_t n = ::read(file->descriptor.get(), text.data() + used, most - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
  }
  text.resize(used);
  return text;
}

std::vector<std::string> RootDirectory::names(const std::string& path, std::size_t most) const {
  FileDescriptor opened = open_below(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
  if (!opened.is_open()) return {};
  const int copy = fcntl(opened.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return {};
  const std::unique_ptr<DIR, DirectoryCloser> directory(fdopendir(copy));
  std::vector<std::string> names;
  if (!directory) {
    ::close(copy);
    return names;
  }
  while (names.size() < most) {
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    names.emplace_back(entry->d_name);
  }
  return names;
}

}  // namespace base
}  // namespace rankstacks
