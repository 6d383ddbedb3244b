#include "doctor/self.h"

#include <fmt/format.h>
#include <cstdlib>
#include <string_view>

#include "base/text.h"
#include "report/shell_quoted.h"

namespace rankstacks::doctor {
namespace {

ContainerMarks find_container(const System& system) {
  ContainerMarks c;
  const auto mark = [&](bool& kind, std::string what) {
    kind = true;
    c.marks.push_back(std::move(what));
  };
  if (system.exists("/.dockerenv")) mark(c.docker, "/.dockerenv");
  if (system.exists("/run/.containerenv")) mark(c.podman, "/run/.containerenv");
  if (system.exists("/.singularity.d")) mark(c.other, "/.singularity.d");
  if (system.variable("KUBERNETES_SERVICE_HOST")) mark(c.kubernetes, "KUBERNETES_SERVICE_HOST");
  if (const auto groups = system.read_file("/proc/self/cgroup")) {
    // The names that container engines give their cgroups, with the cgroupfs and the systemd driver.
    const std::pair<const char*, bool ContainerMarks::*> names[] = {
        {"kubepods", &ContainerMarks::kubernetes}, {"/docker/", &ContainerMarks::docker},
        {"docker-", &ContainerMarks::docker},      {"libpod-", &ContainerMarks::podman},
        {"containerd-", &ContainerMarks::other},   {"crio-", &ContainerMarks::kubernetes},
        {"/lxc", &ContainerMarks::other}};
    for (const auto& [name, kind] : names) {
      if (!contains(*groups, name)) continue;
      mark(c.*kind, fmt::format("{} in /proc/self/cgroup", name));
      break;
    }
  }
  return c;
}

}  // namespace

Self read_self(const System& system) {
  Self self;
  if (const auto status = system.read_file("/proc/self/status")) self.status = parse_status(*status);
  self.namespaces = namespaces_of(system, "self");
  self.container = find_container(system);
  if (const auto scope = system.read_file("/proc/sys/kernel/yama/ptrace_scope"))
    self.yama_scope = std::atoi(scope->c_str());
  self.trial = system.try_attach();
  return self;
}

std::vector<std::string> mends_for_ptrace(const Self& self) {
  const ContainerMarks& c = self.container;
  if (!c.any()) return {"sudo rankstacks ..."};
  const bool unknown = !c.docker && !c.podman && !c.kubernetes;
  std::vector<std::string> mends;
  if (c.docker || unknown) mends.push_back("docker run --cap-add=SYS_PTRACE ...");
  if (c.podman || unknown) mends.push_back("podman run --cap-add=SYS_PTRACE ...");
  if (c.kubernetes || unknown)
    mends.push_back("Kubernetes, in the container's spec: securityContext: {capabilities: {add: [\"SYS_PTRACE\"]}}");
  if (self.status.uids[1] != 0)
    mends.push_back("and run rankstacks as root there: a user's processes are not given the capability");
  return mends;
}

std::string sysctl(const Self& self, const std::string& setting) {
  const char* where = self.container.any() ? "on the host: " : self.status.uids[1] != 0 ? "sudo " : "";
  return fmt::format("{}sysctl {}", where, report::shell_quoted(setting));
}

std::vector<std::string> mends_for_yama(const Self& self) {
  std::vector<std::string> mends = {sysctl(self, "kernel.yama.ptrace_scope=0")};
  for (std::string& mend : mends_for_ptrace(self)) mends.push_back(std::move(mend));
  return mends;
}

std::vector<std::string> mends_for_seccomp(const Self& self) {
  const ContainerMarks& c = self.container;
  const bool unknown = !c.docker && !c.podman && !c.kubernetes;
  std::vector<std::string> mends;
  if (c.docker || unknown) mends.push_back("docker run --cap-add=SYS_PTRACE --security-opt seccomp=unconfined ...");
  if (c.podman || unknown) mends.push_back("podman run --cap-add=SYS_PTRACE --security-opt seccomp=unconfined ...");
  if (c.kubernetes || unknown)
    mends.push_back(
        "Kubernetes, in the container's spec: securityContext: {capabilities: {add: [\"SYS_PTRACE\"]}, seccompProfile: "
        "{type: "
        "Unconfined}}");
  return mends;
}

}  // namespace rankstacks::doctor
