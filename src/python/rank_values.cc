#include "python/rank_values.h"

#include <optional>
#include <string_view>
#include <vector>

#include "known/rank_values.h"
#include "python/attributes.h"
#include "python/loaded_modules.h"
#include "python/objects.h"
#include "python/process_groups.h"
#include "python/running.h"
#include "python/values.h"

namespace rankstacks::python {
namespace {

constexpr std::size_t kLongestValue = 256;

// c10d::ProcessGroup: rank_ and size_, two ints, after the reference counts (one word from 2.10 on, else two) and, from
// 2.0 on, a pointer to the store. pybind11's instances hold the pointer to their C++ object right behind their head.
constexpr Address kFirstOfGroup = 2 * sizeof(Address), kLastOfGroup = 5 * sizeof(Address);

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
  std::optional<std::string> text_at(Address globals, std::string_view path) {
    std::size_t end = std::min(path.find('.'), path.size());
    Address at = modules_.entry(globals, path.substr(0, end), kMaxGlobals);
    while (at != 0 && end < path.size()) {
      path.remove_prefix(end + 1);
      end = std::min(path.find('.'), path.size());
      at = attributes_.find(at, path.substr(0, end)).value_or(0);
    }
    if (at == 0) return std::nullopt;
    if (const auto number = objects_.integer(at)) return std::to_string(*number);
    return objects_.kind(at) == ObjectKind::kString ? text_.text(at, kLongestValue) : std::nullopt;
  }

  // The default group's size is that of its members; its own rank is the int before the int of that size.
  void read_torch(Address globals, std::map<std::string, std::string>& values) {
    const ProcessGroup* group = groups_.default_group(globals);
    const Address object = groups_.default_object(globals);
    if (group == nullptr || object == 0 || group->ranks.size() < 2) return;
    const Address cxx = target_.read_value<Address>(object + layout_.object_head()).value_or(0);
    std::optional<std::int32_t> rank;
    for (Address at = kFirstOfGroup; cxx != 0 && at <= kLastOfGroup; at += sizeof(Address)) {
      const auto first = target_.read_value<std::int32_t>(cxx + at),
                 second = target_.read_value<std::int32_t>(cxx + at + sizeof(std::int32_t));
      if (!first || !second || static_cast<std::size_t>(*second) != group->ranks.size() || *first < 0 ||
          *first >= *second)
        continue;
      if (rank) return;
      rank = first;
    }
    if (!rank) return;
    values.emplace(known::kTorchRank, std::to_string(*rank));
    values.emplace(known::kTorchWorldSize, std::to_string(group->ranks.size()));
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
