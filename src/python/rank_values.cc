#include "python/rank_values.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "known/group_axes.h"
#include "known/rank_values.h"
#include "python/attributes.h"
#include "python/group_object.h"
#include "python/loaded_modules.h"
#include "python/objects.h"
#include "python/process_groups.h"
#include "python/running.h"
#include "python/values.h"

namespace rankstacks::python {
namespace {

constexpr std::size_t kLongestValue = 256;

// Of the process groups of one process, from the oldest on, descriptions are read.
constexpr std::size_t kMaxDescribed = 1024;

class RankValueReader {
 public:
  RankValueReader(const target::Target& target, const Runtime& runtime)
      : target_(target),
        layout_(runtime.layout),
        objects_(target, layout_),
        text_(target, layout_),
        attributes_(target, layout_, objects_, text_),
        groups_(target, layout_, runtime.candidate.hash_secret, text_, objects_),
        modules_(target, runtime, objects_, text_) {}

  std::map<std::string, std::string> read() {
    std::map<std::string, std::string> values;
    for (const known::RankValueRule& rule : known::rank_values()) {
      const Address globals = modules_.globals_of(rule.module);
      if (globals == 0) continue;
      if (auto value = text_at(globals, rule.path)) values.emplace(rule.name, std::move(*value));
    }
    if (const Address globals = modules_.globals_of(known::kC10dModule); globals != 0) read_torch(globals, values);
    return values;
  }

 private:
  // The value of a global, or of an attribute of it; 0 if there is none.
  Address object_at(Address globals, std::string_view path) {
    std::size_t end = std::min(path.find('.'), path.size());
    Address at = modules_.entry(globals, path.substr(0, end), kMaxGlobals);
    while (at != 0 && end < path.size()) {
      path.remove_prefix(end + 1);
      end = std::min(path.find('.'), path.size());
      at = attributes_.find(at, path.substr(0, end)).value_or(0);
    }
    return at;
  }

  std::optional<std::string> text_at(Address globals, std::string_view path) {
    const Address at = object_at(globals, path);
    if (at == 0) return std::nullopt;
    if (const auto number = objects_.integer(at)) return std::to_string(*number);
    return objects_.kind(at) == ObjectKind::kString ? text_.text(at, kLongestValue) : std::nullopt;
  }

  // The default group's own rank is that of the process.
  void read_torch(Address globals, std::map<std::string, std::string>& values) {
    const ProcessGroup* group = groups_.default_group(globals);
    const Address object = groups_.default_object(globals);
    if (group == nullptr || object == 0 || group->ranks.size() < 2) return;
    const auto cxx = read_group_object(target_, layout_, object, group->ranks.size());
    if (!cxx) return;
    values.emplace(known::kTorchRank, std::to_string(cxx->rank));
    values.emplace(known::kTorchWorldSize, std::to_string(group->ranks.size()));
    read_layout(globals, cxx->rank, values);
  }

  // Place and size on each axis. Axes of one framework only: each has its own idea of what an axis is.
  using Axes = std::map<std::string_view, std::pair<std::size_t, std::size_t>>;

  void read_layout(Address c10d, std::int32_t rank, std::map<std::string, std::string>& values) {
    Axes axes;
    const auto rules = known::group_axes();
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const known::GroupAxisRule& rule = rules[i];
      if (const Address globals = modules_.globals_of(rule.module); globals != 0)
        if (const auto place = place_in(c10d, object_at(globals, rule.path), rank)) axes.emplace(rule.axis, *place);
      const bool last = i + 1 == rules.size() || rules[i + 1].framework != rule.framework;
      if (last && add_layout(rule.framework, axes, values)) return;
      if (last) axes.clear();
    }
    add_layout(known::kDeviceMesh, mesh_axes(c10d, rank), values);
  }

  // By the descriptions of groups. A dimension that two groups have, of which the process has different places, says
  // nothing: the program has several meshes.
  Axes mesh_axes(Address c10d, std::int32_t rank) {
    Axes axes;
    std::set<std::string_view> ambiguous;
    std::vector<Address> groups = groups_.objects(c10d);
    groups.resize(std::min(groups.size(), kMaxDescribed));
    for (const Address object : groups) {
      const ProcessGroup* group = groups_.find(c10d, object);
      if (group == nullptr || !group->description.starts_with(known::kMeshDescription)) continue;
      const std::string_view name = std::string_view(group->description).substr(known::kMeshDescription.size());
      const auto rules = known::mesh_dimensions();
      const auto rule = std::find_if(rules.begin(), rules.end(), [&](const auto& one) { return one.name == name; });
      const auto place = rule != rules.end() ? place_in(c10d, object, rank) : std::nullopt;
      if (!place) continue;
      if (const auto [known, is_new] = axes.emplace(rule->axis, *place); !is_new && known->second != *place)
        ambiguous.insert(rule->axis);
    }
    for (const std::string_view axis : ambiguous) axes.erase(axis);
    return axes;
  }

  // Where the process is among the members, and how many these are; std::nullopt if it is not one of them.
  std::optional<std::pair<std::size_t, std::size_t>> place_in(Address c10d, Address object, std::int32_t rank) {
    const ProcessGroup* group = object != 0 ? groups_.find(c10d, object) : nullptr;
    if (group == nullptr) return std::nullopt;
    const auto own = std::find(group->ranks.begin(), group->ranks.end(), rank);
    if (own == group->ranks.end()) return std::nullopt;
    return std::pair(static_cast<std::size_t>(own - group->ranks.begin()), group->ranks.size());
  }

  // Whether the axes divide the job at all.
  static bool add_layout(std::string_view framework, const Axes& axes, std::map<std::string, std::string>& values) {
    if (std::none_of(axes.begin(), axes.end(), [](const auto& axis) { return axis.second.second > 1; })) return false;
    values.emplace(known::kLayoutFramework, framework);
    for (const auto& [axis, place] : axes)
      values.emplace(fmt::format("{}{}", known::kLayoutAxis, axis), fmt::format("{}/{}", place.first, place.second));
    return true;
  }

  const target::Target& target_;
  const Layout& layout_;
  ObjectReader objects_;
  CodeReader text_;
  AttributeReader attributes_;
  ProcessGroups groups_;
  LoadedModules modules_;
};

}  // namespace

std::map<std::string, std::string> read_rank_values(const target::Target& target,
                                                    std::span<const RuntimeCandidate> candidates) {
  if (candidates.empty()) return {};
  std::vector<Problem> problems;
  const auto runtime = find_running(target, candidates, problems);
  return runtime ? RankValueReader(target, *runtime).read() : std::map<std::string, std::string>{};
}

}  // namespace rankstacks::python
