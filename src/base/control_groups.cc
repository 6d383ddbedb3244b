#include "base/control_groups.h"

#include <algorithm>

#include "base/text.h"

namespace rankstacks {
inline namespace base {
namespace {

// No container nests groups as deeply.
constexpr std::size_t kMaxDepth = 256;

std::string_view take_word(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return word;
}

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty())
    if (take_word(list, ',') == word) return true;
  return false;
}

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

std::string without_slash(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  return path;
}

struct Mount {
  std::string root, point;  // which directory of the hierarchy is mounted where
};

// `controller`: empty for version 2.
std::vector<Mount> mounts_of(std::string_view mountinfo, std::string_view controller) {
  std::vector<Mount> mounts;
  while (!mountinfo.empty()) {
    std::string_view line = take_word(mountinfo, '\n');
    for (int i = 0; i < 3; ++i) take_word(line, ' ');
    const std::string_view root = take_word(line, ' '), point = take_word(line, ' ');
    while (!line.empty() && take_word(line, ' ') != "-") {}
    const std::string_view type = take_word(line, ' ');
    take_word(line, ' ');
    if (controller.empty() ? type == "cgroup2" : type == "cgroup" && has_word(line, controller))
      mounts.push_back({without_slash(unescaped(root)), without_slash(unescaped(point))});
  }
  return mounts;
}

std::optional<std::string> path_in(std::string_view cgroups, std::string_view controller) {
  while (!cgroups.empty()) {
    std::string_view line = take_word(cgroups, '\n');
    const std::string_view hierarchy = take_word(line, ':'), controllers = take_word(line, ':');
    const bool is_it = controller.empty() ? hierarchy == "0" && controllers.empty() : has_word(controllers, controller);
    if (is_it && line.starts_with('/')) return std::string(line);
  }
  return std::nullopt;
}

std::optional<ControlGroup> control_group(std::string_view cgroups, std::string_view mountinfo,
                                          std::string_view controller) {
  const auto path = path_in(cgroups, controller);
  const std::vector<Mount> mounts = path ? mounts_of(mountinfo, controller) : std::vector<Mount>();
  if (mounts.empty()) return std::nullopt;
  const bool leads_out = contains(*path, "..");
  for (const Mount& mount : mounts)
    if (!leads_out && (*path == mount.root || path->starts_with(mount.root + '/')))
      return ControlGroup{mount.point, without_slash(mount.point + path->substr(mount.root.size())), true};
  const std::string& point = mounts.front().point;
  return ControlGroup{point, leads_out ? point : without_slash(point + *path), false};
}

}  // namespace

std::vector<std::string> ControlGroup::directories() const {
  std::vector<std::string> all = {directory};
  while (all.back().size() > mount.size() && all.size() < kMaxDepth)
    all.push_back(without_slash(all.back().substr(0, all.back().rfind('/'))));
  return all;
}

std::optional<ControlGroup> control_group_v2(std::string_view cgroups, std::string_view mountinfo) {
  return control_group(cgroups, mountinfo, "");
}

std::optional<ControlGroup> control_group_v1(std::string_view cgroups, std::string_view mountinfo,
                                             std::string_view controller) {
  return control_group(cgroups, mountinfo, controller);
}

}  // namespace base
}  // namespace rankstacks
