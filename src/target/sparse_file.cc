#include "target/sparse_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace rankstacks::target {
namespace {

std::string temporary_directory() {
  const char* directory = std::getenv("TMPDIR");
  return directory != nullptr && *directory != 0 ? directory : "/tmp";
}

}  // namespace

Result<SparseFile> SparseFile::create(const std::string& subject) {
  SparseFile made;
  const std::string directory = temporary_directory();
  int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  // overlayfs and NFS do not support O_TMPFILE.
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string name = directory + "/rankstacks-core-XXXXXX";
    fd = mkostemp(name.data(), O_CLOEXEC);
    if (fd >= 0) ::unlink(name.c_str());
  }
  struct statvfs space {};
  if (fd < 0 || fstatvfs(fd, &space) != 0) {
    const int why = errno;
    if (fd >= 0) ::close(fd);
    return fail({.code = ErrorCode::kUnreadable,
                 .subject = subject,
                 .what = "cannot make a file in " + directory + " to unpack it to",
                 .os_errno = why,
                 .hint = "set TMPDIR to a directory that can be written, or unpack it yourself"});
  }
  made.file_ = FileDescriptor(fd);
  made.directory_ = directory;
  made.subject_ = subject;
  const auto free = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
  made.budget_ = free - free / 20;
  return made;
}

std::optional<Error> SparseFile::write(std::span<const char> bytes, std::uint64_t at) {
  const auto no_room = [&](int os_errno) {
    return Error{.code = ErrorCode::kLimit,
                 .subject = subject_,
                 .what = fmt::format("no room in {}: unpacking stopped after {} MiB", directory_, at >> 20),
                 .os_errno = os_errno,
                 .hint = "set TMPDIR to a directory on a larger disk"};
  };
  if (bytes.size() > budget_) return no_room(0);
  budget_ -= bytes.size();
  while (!bytes.empty()) {
    const ssize_t n = pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return no_room(n < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    at += static_cast<std::uint64_t>(n);
  }
  return std::nullopt;
}

std::optional<Error> SparseFile::set_size(std::uint64_t size) {
  if (ftruncate(file_.get(), static_cast<off_t>(size)) == 0) return std::nullopt;
  return Error{.code = ErrorCode::kUnreadable,
               .subject = subject_,
               .what = "cannot set the size of the unpacked file",
               .os_errno = errno};
}

}  // namespace rankstacks::target
