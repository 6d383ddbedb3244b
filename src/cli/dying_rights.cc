#include "cli/dying_rights.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <csignal>

#include "target/target_rights.h"

namespace rankstacks::cli {
namespace {

// The kernel's overflow user and group: Documentation/admin-guide/sysctl/fs.rst
constexpr FileOwner kNobody{65534, 65534};

bool are_all_of(const target::TargetRights& rights, uid_t user, gid_t group) {
  return rights.real_uid == user && rights.effective_uid == user && rights.saved_uid == user &&
         rights.real_gid == group && rights.effective_gid == group && rights.saved_gid == group;
}

}  // namespace

DyingRights rights_of_dying(Pid pid, const FileDescriptor& memory, uid_t user, gid_t group) {
  if (geteuid() != 0) return {.owner = {user, group}, .reader = CoreReader::kItself};
  struct stat of_memory {};
  const auto rights = target::rights_of(pid);
  if (fstat(memory.get(), &of_memory) != 0 || of_memory.st_uid != user || !rights || !are_all_of(*rights, user, group))
    return {.owner = {0, 0}, .reader = CoreReader::kNobody};
  return {.owner = {user, group}, .reader = user == 0 ? CoreReader::kRoot : CoreReader::kUser};
}

Result<void> become(const DyingRights& rights) {
  if (rights.reader == CoreReader::kItself) return {};
  const FileOwner ids = rights.reader == CoreReader::kNobody ? kNobody : rights.owner;
  target::TargetRights taken;  // no groups, no capabilities
  taken.real_uid = taken.effective_uid = taken.saved_uid = ids.user;
  taken.real_gid = taken.effective_gid = taken.saved_gid = ids.group;
  const pid_t parent = getppid();
  auto done = target::take_on(taken);
  prctl(PR_SET_PDEATHSIG, SIGKILL);   // a change of ids clears it
  if (getppid() != parent) _exit(1);  // it has ended before the call above
  return done;
}

}  // namespace rankstacks::cli
