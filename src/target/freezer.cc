#include "target/freezer.h"

#include <fmt/format.h>
#include <algorithm>

#include "base/control_groups.h"
#include "base/shell_quoted.h"
#include "base/text.h"
#include "target/proc.h"

namespace rankstacks::target {
namespace {

constexpr std::size_t kMaxFile = 64 << 10, kMaxMounts = 4 << 20;

std::string first_word(const std::string& path) {
  auto text = proc::read_file(path, kMaxFile);
  if (!text) return "";
  text->resize(std::min(text->size(), text->find_first_of(" \n")));
  return *text;
}

// Whether "frozen 1" is a line of cgroup.events.
bool says_frozen(const std::string& events) { return contains('\n' + events, "\nfrozen 1\n"); }

// Adds the switches that are on; returns whether any is. The mounted root is no group that could be frozen.
bool add_switches(const ControlGroup& group, Freeze& freeze) {
  std::vector<std::string> directories = group.directories();
  directories.pop_back();
  for (const std::string& directory : directories)
    if (first_word(directory + (freeze.version == 1 ? "/freezer.self_freezing" : "/cgroup.freeze")) == "1")
      freeze.switches.push_back(directory + (freeze.version == 1 ? "/freezer.state" : "/cgroup.freeze"));
  return !freeze.switches.empty();
}

std::optional<Freeze> freeze_of(const std::optional<ControlGroup>& group, int version) {
  if (!group || !group->is_visible) return std::nullopt;
  Freeze freeze{.version = version, .group = group->directory};
  if (version == 1) {
    const std::string state = first_word(group->directory + "/freezer.state");
    freeze.is_complete = state == "FROZEN";
    if (!freeze.is_complete && state != "FREEZING") return std::nullopt;
    add_switches(*group, freeze);
    return freeze;
  }
  freeze.is_complete = says_frozen(proc::read_file(group->directory + "/cgroup.events", kMaxFile).value_or(""));
  if (!add_switches(*group, freeze) && !freeze.is_complete) return std::nullopt;
  return freeze;
}

Result<std::string> groups_of(Pid pid, Tid tid) {
  return proc::read_file(fmt::format("/proc/{}/task/{}/cgroup", pid, tid), kMaxFile);
}

}  // namespace

std::optional<Freeze> freeze_of(std::string_view cgroups, std::string_view mountinfo) {
  if (auto freeze = freeze_of(control_group_v2(cgroups, mountinfo), 2)) return freeze;
  return freeze_of(control_group_v1(cgroups, mountinfo, "freezer"), 1);
}

std::optional<Freeze> freeze_of(Pid pid, Tid tid) {
  const auto cgroups = groups_of(pid, tid);
  const auto mountinfo =
      cgroups ? proc::read_file("/proc/self/mountinfo", kMaxMounts) : Result<std::string>(std::string());
  return cgroups && mountinfo ? freeze_of(*cgroups, *mountinfo) : std::nullopt;
}

bool has_groups_of(Pid pid, Tid tid, Tid other) {
  const auto mine = groups_of(pid, tid), others = groups_of(pid, other);
  return mine && others && *mine == *others;
}

Problem problem_of(const Freeze& freeze) {
  std::string thaw;
  for (const std::string& file : freeze.switches) {
    // Who may make a control group chooses its name.
    thaw += fmt::format("{}echo {} > {}", thaw.empty() ? "thaw it: " : "; ", freeze.version == 1 ? "THAWED" : "0",
                        shell_quoted(file));
  }
  if (thaw.empty()) thaw = "thaw the group around it, which is not visible from here";
  thaw += ", or as it was frozen: docker unpause, podman unpause, systemctl thaw, scontrol resume";
  return {
      freeze.is_complete
          ? fmt::format("its control group {} is frozen: none of its threads runs until it is thawed", freeze.group)
          : fmt::format("its control group {} is being frozen, and some of its threads are not yet: one may wait in "
                        "the kernel where nothing reaches it (state D)",
                        freeze.group),
      thaw};
}

}  // namespace rankstacks::target
