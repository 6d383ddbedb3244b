#include "doctor/file_checks.h"

#include "base/text.h"

#include <fmt/format.h>
#include <algorithm>

namespace rankstacks::doctor {
namespace {

constexpr std::size_t kMaxNames = 4;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

template <class Condition>
std::vector<std::string> paths_where(const TargetFacts& facts, Condition condition) {
  std::vector<std::string> paths;
  for (const FileFacts& file : facts.files)
    if (condition(file)) paths.push_back(file.path);
  return paths;
}

// "3 of 38 files"
std::string of_files(std::size_t some, std::size_t all) {
  return fmt::format("{} of {} file{}", some, all, plural(all));
}

}  // namespace

std::string list_names(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(base_name(path));
  return joined(names, ", ", kMaxNames);
}

std::vector<Finding> check_names(const TargetFacts& facts) {
  std::vector<Finding> findings;
  const auto unread = paths_where(facts, [](const FileFacts& f) { return f.unread; });
  if (!unread.empty() && unread.size() == facts.files.size()) {
    findings.push_back(note("build-ids", Area::kNames, "not known: its files cannot be read"));
    findings.push_back(note("debuginfo", Area::kNames, "not known: its files cannot be read"));
    return findings;
  }
  const std::size_t all = facts.files.size() - unread.size();
  const auto without_id = paths_where(facts, [](const FileFacts& f) { return !f.unread && f.build_id.empty(); });
  if (without_id.empty()) {
    findings.push_back(ok("build-ids", Area::kNames, fmt::format("every file has one ({})", all)));
  } else {
    findings.push_back(note("build-ids", Area::kNames,
                            fmt::format("{} have none: {}: a core's files can be checked by their first bytes alone",
                                        of_files(without_id.size(), all), list_names(without_id)),
                            {"link them with -Wl,--build-id"}));
  }
  const auto without_symbols = paths_where(facts, [](const FileFacts& f) { return !f.unread && !f.symbols; });
  const auto without_debug = paths_where(facts, [](const FileFacts& f) { return !f.unread && !f.debug_info; });
  if (without_debug.empty()) {
    findings.push_back(ok("debuginfo", Area::kNames, fmt::format("every file has debug information ({})", all)));
  } else {
    std::string found = fmt::format("{} have none: {}: native frames of them have no lines",
                                    of_files(without_debug.size(), all), list_names(without_debug));
    if (!without_symbols.empty())
      found += fmt::format("; of {} the exported names alone are known",
                           without_symbols == without_debug ? "them" : list_names(without_symbols));
    findings.push_back(note("debuginfo", Area::kNames, found,
                            {"Debian, Ubuntu: find-dbgsym-packages FILE names the packages (debian-goodies); Fedora, "
                             "RHEL: dnf debuginfo-install"}));
  }
  return findings;
}

Finding check_python(const TargetFacts& facts, Area area) {
  if (!facts.python) {
    if (base_name(facts.executable).starts_with("pypy"))
      return note("python", area,
                  fmt::format("{} is no CPython: its native frames are shown, its Python frames are not",
                              base_name(facts.executable)));
    const std::size_t unread = paths_where(facts, [](const FileFacts& f) { return f.unread; }).size();
    if (unread > 0 && unread == facts.files.size()) return note("python", area, "not known: its files cannot be read");
    if (unread > 0)
      return note("python", area, "not known: not all of its files can be read; in those that can there is none");
    return ok("python", area, "no Python in it");
  }
  const PythonFacts& python = *facts.python;
  const std::string what =
      fmt::format("CPython {} ({})", python.version.value_or("of unknown version"), base_name(python.module));
  if (python.unreadable.empty()) return ok("python", area, what + ": its state was read");
  return problem("python", area, fmt::format("{}: {}", what, python.unreadable),
                 {"CPython 3.6 to 3.15 is supported, released versions: of others native frames alone are shown"});
}

}  // namespace rankstacks::doctor
