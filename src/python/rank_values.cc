#include "python/rank_values.h"

#include <optional>
#include <string_view>
#include <vector>

#include "known/rank_values.h"
#include "python/attributes.h"
#include "python/objects.h"
#include "python/process_groups.h"
#include "python/running.h"
#include "python/string_hash.h"
#include "python/values.h"

namespace rankstacks::python {
namespace {

constexpr std::size_t kMaxModules = 65'536, kMaxGlobals = 65'536;
constexpr std::size_t kLongestName = 256, kLongestValue = 256;
constexpr std::size_t kLikelyString = 128;

// c10d::ProcessGroup: rank_ and size_, two ints, after the reference counts (one word from 2.10 on, else two) and, from
// 2.0 on, a pointer to the store. pybind11's instances hold the pointer to their C++ object right behind their head.
constexpr Address kFirstOfGroup = 2 * sizeof(Address), kLastOfGroup = 5 * sizeof(Address);

class RankValueReader {
 public:
  RankValueReader(const target::Target& target, const Runtime& runtime)
      : target_(target),
        layout_(runtime.layout),
        hash_secret_(runtime.candidate.hash_secret),
        objects_(target, layout_),
        text_(target, layout_),
        attributes_(target, layout_, objects_, text_),
        groups_(target, layout_, hash_secret_, text_, objects_),
        modules_(find_modules(runtime.candidate.runtime)) {}

  std::map<std::string, std::string> read() {
    std::map<std::string, std::string> values;
    if (modules_ == 0) return values;
    for (const known::RankValueRule& rule : known::rank_values()) {
      const Address globals = globals_of(rule.module);
      if (globals == 0) continue;
      if (auto value = text_at(globals, rule.path)) values.emplace(rule.name, std::move(*value));
    }
    if (const Address globals = globals_of(known::kC10dModule); globals != 0) read_torch(globals, values);
    return values;
  }

 private:
  // The modules of the main interpreter, which is the oldest and thus the last of the list.
  Address find_modules(Address runtime) const {
    if (layout_.interp_modules == kAbsent) return 0;
    Address last = 0, at = target_.read_value<Address>(runtime + layout_.runtime_interpreters_head).value_or(0);
    for (std::size_t n = 0; n < kMaxInterpreters && at != 0; ++n) {
      last = at;
      at = target_.read_value<Address>(at + layout_.interp_next).value_or(0);
    }
    return last == 0 ? 0 : target_.read_value<Address>(last + layout_.interp_modules).value_or(0);
  }

  bool is_string(Address object, std::string_view text) {
    const auto length = target_.read_value<std::uint64_t>(object + layout_.string_length);
    return length == text.size() && objects_.kind(object) == ObjectKind::kString &&
           text_.text(object, kLongestName) == text;
  }

  // The value of an entry of a dict with str keys; 0 if it was not found.
  Address entry(Address dict, std::string_view name, std::size_t limit) {
    // Of 3.6 a lookup by hash has missed entries of sys.modules, so its names are searched.
    constexpr int kFirstByHash = 7;
    if (hash_secret_ != 0 && layout_.minor >= kFirstByHash) {
      const auto secret = target_.read_value<HashSecret>(hash_secret_);
      const StringHash algorithm = layout_.minor >= 11 ? StringHash::kSip13 : StringHash::kSip24;
      const auto found = secret ? objects_.lookup(dict, hash_of(name, *secret, algorithm), limit,
                                                  [&](Address key) { return is_string(key, name); })
                                : std::nullopt;
      return found ? found->value : 0;
    }
    const auto entries = objects_.dict(dict, limit);
    if (!entries) return 0;
    std::vector<Range> keys;
    for (const DictEntry& one : *entries) keys.push_back(range_of(one.key, kLikelyString));
    target_.prefetch(keys);
    for (const DictEntry& one : *entries)
      if (is_string(one.key, name)) return one.value;
    return 0;
  }

  // PyModuleObject has its dict as its first field in every version. 0 if there is no such module.
  Address globals_of(std::string_view module) {
    const auto [known, is_new] = globals_.try_emplace(module, 0);
    if (!is_new) return known->second;
    const Address object = entry(modules_, module, kMaxModules);
    if (object != 0) known->second = target_.read_value<Address>(object + layout_.object_head()).value_or(0);
    if (known->second != 0 && objects_.kind(known->second) != ObjectKind::kDict) known->second = 0;
    return known->second;
  }

  std::optional<std::string> text_at(Address globals, std::string_view path) {
    std::size_t end = std::min(path.find('.'), path.size());
    Address at = entry(globals, path.substr(0, end), kMaxGlobals);
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
  const Address hash_secret_;
  ObjectReader objects_;
  CodeReader text_;
  AttributeReader attributes_;
  ProcessGroups groups_;
  const Address modules_;
  std::map<std::string_view, Address> globals_;  // by module
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
