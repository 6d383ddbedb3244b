#include "target/freezer.h"

#include <fmt/format.h>
#include <algorithm>

#include "target/proc.h"

namespace rankstacks::target {
namespace {

constexpr std::size_t kMaxFile = 64 << 10, kMaxMounts = 4 << 20;
// Of nested groups; the kernel's own limit for containers' nesting is far below.
constexpr std::size_t kMaxDepth = 256;

std::string_view take_word(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return word;
}

// mountinfo writes a space, a tab, a newline and a backslash as \ooo (fs/proc_namespace.c, mangle()).
std::string unescaped(std::string_view text) {
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view digits = text.substr(std::min(i + 1, text.size()), 3);
    if (text[i] == '\\' && digits.size() == 3 && std::all_of(digits.begin(), digits.end(), is_octal)) {
      plain += static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty())
    if (take_word(list, ',') == word) return true;
  return false;
}

struct Mount {
  std::string root, at;  // which directory of the hierarchy is mounted where
};

// "36 35 98:0 /root /mount/point rw,noatime shared:1 - type source options"
std::vector<Mount> mounts_of(std::string_view mountinfo, int version) {
  std::vector<Mount> mounts;
  while (!mountinfo.empty()) {
    std::string_view line = take_word(mountinfo, '\n');
    for (int i = 0; i < 3; ++i) take_word(line, ' ');
    const std::string_view root = take_word(line, ' '), at = take_word(line, ' ');
    while (!line.empty() && take_word(line, ' ') != "-") {}
    const std::string_view type = take_word(line, ' ');
    take_word(line, ' ');
    if (version == 2 ? type == "cgroup2" : type == "cgroup" && has_word(line, "freezer"))
      mounts.push_back({unescaped(root), unescaped(at)});
  }
  return mounts;
}

// "6:freezer:/path" of version 1, "0::/path" of version 2. std::nullopt: there is none, or it is outside of what the
// tool sees of the hierarchy ("/..").
std::optional<std::string> group_in(std::string_view cgroups, int version) {
  while (!cgroups.empty()) {
    std::string_view line = take_word(cgroups, '\n');
    const std::string_view hierarchy = take_word(line, ':'), controllers = take_word(line, ':');
    if (version == 2 ? hierarchy != "0" || !controllers.empty() : !has_word(controllers, "freezer")) continue;
    if (!line.starts_with('/') || line.starts_with("/..")) return std::nullopt;
    return std::string(line);
  }
  return std::nullopt;
}

std::string without_slash(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  return path;
}

// The directory of the group below one of the mounts, and how many of its last parts are groups (its own root is none
// that could be frozen).
struct Directory {
  std::string path;
  std::size_t mount = 0;  // the length of the mount point in it
};

std::optional<Directory> directory_of(const std::string& group, const std::vector<Mount>& mounts) {
  for (const Mount& mount : mounts) {
    const std::string root = without_slash(mount.root), at = without_slash(mount.at);
    if (group != root && !group.starts_with(root + '/')) continue;
    return Directory{without_slash(at + group.substr(root.size())), at.size()};
  }
  return std::nullopt;
}

std::string first_word(const std::string& path) {
  auto text = proc::read_file(path, kMaxFile);
  if (!text) return "";
  text->resize(std::min(text->size(), text->find_first_of(" \n")));
  return *text;
}

// Whether "frozen 1" is a line of cgroup.events.
bool says_frozen(std::string_view events) {
  while (!events.empty())
    if (take_word(events, '\n') == "frozen 1") return true;
  return false;
}

// Adds the switches that are on; returns whether any is.
bool add_switches(const Directory& directory, Freeze& freeze) {
  const bool is_first_version = freeze.version == 1;
  std::string path = directory.path;
  for (std::size_t depth = 0; path.size() > directory.mount && depth < kMaxDepth; ++depth) {
    if (first_word(path + (is_first_version ? "/freezer.self_freezing" : "/cgroup.freeze")) == "1")
      freeze.switches.push_back(path + (is_first_version ? "/freezer.state" : "/cgroup.freeze"));
    path.resize(path.rfind('/'));
  }
  return !freeze.switches.empty();
}

std::optional<Freeze> freeze_of(std::string_view cgroups, std::string_view mountinfo, int version) {
  const auto group = group_in(cgroups, version);
  const auto directory = group ? directory_of(*group, mounts_of(mountinfo, version)) : std::nullopt;
  if (!directory) return std::nullopt;
  Freeze freeze{.version = version, .group = directory->path};
  if (version == 1) {
    const std::string state = first_word(directory->path + "/freezer.state");
    freeze.is_complete = state == "FROZEN";
    if (!freeze.is_complete && state != "FREEZING") return std::nullopt;
    add_switches(*directory, freeze);
    return freeze;
  }
  freeze.is_complete = says_frozen(proc::read_file(directory->path + "/cgroup.events", kMaxFile).value_or(""));
  if (!add_switches(*directory, freeze) && !freeze.is_complete) return std::nullopt;
  return freeze;
}

Result<std::string> groups_of(Pid pid, Tid tid) {
  return proc::read_file(fmt::format("/proc/{}/task/{}/cgroup", pid, tid), kMaxFile);
}

}  // namespace

std::optional<Freeze> freeze_of(std::string_view cgroups, std::string_view mountinfo) {
  if (auto freeze = freeze_of(cgroups, mountinfo, 2)) return freeze;
  return freeze_of(cgroups, mountinfo, 1);
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
    thaw +=
        fmt::format("{}echo {} > {}", thaw.empty() ? "thaw it: " : "; ", freeze.version == 1 ? "THAWED" : "0", file);
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
