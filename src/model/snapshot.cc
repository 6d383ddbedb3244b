#include "model/snapshot.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace rankstacks {
inline namespace model {
namespace {

void mix(std::size_t& seed, std::size_t value) { seed ^= value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2); }

std::size_t hash_of(const Frame& f) {
  std::size_t seed = static_cast<std::size_t>(f.kind) * 31 + static_cast<std::size_t>(f.inlined) * 7 +
                     static_cast<std::size_t>(f.origin);
  std::hash<std::string> text;
  mix(seed, f.function ? text(*f.function) : 1);
  mix(seed, f.qualname ? text(*f.qualname) : 2);
  mix(seed, text(f.module));
  mix(seed, f.file ? text(*f.file) : 3);
  mix(seed, static_cast<std::size_t>(f.line.value_or(-1)));
  mix(seed, f.address);
  mix(seed, f.offset.value_or(4));
  return seed;
}

}  // namespace

FrameId FrameTable::intern(Frame frame) {
  const std::size_t hash = hash_of(frame);
  auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (frames_[it->second] == frame) return it->second;
  const FrameId id = static_cast<FrameId>(frames_.size());
  frames_.push_back(std::move(frame));
  by_hash_.emplace(hash, id);
  return id;
}

void sort_axes(Coordinates& coordinates) {
  constexpr std::string_view kOrder[] = {"pp", "dp", "dp_replicate", "dp_shard", "cp", "ep", "tp"};
  std::stable_sort(coordinates.axes.begin(), coordinates.axes.end(), [&](const auto& a, const auto& b) {
    return std::find(std::begin(kOrder), std::end(kOrder), a.first) <
           std::find(std::begin(kOrder), std::end(kOrder), b.first);
  });
}

std::optional<int> Coordinates::operator[](std::string_view axis) const {
  for (const auto& [name, value] : axes)
    if (name == axis) return value;
  return std::nullopt;
}

std::string rank_label(const RankSnapshot& rank) {
  if (rank.rank && rank.kind == RankKind::kRank) return std::to_string(*rank.rank);
  // A core that does not even state its pid is identified by the name of its file.
  if (rank.pid == 0 && rank.path) return rank.path->substr(rank.path->rfind('/') + 1);
  return fmt::format("{}:{}{}", rank.host, rank.pid, rank.name_suffix);
}

}  // namespace model
}  // namespace rankstacks
