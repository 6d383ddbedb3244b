// The rank that a file's name states: of a core, or of what another tool has printed about a process.
#pragma once

#include <optional>
#include <string>

namespace rankstacks {
inline namespace model {

inline constexpr int kMaxRank = 10'000'000;

// "core.rank3.4711", "train_rank-12.core": the number after the word "rank".
std::optional<int> rank_from_file_name(const std::string& path);

}  // namespace model
}  // namespace rankstacks
