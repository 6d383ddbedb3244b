#include "dumps/prefixes.h"

#include <algorithm>
#include <array>
#include <optional>

#include "dumps/cursor.h"
#include "dumps/readers.h"
#include "model/file_rank.h"

namespace rankstacks::dumps {
namespace {

// Each takes the prefix from the line; std::nullopt if the line has another one, or none.
using Prefix = std::optional<int> (*)(Cursor& line);

std::optional<int> bounded(std::optional<int> rank) { return rank && *rank <= kMaxRank ? rank : std::nullopt; }

// "[rank3]: ", "[default3]:", "[trainer3]:"
std::optional<int> of_torch(Cursor& line) {
  if (!line.take("[")) return std::nullopt;
  const auto word = line.until("]:");
  if (!word) return std::nullopt;
  const std::size_t digits = std::min(word->find_first_of("0123456789"), word->size());
  if (digits == 0 || !std::all_of(word->begin(), word->begin() + static_cast<std::ptrdiff_t>(digits),
                                  [](unsigned char c) { return std::isalpha(c) || c == '_' || c == '-'; }))
    return std::nullopt;
  line.take(" ");
  return bounded(number_of<int>(word->substr(digits)));
}

// " 3: ": srun aligns the numbers to the right.
std::optional<int> of_srun(Cursor& line) {
  line.blanks();
  const auto rank = line.number<int>();
  if (!rank || !line.take(":")) return std::nullopt;
  if (!line.take(" ") && !line.rest().empty()) return std::nullopt;
  return bounded(rank);
}

// "[1,3]<stderr>:", "[job.1,3]<stdout>: "
std::optional<int> of_mpirun(Cursor& line) {
  if (!line.take("[")) return std::nullopt;
  const auto job = line.until(",");
  const auto rank = line.number<int>();
  if (!job || !rank || !line.take("]<std") || !line.until(">:")) return std::nullopt;
  line.take(" ");
  return bounded(rank);
}

constexpr std::array<Prefix, 3> kPrefixes = {of_torch, of_srun, of_mpirun};

}  // namespace

std::map<int, std::string> split_by_rank(std::string_view text) {
  std::array<std::size_t, kPrefixes.size()> lines_with{};
  std::size_t lines = 0;
  each_line(text, [&](std::string_view line) {
    if (trimmed(line).empty()) return;
    ++lines;
    for (std::size_t i = 0; i < kPrefixes.size(); ++i) {
      Cursor cursor(line);
      lines_with[i] += kPrefixes[i](cursor).has_value();
    }
  });
  const auto most = std::max_element(lines_with.begin(), lines_with.end());
  std::map<int, std::string> texts;
  if (*most * 2 <= lines) return texts;
  const Prefix prefix = kPrefixes[static_cast<std::size_t>(most - lines_with.begin())];
  each_line(text, [&](std::string_view line) {
    Cursor cursor(line);
    if (const auto rank = prefix(cursor)) texts[*rank].append(cursor.rest()).push_back('\n');
  });
  return texts;
}

}  // namespace rankstacks::dumps
