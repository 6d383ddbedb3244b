#include "base/regular_file.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace rankstacks {
inline namespace base {
namespace {

struct KernelsOwn {
  std::uint32_t magic;
  const char* name;
};

// File systems whose files the kernel or a driver generates at the moment of the call. The numbers are from Linux 6.12:
// include/uapi/linux/magic.h, or the source file of the file system where that one states it.
constexpr std::array kKernelsOwn = {
    KernelsOwn{0x00009fa0, "procfs"},       KernelsOwn{0x62656572, "sysfs"},     KernelsOwn{0x64626720, "debugfs"},
    KernelsOwn{0x74726163, "tracefs"},      KernelsOwn{0x0027e0eb, "cgroup"},    KernelsOwn{0x63677270, "cgroup2"},
    KernelsOwn{0x73636673, "securityfs"},   KernelsOwn{0xf97cff8c, "selinuxfs"}, KernelsOwn{0x43415d53, "smackfs"},
    KernelsOwn{0x5a3c69f0, "apparmorfs"},   KernelsOwn{0x6165676c, "pstore"},    KernelsOwn{0xde5e81e4, "efivarfs"},
    KernelsOwn{0xcafe4a11, "bpf"},          KernelsOwn{0x62656570, "configfs"},  KernelsOwn{0x42494e4d, "binfmt_misc"},
    KernelsOwn{0x65735543, "fusectl"},      KernelsOwn{0x19800202, "mqueue"},    KernelsOwn{0x6e736673, "nsfs"},
    KernelsOwn{0x50494446, "pidfs"},        KernelsOwn{0x534f434b, "sockfs"},    KernelsOwn{0x50495045, "pipefs"},
    KernelsOwn{0x09041934, "anon_inodefs"}, KernelsOwn{0x444d4142, "dma-buf"},   KernelsOwn{0x5345434d, "secretmem"},
    KernelsOwn{0x474d454d, "guest_memfd"},  KernelsOwn{0x07655821, "resctrl"},   KernelsOwn{0xabba1974, "xenfs"},
    KernelsOwn{0x00009fa1, "openpromfs"},   KernelsOwn{0x00009fa2, "usbdevfs"},  KernelsOwn{0x0a647361, "functionfs"},
    KernelsOwn{0x67596969, "rpc_pipefs"},   KernelsOwn{0x6e667364, "nfsd"},      KernelsOwn{0x00000187, "autofs"},
    KernelsOwn{0x00001cd1, "devpts"},       KernelsOwn{0x6c6f6f70, "binderfs"},
};

std::string kind_of(const struct stat& status) {
  if (S_ISDIR(status.st_mode)) return "a directory";
  if (S_ISFIFO(status.st_mode)) return "a pipe";
  if (S_ISSOCK(status.st_mode)) return "a socket";
  return S_ISREG(status.st_mode) ? "" : "a device";
}

tl::unexpected<NotRegular> failed(int why) {
  return tl::unexpected(NotRegular{.os_errno = why, .kind = "", .hint = ""});
}

}  // namespace

tl::expected<RegularFile, NotRegular> open_regular_file(const std::string& path) {
  const FileDescriptor place(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!place.is_open()) return failed(errno);
  return open_regular_file(place);
}

tl::expected<RegularFile, NotRegular> open_regular_file(const FileDescriptor& place) {
  const auto other_kind = [](std::string kind) {
    return tl::unexpected(NotRegular{.os_errno = 0, .kind = std::move(kind), .hint = ""});
  };
  RegularFile file;
  if (fstat(place.get(), &file.status) != 0) return failed(errno);
  if (std::string kind = kind_of(file.status); !kind.empty()) return other_kind(std::move(kind));
  struct statfs system {};
  if (fstatfs(place.get(), &system) != 0) return failed(errno);
  file.file_system = static_cast<std::uint32_t>(system.f_type);
  for (const KernelsOwn& own : kKernelsOwn)
    if (own.magic == file.file_system) return other_kind(fmt::format("a file of {}", own.name));
  // O_NONBLOCK: do not wait for a lease that somebody holds on the file (fcntl(2), F_SETLEASE).
  file.descriptor = FileDescriptor(
      ::open(fmt::format("/proc/self/fd/{}", place.get()).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.descriptor.is_open()) return file;
  const int why = errno;
  // The descriptor is open, so what is missing is /proc.
  if (why == ENOENT)
    return tl::unexpected(
        NotRegular{.os_errno = why, .kind = "", .hint = "mount /proc: files are opened through /proc/self/fd"});
  return failed(why);
}

}  // namespace base
}  // namespace rankstacks
