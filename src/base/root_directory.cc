#include "base/root_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <memory>

namespace rankstacks {
inline namespace base {
namespace {

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};

}  // namespace

std::optional<RootDirectory> RootDirectory::open(const std::string& path) {
  RootDirectory root;
  root.root_ = FileDescriptor(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!root.root_.is_open() || fstat(root.root_.get(), &status) != 0) return std::nullopt;
  root.identity_ = {status.st_dev, status.st_ino};
  struct stat own {};
  root.is_own_ = stat("/", &own) == 0 && own.st_dev == status.st_dev && own.st_ino == status.st_ino;
  return root;
}

FileDescriptor RootDirectory::open_below(const std::string& path, int flags) const {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const long opened = syscall(SYS_openat2, root_.get(), path.c_str(), &how, sizeof how);
  // A container's filter of system calls answers EPERM to those that it does not know.
  if (opened < 0 && (errno == ENOSYS || errno == EPERM) && is_own_)
    return FileDescriptor(::open(path.c_str(), flags | O_CLOEXEC));
  return FileDescriptor(static_cast<int>(opened));
}

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
