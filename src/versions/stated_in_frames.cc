#include "versions/stated_in_frames.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "known/components.h"
#include "versions/version_texts.h"

namespace rankstacks::versions {
namespace {

struct Stated {
  std::string component, path, version;
  bool contradicted = false;
};

// "3.11" at the start of the text, followed by what is no number.
std::string python_version_at(std::string_view text) {
  constexpr std::string_view kMajor = "3.";
  if (!text.starts_with(kMajor)) return "";
  const std::size_t end = std::min(text.find_first_not_of("0123456789", kMajor.size()), text.size());
  constexpr std::size_t kLongestMinor = 2;
  if (end == kMajor.size() || end - kMajor.size() > kLongestMinor) return "";
  return std::string(text.substr(0, end));
}

// "libtorch_cpu.so.1.13", "python3.11", "libpython3.11.so.1.0".
std::optional<Stated> stated_by_module(const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  const known::ComponentRule* rule = known::component_of(name);
  if (rule == nullptr) return std::nullopt;
  std::string version;
  constexpr std::string_view kPythonName = "python";
  if (rule->component == known::kPython) {
    const std::size_t at = name.find(kPythonName);
    if (at != std::string_view::npos) version = python_version_at(name.substr(at + kPythonName.size()));
  } else if (rule->named_by_release) version = version_of_file_name(name, rule->names_major);
  if (version.empty()) return std::nullopt;
  return Stated{std::string(rule->component), path, std::move(version)};
}

// The directory of the interpreter's own library, or of packages below it: "/usr/lib/python3.11/queue.py".
std::optional<Stated> stated_by_source(const std::string& file) {
  for (const std::string_view before : {"/lib/python", "/lib64/python"}) {
    const std::size_t at = file.find(before);
    if (at == std::string::npos) continue;
    std::string version = python_version_at(std::string_view(file).substr(at + before.size()));
    const std::size_t end = at + before.size() + version.size();
    if (version.empty() || end >= file.size() || file[end] != '/') continue;
    return Stated{std::string(known::kPython), file.substr(0, end), std::move(version)};
  }
  return std::nullopt;
}

std::optional<Stated> stated_by(const Frame& frame) {
  if (frame.kind == FrameKind::kNative) return stated_by_module(frame.module);
  if (frame.kind == FrameKind::kPython && frame.file) return stated_by_source(*frame.file);
  return std::nullopt;
}

}  // namespace

void add_modules_of_frames(JobSnapshot& job) {
  constexpr std::size_t kMaxModules = 256;
  std::vector<std::optional<Stated>> stated(job.frames.size());
  for (FrameId id = 0; id < stated.size(); ++id) stated[id] = stated_by(job.frames[id]);
  for (RankSnapshot& rank : job.ranks) {
    if (rank.environment || !rank.modules.empty()) continue;
    std::map<std::string, Stated> of_component;
    for (const ThreadSnapshot& thread : rank.threads)
      for (const FrameId id : thread.frames) {
        if (!stated[id]) continue;
        const auto [it, is_new] = of_component.try_emplace(stated[id]->component, *stated[id]);
        Stated& known = it->second;
        if (is_new || known.contradicted) continue;
        known.contradicted = !known::may_be_same_version(known.version, stated[id]->version);
        if (!known.contradicted && stated[id]->version.size() > known.version.size()) known = *stated[id];
      }
    for (auto& [component, one] : of_component)
      if (!one.contradicted && rank.modules.size() < kMaxModules)
        rank.modules.push_back({.component = component,
                                .path = std::move(one.path),
                                .build_id = "",
                                .version = std::move(one.version),
                                .from = VersionFrom::kFileName,
                                .cuda = ""});
  }
}

}  // namespace rankstacks::versions
