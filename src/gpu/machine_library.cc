#include "gpu/machine_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <sstream>
#include <string_view>

#include "gpu/loader_cache.h"
#include "target/proc.h"

namespace rankstacks::gpu {
namespace {

// Where libraries lie in containers and on machines whose loader does not know them: Debian and RHEL, NVIDIA's
// container tools, its operator, WSL, NixOS, GKE's system, CUDA's package for newer drivers.
constexpr std::array kDirectories{"/usr/lib/x86_64-linux-gnu",
                                  "/usr/lib64",
                                  "/usr/lib",
                                  "/usr/local/nvidia/lib64",
                                  "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
                                  "/run/nvidia/driver/usr/lib64",
                                  "/usr/lib/wsl/lib",
                                  "/run/opengl-driver/lib",
                                  "/home/kubernetes/bin/nvidia/lib64",
                                  "/usr/local/cuda/compat"};
constexpr std::size_t kMaxCache = 16u << 20;

// In a user namespace the machine's root may have no number. Its files then appear with the overflow id, as do those of
// all other users without a number in the namespace. That id counts as root's only if no process in the namespace can
// have it itself: no line of uid_map covers it.
constexpr uid_t kOverflowId = 65534;
bool unmapped_ids_are_of_outside() {
  static const bool outside = [] {
    const auto map = target::proc::read_file("/proc/self/uid_map");
    if (!map) return false;
    std::istringstream lines(*map);
    for (std::uint64_t inner = 0, outer = 0, count = 0; lines >> inner >> outer >> count;)
      if (inner <= kOverflowId && kOverflowId - inner < count) return false;
    return true;
  }();
  return outside;
}

// Empty if only root can write it, else the reason why somebody else can.
std::string writable_by(const struct stat& file) {
  const bool of_root = file.st_uid == 0 || (file.st_uid == kOverflowId && unmapped_ids_are_of_outside());
  if (!of_root) return fmt::format("belongs to uid {}", file.st_uid);
  if ((file.st_mode & S_IWOTH) != 0) return "may be written by everybody";
  // Group 0 is not root, and with an access control list these bits are the mask for all users and groups that it
  // names.
  if ((file.st_mode & S_IWGRP) != 0) return fmt::format("may be written by gid {}", file.st_gid);
  return "";
}

Error refusal(const std::string& path, std::string what, ErrorCode code = ErrorCode::kPermission, int os_errno = 0) {
  return {.code = code, .subject = path, .what = std::move(what), .where = {}, .os_errno = os_errno, .hint = {}};
}

// Checks every directory from the root down to the file. `real` has no symbolic links; one that appears meanwhile ends
// the walk.
Result<void> check_directories(const std::string& real, const std::string& trusted, const struct stat& file) {
  FileDescriptor at(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::string walked;
  std::size_t from = 1;
  while (true) {
    struct stat here {};
    if (!at.is_open() || fstat(at.get(), &here) != 0)
      return fail(refusal(walked.empty() ? "/" : walked, "cannot be looked at", ErrorCode::kUnreadable, errno));
    const std::size_t slash = real.find('/', from);
    const bool is_file = from > real.size();
    if (is_file) {
      if (here.st_dev != file.st_dev || here.st_ino != file.st_ino)
        return fail(refusal(real, "another file came into its place"));
      return {};
    }
    const bool given = !trusted.empty() && (trusted == walked || trusted.starts_with(walked + "/"));
    if (const std::string who = writable_by(here); !given && !who.empty())
      return fail(refusal(real, fmt::format("is not loaded: its directory {} {}", walked.empty() ? "/" : walked, who)));
    const std::string name = real.substr(from, slash == std::string::npos ? std::string::npos : slash - from);
    walked += "/" + name;
    at = FileDescriptor(openat(at.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    from = slash == std::string::npos ? real.size() + 1 : slash + 1;
  }
}

std::vector<std::string> candidates(const std::string& name, const Machine& machine) {
  if (machine.is_played()) return {machine.directory + "/" + name};
  std::vector<std::string> paths;
  if (const auto cache = target::proc::read_file("/etc/ld.so.cache", kMaxCache))
    paths = paths_in_loader_cache(std::as_bytes(std::span(*cache)), name);
  for (const char* directory : kDirectories) paths.push_back(fmt::format("{}/{}", directory, name));
  return paths;
}

}  // namespace

Result<MachineLibrary> open_machine_library(const std::string& path, const std::string& trusted) {
  const FileDescriptor found(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat file {};
  if (!found.is_open() || fstat(found.get(), &file) != 0)
    return fail(
        refusal(path, "cannot be opened", errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kUnreadable, errno));
  if (!S_ISREG(file.st_mode)) return fail(refusal(path, "is not loaded: it is no regular file"));
  const std::string itself = fmt::format("/proc/self/fd/{}", found.get());
  const auto real = target::proc::read_link(itself);
  if (!real || !real->starts_with('/')) return fail(refusal(path, "is not loaded: its place is not known"));
  if (auto safe = check_directories(*real, trusted, file); !safe) return fail(safe.error());
  // In a trusted directory the file may belong to anybody: tests run as any user.
  if (const std::string who = writable_by(file); !who.empty() && real->substr(0, real->rfind('/')) != trusted)
    return fail(refusal(*real, "is not loaded: it " + who));
  MachineLibrary library{.file = FileDescriptor(::open(itself.c_str(), O_RDONLY | O_CLOEXEC)),
                         .path = *real,
                         .device = file.st_dev,
                         .inode = file.st_ino};
  if (!library.file.is_open()) return fail(refusal(*real, "cannot be opened", ErrorCode::kUnreadable, errno));
  return library;
}

Result<std::vector<MachineLibrary>> find_machine_libraries(const std::string& name, const Machine& machine) {
  std::vector<MachineLibrary> libraries;
  std::optional<Error> refused;
  for (const std::string& path : candidates(name, machine)) {
    auto library = open_machine_library(path, machine.directory);
    if (!library) {
      if (!refused && library.error().code != ErrorCode::kNotFound) refused = library.error();
      continue;
    }
    const bool known = std::any_of(libraries.begin(), libraries.end(), [&](const MachineLibrary& l) {
      return l.device == library->device && l.inode == library->inode;
    });
    if (!known) libraries.push_back(std::move(*library));
  }
  if (!libraries.empty()) return libraries;
  if (refused) return fail(*refused);
  return fail(refusal(name, "this machine has none", ErrorCode::kNotFound));
}

Result<void*> load(const MachineLibrary& library) {
  const int kept = fcntl(library.file.get(), F_DUPFD_CLOEXEC, 0);
  void* handle = dlopen(fmt::format("/proc/self/fd/{}", kept).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char* why = dlerror();
  return fail(
      refusal(library.path, fmt::format("cannot be loaded: {}", why != nullptr ? why : "?"), ErrorCode::kNotFound));
}

}  // namespace rankstacks::gpu
