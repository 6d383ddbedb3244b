// Checks where this tool runs: in a container, in namespaces of its own, with a /proc that hides processes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cctype>

#include "base/text.h"

#include "doctor/machine_checks.h"

namespace rankstacks::doctor {
namespace {

constexpr Area kArea = Area::kAttach;

Finding check_container(const Self& self) {
  const ContainerMarks& c = self.container;
  if (!c.any()) return ok("container", kArea, "no sign of one");
  const char* kind = c.kubernetes ? "Kubernetes" : c.docker ? "docker" : c.podman ? "podman" : "a container";
  return ok("container", kArea, fmt::format("{}, by {}", kind, fmt::join(c.marks, ", ")));
}

Finding check_user_namespace(const System& system, const Self& self) {
  if (!self.namespaces.user) return note("user-namespace", kArea, "/proc/self/ns/user cannot be read");
  if (!self.own_user_namespace()) return ok("user-namespace", kArea, "the machine's own");
  std::string found = fmt::format("{}, one of its own", *self.namespaces.user);
  unsigned inside = 0, outside = 0, count = 0;
  const auto map = system.read_file("/proc/self/uid_map");
  if (map && std::sscanf(map->c_str(), "%u %u %u", &inside, &outside, &count) == 3)
    found += fmt::format(" (uid {} in it is uid {} outside)", inside, outside);
  return note("user-namespace", kArea, found + ": capabilities reach the processes in it, and no other",
              {"for other processes: run rankstacks outside of it, as root"});
}

Finding check_pid_namespace(const System& system, const Self& self) {
  if (!self.namespaces.pid) return note("pid-namespace", kArea, "/proc/self/ns/pid cannot be read");
  if (!self.own_pid_namespace()) return ok("pid-namespace", kArea, "the machine's own");
  const auto names = system.list("/proc");
  const auto processes = std::count_if(names.begin(), names.end(), [](const std::string& n) {
    return std::all_of(n.begin(), n.end(), [](unsigned char c) { return std::isdigit(c); });
  });
  return note("pid-namespace", kArea,
              fmt::format("{}, one of its own: its {} processes can be named, by the numbers they have in it",
                          *self.namespaces.pid, processes),
              {"for the machine's: docker run --pid=host ..., podman run --pid=host ..., Kubernetes: hostPID: true in "
               "the pod's spec",
               "for another container's: docker run --pid=container:NAME ..., Kubernetes: kubectl debug POD "
               "--target=CONTAINER, or "
               "shareProcessNamespace: true"});
}

// The last mount on /proc is the visible one: "... /proc opts - proc proc rw,hidepid=invisible,gid=4" (proc(5),
// mountinfo).
std::string hidepid_option(const System& system) {
  const auto text = system.read_file("/proc/self/mountinfo");
  std::string value;
  if (!text) return value;
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = std::min(text->find('\n', at), text->size());
    const std::string line = text->substr(at, end - at);
    at = end + 1;
    if (!contains(line, " /proc ") || !contains(line, " - proc ")) continue;
    value.clear();
    const std::size_t option = line.find("hidepid=", line.find(" - proc "));
    if (option != std::string::npos) value = line.substr(option + 8, line.find_first_of(", ", option) - option - 8);
  }
  return value == "0" || value == "off" ? "" : value;
}

Finding check_hidepid(const System& system, const Self& self) {
  const std::string hidepid = hidepid_option(system);
  if (hidepid.empty()) return ok("hidepid", kArea, "/proc shows all processes");
  if (self.can_trace_all())
    return ok("hidepid", kArea,
              fmt::format("/proc is mounted with hidepid={}, which does not bind CAP_SYS_PTRACE", hidepid));
  return note(
      "hidepid", kArea,
      fmt::format("/proc is mounted with hidepid={}: it shows only processes that may be traced anyway", hidepid),
      {"sudo mount -o remount,hidepid=0 /proc"});
}

}  // namespace

std::vector<Finding> check_surroundings(const System& system, const Self& self) {
  return {check_container(self), check_user_namespace(system, self), check_pid_namespace(system, self),
          check_hidepid(system, self)};
}

}  // namespace rankstacks::doctor
