#include "small_core/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <utility>

namespace rankstacks::small_core {
namespace {

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

NewFile::NewFile(std::string path, std::string temporary, FileDescriptor file)
    : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, "")), file_(std::move(other.file_)) {}

NewFile::~NewFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Error NewFile::error(const char* what) const {
  const int why = errno;
  return {.code = why == EACCES || why == EPERM ? ErrorCode::kPermission : ErrorCode::kUnreadable,
          .subject = path_,
          .what = what,
          .os_errno = why,
          .hint = why == ENOSPC || why == EDQUOT ? "name a directory with more room" : ""};
}

Result<NewFile> NewFile::create(const std::string& path) {
  struct stat old {};
  if (lstat(path.c_str(), &old) == 0 && !S_ISREG(old.st_mode) && !S_ISLNK(old.st_mode))
    return fail({.code = ErrorCode::kUnsupported,
                 .subject = path,
                 .what = "exists, and is no regular file: it is not replaced",
                 .hint = "name a new file"});
  std::string temporary = directory_of(path) + "/.rankstacks-XXXXXX";
  FileDescriptor file(mkostemp(temporary.data(), O_CLOEXEC));  // of mode 0600
  if (!file.is_open()) {
    NewFile none(path, "", FileDescriptor());
    return fail(none.error("cannot be written"));
  }
  return NewFile(path, std::move(temporary), std::move(file));
}

Result<void> NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(error("cannot be written"));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> NewFile::finish() {
  if (fsync(file_.get()) != 0 && errno != EINVAL) return fail(error("cannot be written to the disk"));
  if (const int why = file_.close(); why != 0) {
    errno = why;
    return fail(error("cannot be written"));
  }
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return fail(error("cannot get its name"));
  temporary_.clear();
  // The name itself is on the disk when its directory is.
  const FileDescriptor directory(open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.is_open()) fsync(directory.get());
  return {};
}

}  // namespace rankstacks::small_core
