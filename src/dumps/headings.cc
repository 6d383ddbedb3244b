#include "dumps/headings.h"

#include <array>
#include <utility>

#include "base/text.h"
#include "dumps/cursor.h"
#include "dumps/draft.h"
#include "dumps/readers.h"
#include "model/file_rank.h"

namespace rankstacks::dumps {
namespace {

struct Heading {
  int rank = 0;
  std::string host;
};

// The host of "http://node-a:58935/handler/dump_traceback?", "http://[fd00::1]:58935/...".
std::string host_of(std::string_view address) {
  address.remove_prefix(address.find("://") + 3);
  if (address.starts_with('[')) return kept(address.substr(1, address.find(']') - 1));
  return kept(address.substr(0, address.find_first_of(":/")));
}

std::optional<Heading> heading_of(std::string_view line) {
  Cursor cursor(trimmed(line));
  if (!cursor.take("=== ")) cursor.take("<h2>");
  if (!cursor.take("Rank ")) return std::nullopt;
  const auto rank = cursor.number<int>();
  if (!rank || *rank > kMaxRank || !cursor.take(": ")) return std::nullopt;
  const std::string_view address = cursor.rest();
  if (!(address.starts_with("http://") || address.starts_with("https://")) || !contains(address, "/handler/"))
    return std::nullopt;
  return Heading{*rank, host_of(address)};
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kEntities = {
    {{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#34;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}}};

// A line of a page without its markup.
std::string unmarked(std::string_view line) {
  std::string plain;
  for (std::size_t i = 0; i < line.size();) {
    const std::string_view rest = line.substr(i);
    if (rest.starts_with("<pre>") || rest.starts_with("</pre>")) {
      i += rest.find('>') + 1;
      continue;
    }
    bool is_entity = false;
    for (const auto& [entity, character] : kEntities)
      if (!is_entity && rest.starts_with(entity)) {
        plain += character;
        i += entity.size();
        is_entity = true;
      }
    if (!is_entity) plain += line[i++];
  }
  return plain;
}

// "Error: 408" in a file, "<p>Failed to fetch: status=408</p>" in a page.
std::optional<std::string> error_of(std::string_view line) {
  Cursor cursor(trimmed(line));
  if (cursor.take("Error: ") && cursor.number<int>() && cursor.rest().empty()) return kept(trimmed(line));
  cursor = Cursor(trimmed(line));
  cursor.take("<p>");
  if (!cursor.take("Failed to fetch: status=")) return std::nullopt;
  const auto status = cursor.number<int>();
  return status ? std::optional("Error: " + std::to_string(*status)) : std::nullopt;
}

}  // namespace

RankAnswers split_by_heading(std::string_view text) {
  RankAnswers answers;
  std::map<int, std::string> reasons;  // of the summary
  RankAnswer* answer = nullptr;
  bool in_summary = false, in_page = false;
  each_line(text, [&](std::string_view line) {
    if (const auto heading = heading_of(line)) {
      in_summary = false;
      in_page = contains(line, "<h2>");
      const bool has_room = answers.of_rank.size() < kMaxProcesses || answers.of_rank.contains(heading->rank);
      answer = has_room ? &(answers.of_rank[heading->rank] = {heading->host, "", std::nullopt}) : nullptr;
      return;
    }
    Cursor cursor(trimmed(line));
    if (cursor.take("PARTIAL DATA: ") && cursor.number<int>() && cursor.take("/")) {
      if (const auto all = cursor.number<int>(); all && *all > 0 && *all <= kMaxRank) answers.world_size = all;
      in_summary = true;
      answer = nullptr;
      return;
    }
    if (in_summary && cursor.take("Rank ")) {
      const auto rank = cursor.number<int>();
      if (rank && cursor.take(": ") && reasons.size() < kMaxProcesses) reasons[*rank] = kept(trimmed(cursor.rest()));
      return;
    }
    if (answer == nullptr) return;
    if (answer->text.empty() && trimmed(line).empty()) return;  // pages have such lines below each heading
    if (answer->text.empty() && !answer->error && (answer->error = error_of(line))) return;
    answer->text += in_page ? unmarked(line) : std::string(line);
    answer->text += '\n';
  });
  for (auto& [rank, one] : answers.of_rank)
    if (const auto reason = reasons.find(rank); one.error && reason != reasons.end() && !reason->second.empty())
      one.error = reason->second;
  return answers;
}

}  // namespace rankstacks::dumps
