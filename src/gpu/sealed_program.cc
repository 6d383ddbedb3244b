#include "gpu/sealed_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>

namespace rankstacks::gpu {
namespace {

// MFD_EXEC, include/uapi/linux/memfd.h since Linux 6.3. Kernels before do not know it (EINVAL); there all of them are
// executable.
constexpr unsigned kExecutable = 0x10;
constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

FileDescriptor memory_file() {
  constexpr const char* kName = "rankstacks";
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  FileDescriptor file(static_cast<int>(syscall(SYS_memfd_create, kName, kFlags | kExecutable)));
  if (!file.is_open() && errno == EINVAL)
    file = FileDescriptor(static_cast<int>(syscall(SYS_memfd_create, kName, kFlags)));
  return file;
}

bool copy(int from, int into) {
  struct stat file {};
  if (fstat(from, &file) != 0) return false;
  for (off_t left = file.st_size; left > 0;) {
    const ssize_t n = sendfile(into, from, nullptr, static_cast<std::size_t>(left));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    left -= n;
  }
  return true;
}

}  // namespace

SealedProgram::SealedProgram() {
  const FileDescriptor own(::open(kOwnProgram, O_RDONLY | O_CLOEXEC));
  FileDescriptor file = memory_file();
  if (!own.is_open() || !file.is_open() || fchmod(file.get(), 0500) != 0 || !copy(own.get(), file.get()) ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0)
    return;
  // At a number under which no helper is given anything.
  constexpr int kFirst = 16;
  copy_ = FileDescriptor(fcntl(file.get(), F_DUPFD_CLOEXEC, kFirst));
  if (copy_.is_open() && access(path().c_str(), X_OK) != 0) copy_ = FileDescriptor();
}

const SealedProgram& SealedProgram::own() {
  static const SealedProgram kOwn{FileDescriptor()};
  return kOwn;
}

std::string SealedProgram::path() const {
  return copy_.is_open() ? fmt::format("/proc/self/fd/{}", copy_.get()) : std::string(kOwnProgram);
}

}  // namespace rankstacks::gpu
