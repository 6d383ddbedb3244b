#include "report/json_names.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace rankstacks::report {
namespace {

// Which names stay, if of equal ones the last does. No hash table: the names may have been chosen for one to be slow.
std::vector<std::uint32_t> last_of_each(const JsonKey* const* names, std::size_t size) {
  std::vector<std::uint32_t> order(size), kept;
  std::iota(order.begin(), order.end(), 0);
  const auto text_at = [&](std::uint32_t i) { return std::tuple(names[i]->hash(), names[i]->text()); };
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tuple_cat(text_at(a), std::tuple(a)) < std::tuple_cat(text_at(b), std::tuple(b));
  });
  for (std::size_t i = 0; i < size; ++i)
    if (i + 1 == size || text_at(order[i]) != text_at(order[i + 1])) kept.push_back(order[i]);
  std::sort(kept.begin(), kept.end());
  return kept;
}

JsonNamesPool::List make_list(const JsonKey* const* names, std::size_t size) {
  std::vector<std::uint32_t> kept = last_of_each(names, size);
  if (kept.size() == size) return {JsonNames({names, names + size}), nullptr};
  std::vector<const JsonKey*> different;
  for (const std::uint32_t i : kept) different.push_back(names[i]);
  return {JsonNames(std::move(different)), std::make_unique<const JsonNamesPool::Repeated>(
                                               JsonNamesPool::Repeated{{names, names + size}, std::move(kept)})};
}

bool is_list_of(const JsonNamesPool::List& list, const JsonKey* const* names, std::size_t size) {
  if (list.repeated) {
    const std::vector<const JsonKey*>& all = list.repeated->as_they_came;
    return std::equal(names, names + size, all.begin(), all.end());
  }
  if (list.names.size() != size) return false;
  for (std::size_t i = 0; i < size; ++i)
    if (&list.names[i] != names[i]) return false;
  return true;
}

}  // namespace

JsonNames::JsonNames(std::vector<const JsonKey*> names) : names_(std::move(names)) {
  for (const JsonKey* name : names_) bits_ |= bit_of(name->hash());
  if (names_.size() <= kFew) return;
  by_hash_.reserve(names_.size());
  for (std::uint32_t i = 0; i < names_.size(); ++i) by_hash_.emplace_back(names_[i]->hash(), i);
  std::sort(by_hash_.begin(), by_hash_.end());
}

std::size_t JsonNames::find_hash(std::uint64_t hash) const {
  if (names_.size() > kFew) {
    const auto found = std::lower_bound(by_hash_.begin(), by_hash_.end(), std::pair(hash, std::uint32_t{0}));
    return found != by_hash_.end() && found->first == hash ? found->second : kNone;
  }
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (names_[i]->hash() == hash) return i;
  return kNone;
}

const JsonNamesPool::List& JsonNamesPool::of(const JsonKey* const* names, std::size_t size) {
  std::size_t hash = size;
  for (std::size_t i = 0; i < size; ++i)
    hash = (hash ^ reinterpret_cast<std::uintptr_t>(names[i])) * 0x9e3779b97f4a7c15u + (hash >> 29);
  const auto [begin, end] = lists_.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if (is_list_of(it->second, names, size)) return it->second;
  return lists_.emplace(hash, make_list(names, size))->second;
}

}  // namespace rankstacks::report
