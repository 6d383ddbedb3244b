#include "doctor/real_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/file_descriptor.h"
#include "base/unattended.h"
#include "doctor/target_facts.h"
#include "doctor/trial.h"
#include "gpu/nvml_query.h"
#include "target/proc.h"

namespace rankstacks::doctor {

Result<std::string> RealSystem::read_file(const std::string& path) const {
  return target::proc::read_file(path, 16u << 20);
}

std::optional<std::string> RealSystem::read_link(const std::string& path) const {
  return target::proc::read_link(path);
}

std::vector<std::string> RealSystem::list(const std::string& directory) const {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator it(directory, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error))
    names.push_back(it->path().filename().string());
  return names;
}

bool RealSystem::exists(const std::string& path) const {
  struct stat st {};
  return stat(path.c_str(), &st) == 0;
}

std::optional<unsigned> RealSystem::owner(const std::string& path) const {
  struct stat st {};
  if (stat(path.c_str(), &st) != 0) return std::nullopt;
  return st.st_uid;
}

std::optional<Space> RealSystem::space(const std::string& directory) const {
  // The server of a network file system may be gone.
  const std::function<std::optional<Space>()> ask = [directory]() -> std::optional<Space> {
    struct statvfs space {};
    struct stat st {};
    if (statvfs(directory.c_str(), &space) != 0 || stat(directory.c_str(), &st) != 0) return std::nullopt;
    return Space{space.f_frsize * space.f_bavail, space.f_frsize * space.f_blocks, st.st_dev};
  };
  return unattended(ask, kMinTimeout).value_or(std::nullopt);
}

std::optional<std::string> RealSystem::variable(const std::string& name) const {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int RealSystem::try_open(const std::string& path) const {
  return FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)).is_open() ? 0 : errno;
}

int RealSystem::try_reach(const std::string& path) const {
  return FileDescriptor(open(path.c_str(), O_PATH | O_CLOEXEC)).is_open() ? 0 : errno;
}

int RealSystem::try_seize(Tid tid) const { return try_to_seize(tid); }

int RealSystem::try_read(Tid tid, Address address) const {
  char byte = 0;
  iovec local{&byte, 1}, remote{reinterpret_cast<void*>(address), 1};
  return process_vm_readv(tid, &local, 1, &remote, 1, 0) == 1 ? 0 : errno;
}

int RealSystem::try_signal(Pid pid) const { return kill(pid, 0) == 0 ? 0 : errno; }

Trial RealSystem::try_attach() const { return try_attach_to_sibling(); }

gpu::NvmlAnswer RealSystem::ask_nvml() const { return gpu::NvmlQuery(gpu::NvmlRequest()).collect(); }

Result<TargetFacts> RealSystem::open_process(Pid pid) const { return facts_of_process(pid); }

Result<TargetFacts> RealSystem::open_core(const std::string& path, const target::CoreOptions& options) const {
  return facts_of_core(path, options);
}

}  // namespace rankstacks::doctor
