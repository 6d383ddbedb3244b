#include "report/json_names.h"

#include <algorithm>
#include <utility>

namespace rankstacks::report {

JsonNames::JsonNames(std::vector<const JsonKey*> names) : names_(std::move(names)) {
  std::fill(std::begin(slots_), std::end(slots_), kFree);
  for (std::uint32_t i = 0; i < names_.size(); ++i) {
    const std::uint64_t hash = names_[i]->hash();
    bits_ |= bit_of(hash);
    if (names_.size() > kFew) {
      by_hash_.emplace(hash, i);
      continue;
    }
    std::size_t slot = hash % kSlots;
    while (slots_[slot] != kFree) slot = (slot + 1) % kSlots;
    slots_[slot] = static_cast<std::uint8_t>(i);
  }
}

std::size_t JsonNames::find_hash(std::uint64_t hash) const {
  if (names_.size() > kFew) {
    const auto found = by_hash_.find(hash);
    return found == by_hash_.end() ? kNone : found->second;
  }
  for (std::size_t slot = hash % kSlots; slots_[slot] != kFree; slot = (slot + 1) % kSlots)
    if (names_[slots_[slot]]->hash() == hash) return slots_[slot];
  return kNone;
}

JsonNamesPool::Known JsonNamesPool::make(const JsonKey* const* names, std::size_t size) {
  Known made;
  made.as_they_came.assign(names, names + size);
  std::unordered_map<std::string_view, std::size_t> last;
  for (std::size_t i = 0; i < size; ++i) last[names[i]->text()] = i;
  std::vector<const JsonKey*> different;
  for (std::size_t i = 0; i < size; ++i)
    if (last[names[i]->text()] == i) {
      different.push_back(names[i]);
      if (last.size() != size) made.list.kept.push_back(static_cast<std::uint32_t>(i));
    }
  made.names = std::make_unique<const JsonNames>(std::move(different));
  made.list.names = made.names.get();
  return made;
}

const JsonNamesPool::List& JsonNamesPool::of(const JsonKey* const* names, std::size_t size) {
  std::size_t hash = size;
  for (std::size_t i = 0; i < size; ++i)
    hash = (hash ^ reinterpret_cast<std::uintptr_t>(names[i])) * 0x9e3779b97f4a7c15u + (hash >> 29);
  const auto [begin, end] = known_.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if (std::equal(names, names + size, it->second.as_they_came.begin(), it->second.as_they_came.end()))
      return it->second.list;
  return known_.emplace(hash, make(names, size))->second.list;
}

}  // namespace rankstacks::report
