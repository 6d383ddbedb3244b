#include "model/file_rank.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace rankstacks {
inline namespace model {

std::optional<int> rank_from_file_name(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (std::size_t at = name.find("rank"); at != std::string::npos; at = name.find("rank", at + 1)) {
    if (at > 0 && std::isalpha(static_cast<unsigned char>(name[at - 1]))) continue;  // "frank-2"
    std::size_t digits = at + 4;
    if (digits < name.size() &&
        (name[digits] == '-' || name[digits] == '_' || name[digits] == '.' || name[digits] == '='))
      ++digits;
    int value = 0;
    const auto [p, e] = std::from_chars(name.data() + digits, name.data() + name.size(), value);
    if (e == std::errc() && value >= 0 && value <= kMaxRank) return value;
  }
  return std::nullopt;
}

}  // namespace model
}  // namespace rankstacks
