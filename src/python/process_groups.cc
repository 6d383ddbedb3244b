#include "python/process_groups.h"

#include <algorithm>
#include <limits>

#include "python/group_object.h"
#include "python/string_hash.h"

namespace rankstacks::python {
namespace {

constexpr std::size_t kMaxGlobals = 65'536, kMaxGroups = 65'536, kMaxRanks = 1u << 20;
constexpr std::size_t kLongestName = 256;  // of a group: "0", or a hash in hex
constexpr std::size_t kLikelyString = 128;

constexpr std::string_view kNames = "_pg_names", kRanks = "_pg_group_ranks";

const Address* value_of(const std::vector<DictEntry>& entries, Address key) {
  const auto it = std::find_if(entries.begin(), entries.end(), [&](const DictEntry& e) { return e.key == key; });
  return it == entries.end() ? nullptr : &it->value;
}

}  // namespace

bool ProcessGroups::is_string(Address object, std::string_view text) {
  const auto length = target_.read_value<std::uint64_t>(object + layout_.string_length);
  return length == text.size() && objects_.kind(object) == ObjectKind::kString &&
         codes_.text(object, kLongestName) == text;
}

// The value of a global. 0 if it was not found, which does not prove that it does not exist.
Address ProcessGroups::find_by_hash(Address globals, std::string_view name) {
  const auto secret = hash_secret_ != 0 ? target_.read_value<HashSecret>(hash_secret_) : std::nullopt;
  if (!secret) return 0;
  const StringHash algorithm = layout_.minor >= 11 ? StringHash::kSip13 : StringHash::kSip24;
  const auto entry = objects_.lookup(globals, hash_of(name, *secret, algorithm), kMaxGlobals,
                                     [&](Address key) { return is_string(key, name); });
  return entry ? entry->value : 0;
}

void ProcessGroups::find_by_names(Address globals, Address& names, Address& ranks) {
  const auto entries = objects_.dict(globals, std::min(kMaxGlobals, entries_left_));
  if (!entries) return;
  entries_left_ -= entries->size();
  // The names of about 400 globals are scattered over the heap. The names that are needed come early, so they are read
  // in parts.
  constexpr std::size_t kPart = 128;
  for (std::size_t begin = 0; begin < entries->size() && (names == 0 || ranks == 0); begin += kPart) {
    const std::size_t end = std::min(begin + kPart, entries->size());
    std::vector<Range> keys;
    for (std::size_t i = begin; i < end; ++i) {
      const Address key = (*entries)[i].key;
      keys.push_back({key, key > ~Address{0} - kLikelyString ? ~Address{0} : key + kLikelyString});
    }
    target_.prefetch(keys);
    for (std::size_t i = begin; i < end; ++i) {
      const auto [key, value] = (*entries)[i];
      if (is_string(key, kNames)) names = value;
      if (is_string(key, kRanks)) ranks = value;
    }
  }
}

const ProcessGroups::Module& ProcessGroups::module(Address globals) {
  const auto [known, is_new] = modules_.try_emplace(globals);
  Module& module = known->second;
  if (!is_new) return module;
  Address names = find_by_hash(globals, kNames), ranks = names != 0 ? find_by_hash(globals, kRanks) : 0;
  if (names == 0 || ranks == 0) find_by_names(globals, names, ranks);
  for (const auto& [dict, into] : {std::pair{names, &module.names}, {ranks, &module.ranks}}) {
    auto found = dict != 0 ? objects_.dict(dict, std::min(kMaxGroups, entries_left_)) : std::nullopt;
    if (!found) continue;
    entries_left_ -= found->size();
    *into = std::move(*found);
  }
  return module;
}

// The members in the group's order. Empty if they are not known, or are not the numbers 0 to n - 1 assigned to n
// different ranks.
std::vector<int> ProcessGroups::members(const Module& module, Address object) {
  const Address* dict = value_of(module.ranks, object);
  const auto entries = dict ? objects_.dict(*dict, std::min(kMaxRanks, entries_left_)) : std::nullopt;
  if (!entries) return {};
  entries_left_ -= entries->size();
  std::vector<Address> numbers;
  for (const auto& [key, value] : *entries) numbers.insert(numbers.end(), {key, value});
  objects_.prefetch(numbers);
  std::vector<int> ranks(entries->size(), -1);
  for (const auto& [key, value] : *entries) {
    const auto rank = objects_.integer(key), place = objects_.integer(value);
    if (!rank || !place || *rank < 0 || *rank > std::numeric_limits<int>::max()) return {};
    if (*place < 0 || static_cast<std::uint64_t>(*place) >= ranks.size() ||
        ranks[static_cast<std::size_t>(*place)] != -1)
      return {};
    ranks[static_cast<std::size_t>(*place)] = static_cast<int>(*rank);
  }
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() ? ranks : std::vector<int>{};
}

const ProcessGroup* ProcessGroups::find(Address globals, Address object) {
  const auto [known, is_new] = groups_.try_emplace({globals, object});
  std::optional<ProcessGroup>& group = known->second;
  if (is_new) {
    const Module& known_groups = module(globals);
    // GroupMember.NON_GROUP_MEMBER, a placeholder for groups that this rank is not in, has members but no name.
    if (const Address* name = value_of(known_groups.names, object)) {
      group = ProcessGroup{};
      if (objects_.kind(*name) == ObjectKind::kString) group->name = codes_.text(*name, kLongestName).value_or("");
      group->ranks = members(known_groups, object);
      if (const auto cxx = read_group_object(target_, layout_, object, group->ranks.size()))
        group->description = cxx->description;
    }
  }
  return group ? &*group : nullptr;
}

std::vector<Address> ProcessGroups::objects(Address globals) {
  std::vector<Address> objects;
  for (const DictEntry& entry : module(globals).names) objects.push_back(entry.key);
  return objects;
}

Address ProcessGroups::default_object(Address globals) {
  // The default group is the oldest entry of both dicts, and dicts keep their order: it is made before any other group
  // can be, and when it is destroyed both dicts are cleared (destroy_process_group(), shrink_group()). The other place
  // where it is kept varies: GroupMember.WORLD up to 1.13, later an attribute of an instance, whose layout also differs
  // by CPython version.
  const Module& known_groups = module(globals);
  if (known_groups.names.empty() || known_groups.ranks.empty() ||
      known_groups.names[0].key != known_groups.ranks[0].key)
    return 0;
  return known_groups.names[0].key;
}

const ProcessGroup* ProcessGroups::default_group(Address globals) {
  const Address object = default_object(globals);
  return object != 0 ? find(globals, object) : nullptr;
}

}  // namespace rankstacks::python
