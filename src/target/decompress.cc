#include "target/decompress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <span>
#include <utility>

#include "target/page_runs.h"

namespace rankstacks::target {
namespace {

std::string temporary_directory() {
  const char* directory = std::getenv("TMPDIR");
  return directory != nullptr && *directory != 0 ? directory : "/tmp";
}

// A file with holes that grows at its end.
class SparseFile {
 public:
  static Result<SparseFile> create(const std::string& directory, const std::string& subject) {
    SparseFile made;
    made.directory_ = directory;
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
    const auto free = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
    made.budget_ = free - free / 20;
    return made;
  }

  std::optional<Error> append(std::span<const char> bytes, const std::string& subject) {
    std::optional<Error> failed;
    each_kept_run(
        bytes, size_, [](std::span<const char> page, std::uint64_t) { return !is_all_zero(page); },
        [&](std::span<const char> run, std::uint64_t at) {
          if (!failed) failed = write(run, at, subject);
        });
    if (failed) return failed;
    size_ += bytes.size();
    return std::nullopt;
  }

  std::optional<Error> finish(const std::string& subject) {
    if (ftruncate(file_.get(), static_cast<off_t>(size_)) == 0) return std::nullopt;
    return Error{.code = ErrorCode::kUnreadable,
                 .subject = subject,
                 .what = "cannot set the size of the unpacked file",
                 .os_errno = errno};
  }

  std::uint64_t size() const { return size_; }
  FileDescriptor take() { return std::move(file_); }

 private:
  std::optional<Error> write(std::span<const char> bytes, std::uint64_t at, const std::string& subject) {
    const auto no_room = [&](int os_errno) {
      return Error{.code = ErrorCode::kLimit,
                   .subject = subject,
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

  FileDescriptor file_;
  std::string directory_;
  std::uint64_t size_ = 0;
  std::uint64_t budget_ = 0;
};

}  // namespace

Result<Unpacked> unpack(int compressed, Compression compression, const std::string& subject, FirstBytesCheck refuse,
                        const Deadline& deadline) {
  auto file = SparseFile::create(temporary_directory(), subject);
  if (!file) return fail(file.error());
  PackedStream stream(compressed, compression, subject);
  std::optional<Error> damage;
  for (auto piece = stream.next(deadline); !piece.empty() && !damage; piece = stream.next(deadline)) {
    if (file->size() == 0)
      if (auto refused = refuse({piece.data(), std::min(piece.size(), PackedStream::kFirstBytes)}, subject))
        return fail(*refused);
    damage = file->append(piece, subject);
  }
  if (!damage) damage = stream.damage();
  if (damage && file->size() == 0) return fail(*damage);
  if (auto failed = file->finish(subject)) return fail(*failed);
  return Unpacked{.file = file->take(), .size = file->size(), .damage = std::move(damage)};
}

}  // namespace rankstacks::target
