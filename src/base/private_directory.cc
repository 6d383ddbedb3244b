#include "base/private_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/directory_stream.h"
#include "base/whole_file.h"

namespace rankstacks {
inline namespace base {
namespace {

constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

bool is_own_regular(int descriptor, struct stat& status) {
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid();
}

}  // namespace

Result<PrivateDirectory> PrivateDirectory::open(const std::string& path) {
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return fail({.code = ErrorCode::kPermission, .subject = path, .what = "cannot be made", .os_errno = errno});
  FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!directory.is_open() || fstat(directory.get(), &status) != 0)
    return fail({.code = ErrorCode::kPermission, .subject = path, .what = "cannot be opened", .os_errno = errno});
  if (status.st_uid != geteuid() || (status.st_mode & kOthers) != 0)
    return fail(
        {.code = ErrorCode::kPermission,
         .subject = path,
         .what = fmt::format("expected a directory of user {} with mode 0700, found one of user {} with mode {:04o}",
                             geteuid(), status.st_uid, status.st_mode & 07777u),
         .hint = "remove it, or set XDG_RUNTIME_DIR to a directory of your own"});
  return PrivateDirectory(path, std::move(directory));
}

Result<PrivateDirectory> PrivateDirectory::of_user() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  if (runtime != nullptr && *runtime == '/' && stat(runtime, &status) == 0 && S_ISDIR(status.st_mode) &&
      status.st_uid == geteuid() && (status.st_mode & kOthers) == 0)
    return open(std::string(runtime) + "/rankstacks");
  // Anybody may take the name below /tmp first; /run is root's own.
  constexpr const char* kRun = "/run";
  if (geteuid() == 0 && lstat(kRun, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == 0 &&
      (status.st_mode & (S_IWGRP | S_IWOTH)) == 0)
    if (auto directory = open(fmt::format("{}/rankstacks", kRun))) return directory;
  return open(fmt::format("/tmp/rankstacks-{}", geteuid()));
}

Result<FileLock> PrivateDirectory::lock(const std::string& name, const Deadline& deadline) const {
  constexpr std::chrono::milliseconds kPause{10};
  FileDescriptor file(openat(directory_.get(), name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
                             S_IRUSR | S_IWUSR));
  struct stat status {};
  if (!file.is_open() || !is_own_regular(file.get(), status))
    return fail(
        {.code = ErrorCode::kPermission, .subject = path_ + '/' + name, .what = "cannot be opened", .os_errno = errno});
  // flock() itself would wait without a limit.
  while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return fail({.code = ErrorCode::kUnreadable,
                   .subject = path_ + '/' + name,
                   .what = "cannot be locked",
                   .os_errno = errno});
    if (deadline.passed())
      return fail(
          {.code = ErrorCode::kTimeout, .subject = path_ + '/' + name, .what = "another process has locked it"});
    std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(kPause, deadline.left()));
  }
  return FileLock(std::move(file));
}

std::vector<std::string> PrivateDirectory::names() const {
  std::vector<std::string> names;
  const int again = openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const DirectoryStream directory(again < 0 ? nullptr : fdopendir(again));
  while (directory) {
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    if (entry->d_type == DT_REG) names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> PrivateDirectory::read(const std::string& name, std::size_t most) const {
  const FileDescriptor file(openat(directory_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file.is_open() || !is_own_regular(file.get(), status) || static_cast<std::uint64_t>(status.st_size) > most)
    return std::nullopt;
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::read(file.get(), bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    at += static_cast<std::size_t>(n);
  }
  return bytes;
}

int PrivateDirectory::write(const std::string& name, std::string_view bytes) const {
  return write_whole_file(directory_, name, bytes);
}

void PrivateDirectory::remove(const std::string& name) const { unlinkat(directory_.get(), name.c_str(), 0); }

}  // namespace base
}  // namespace rankstacks
