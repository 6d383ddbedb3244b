#include "python/loaded_modules.h"

#include <optional>
#include <vector>

#include "python/string_hash.h"

namespace rankstacks::python {
namespace {

constexpr std::size_t kLongestName = 256;
constexpr std::size_t kLikelyString = 128;

}  // namespace

LoadedModules::LoadedModules(const target::Target& target, const Runtime& runtime, ObjectReader& objects,
                             CodeReader& text)
    : target_(target),
      layout_(runtime.layout),
      hash_secret_(runtime.candidate.hash_secret),
      objects_(objects),
      text_(text),
      modules_(find_modules(runtime.candidate.runtime)) {}

// The modules of the main interpreter, which is the oldest and thus the last of the list.
Address LoadedModules::find_modules(Address runtime) const {
  if (layout_.interp_modules == kAbsent) return 0;
  Address last = 0, at = target_.read_value<Address>(runtime + layout_.runtime_interpreters_head).value_or(0);
  for (std::size_t n = 0; n < kMaxInterpreters && at != 0; ++n) {
    last = at;
    at = target_.read_value<Address>(at + layout_.interp_next).value_or(0);
  }
  return last == 0 ? 0 : target_.read_value<Address>(last + layout_.interp_modules).value_or(0);
}

bool LoadedModules::is_string(Address object, std::string_view text) {
  const auto length = target_.read_value<std::uint64_t>(object + layout_.string_length);
  return length == text.size() && objects_.kind(object) == ObjectKind::kString &&
         text_.text(object, kLongestName) == text;
}

Address LoadedModules::entry(Address dict, std::string_view name, std::size_t limit) {
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

// PyModuleObject has its dict as its first field in every version.
Address LoadedModules::globals_of(std::string_view module) {
  if (modules_ == 0) return 0;
  const auto [known, is_new] = globals_.try_emplace(module, 0);
  if (!is_new) return known->second;
  const Address object = entry(modules_, module, kMaxModules);
  if (object != 0) known->second = target_.read_value<Address>(object + layout_.object_head()).value_or(0);
  if (known->second != 0 && objects_.kind(known->second) != ObjectKind::kDict) known->second = 0;
  return known->second;
}

}  // namespace rankstacks::python
