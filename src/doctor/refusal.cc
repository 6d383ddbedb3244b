#include "doctor/refusal.h"

#include <fmt/format.h>

#include "report/shell_quoted.h"

namespace rankstacks::doctor {
namespace {

bool all_are(const std::array<unsigned, 3>& ids, unsigned id) { return ids[0] == id && ids[1] == id && ids[2] == id; }
bool differ(const std::array<unsigned, 3>& ids) { return !all_are(ids, ids[0]); }

// "docker-default (enforce)", "/opt/my tool//&unconfined (complain)": the mode is the last word.
std::string name_of_profile(const std::string& current) {
  const std::size_t mode = current.ends_with(')') ? current.rfind(" (") : std::string::npos;
  return current.substr(0, mode);
}

// The refusal by a security module, as it describes itself; empty if there is none that would refuse.
Refusal security_module(const System& system, const Self& self) {
  if (const auto deny = system.read_file("/sys/fs/selinux/booleans/deny_ptrace"); deny && deny->starts_with("1"))
    return {"SELinux's boolean deny_ptrace is on", {"setsebool deny_ptrace off"}};
  for (const char* path : {"/proc/self/attr/apparmor/current", "/proc/self/attr/current"}) {
    auto profile = system.read_file(path);
    if (!profile || !system.exists("/sys/module/apparmor")) continue;
    while (!profile->empty() && (profile->back() == '\n' || profile->back() == '\0')) profile->pop_back();
    if (profile->empty() || profile->starts_with("unconfined")) continue;
    std::vector<std::string> mends;
    if (self.container.any())
      mends = {"docker run --security-opt apparmor=unconfined ...",
               "Kubernetes, in the container's spec: securityContext: {appArmorProfile: {type: Unconfined}}"};
    else mends = {"aa-complain -- " + report::shell_quoted(name_of_profile(*profile))};
    return {fmt::format("this tool runs under the AppArmor profile {}", *profile), mends};
  }
  return {};
}

}  // namespace

bool known_not_dumpable(const System& system, Pid pid, const ProcessStatus& target) {
  const auto owner = system.owner(fmt::format("/proc/{}/status", pid));
  return owner && *owner != target.uids[1];
}

Refusal explain_refusal(const System& system, const Self& self, Pid pid, const ProcessStatus& target) {
  const auto by_root = mends_for_ptrace(self);
  if (self.trial.filtered()) return {"a seccomp filter on this tool answers ptrace itself", mends_for_seccomp(self)};
  const Namespaces theirs = namespaces_of(system, std::to_string(pid));
  const bool other_user_namespace = theirs.user && self.namespaces.user && *theirs.user != *self.namespaces.user;
  const unsigned uid = self.status.uids[0], gid = self.status.gids[0];  // ptrace uses the real ones
  // Capabilities hold in the tool's own user namespace and in those created in it: in the machine's first one, they
  // hold in all. Which one the target is in cannot be read from within another namespace.
  const bool trusted = self.can_trace_all() && (!self.own_user_namespace() || (theirs.user && !other_user_namespace));
  if (!trusted) {
    if (differ(target.uids))
      return {fmt::format("it changed its user (uids {}, {}, {}): only root may trace it", target.uids[0],
                          target.uids[1], target.uids[2]),
              by_root};
    if (!all_are(target.uids, uid)) {
      auto mends = by_root;
      if (!self.container.any() && target.uids[0] != 0)
        mends.push_back(fmt::format("sudo -u '#{}' rankstacks ...", target.uids[0]));
      return {fmt::format("it belongs to uid {}, this is uid {}", target.uids[0], uid), mends};
    }
    if (!all_are(target.gids, gid))
      return {fmt::format("its groups are {}, {}, {}, this is group {}", target.gids[0], target.gids[1], target.gids[2],
                          gid),
              by_root};
    if (known_not_dumpable(system, pid, target))
      return {
          "it is not dumpable: it called prctl(PR_SET_DUMPABLE, 0), changed its user, or its program may not be read",
          by_root};
    if (other_user_namespace || (!theirs.user && self.own_user_namespace())) {
      return {fmt::format("it is in {}, this tool in {}: capabilities do not reach out of a user namespace",
                          theirs.user.value_or("another user namespace"), self.namespaces.user.value_or("another")),
              {"run rankstacks outside of this user namespace (rootless container, unshare -U)"}};
    }
    if (const std::uint64_t more = target.permitted & ~self.status.permitted; more != 0)
      return {fmt::format("it has capabilities that this tool lacks: {}", capability_names(more)), by_root};
  }
  if (self.yama_refuses()) {
    if (*self.yama_scope >= 3) {
      return {"kernel.yama.ptrace_scope is 3: nobody may trace until the machine is booted again",
              {"set kernel.yama.ptrace_scope=0 in /etc/sysctl.d and boot"}};
    }
    return {fmt::format("kernel.yama.ptrace_scope is {}", *self.yama_scope), mends_for_yama(self)};
  }
  if (Refusal module = security_module(system, self); !module.why.empty()) return module;
  return {
      "users, groups, capabilities, namespaces, Yama, seccomp, AppArmor and SELinux would allow it: another security "
      "module refuses",
      by_root};
}

}  // namespace rankstacks::doctor
