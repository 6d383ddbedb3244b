#include "cli/dying_rights.h"

#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <sstream>
#include <string>

#include "target/proc.h"

namespace rankstacks::cli {
namespace {

constexpr uid_t kNobodyUser = 65534;  // the kernel's overflow user and group: Documentation/admin-guide/sysctl/fs.rst
constexpr gid_t kNobodyGroup = 65534;

// Whether the real, effective, saved and file system ids in a line "Uid:\t0\t0\t0\t0" of /proc/PID/status are all `id`.
bool all_are(const std::string& status, const std::string& name, std::uint64_t id) {
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream words(line.substr(name.size()));
    std::array<std::uint64_t, 4> ids{};
    for (std::uint64_t& one : ids)
      if (!(words >> one)) return false;
    return std::all_of(ids.begin(), ids.end(), [&](std::uint64_t one) { return one == id; });
  }
  return false;
}

bool drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> none{};
  return syscall(SYS_capset, &header, none.data()) == 0;
}

}  // namespace

DyingRights rights_of_dying(Pid pid, const FileDescriptor& memory, uid_t user, gid_t group) {
  if (geteuid() != 0) return {.owner = {user, group}, .reader = CoreReader::kItself};
  struct stat of_memory {};
  const auto status = target::proc::read_file(fmt::format("/proc/{}/status", pid));
  if (fstat(memory.get(), &of_memory) != 0 || of_memory.st_uid != user || !status || !all_are(*status, "Uid:", user) ||
      !all_are(*status, "Gid:", group))
    return {.owner = {0, 0}, .reader = CoreReader::kNobody};
  return {.owner = {user, group}, .reader = user == 0 ? CoreReader::kRoot : CoreReader::kUser};
}

bool become(const DyingRights& rights) {
  if (rights.reader == CoreReader::kItself) return true;
  const FileOwner ids = rights.reader == CoreReader::kNobody ? FileOwner{kNobodyUser, kNobodyGroup} : rights.owner;
  const pid_t parent = getppid();
  const bool done = setgroups(0, nullptr) == 0 && setresgid(ids.group, ids.group, ids.group) == 0 &&
                    setresuid(ids.user, ids.user, ids.user) == 0 && drop_capabilities() &&
                    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of ids clears it
  return done && getppid() == parent;
}

}  // namespace rankstacks::cli
