#include "analyzers/own_value.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>

#include <fmt/format.h>

namespace rankstacks::analyzers {
namespace {

enum class NumberedBy { kRank, kLocalRank };

constexpr std::int64_t kFirstFreePort = 1024;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_quantity(std::string_view value) {
  return std::all_of(value.begin(), value.end(),
                     [](char c) { return is_digit(c) || c == '.' || c == '-' || c == ','; });
}

std::optional<std::int64_t> number_of(std::string_view digits) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// A part of a value: the host of its rank, a number, or what lies between these.
struct Part {
  enum class Kind { kText, kNumber, kHost } kind = Kind::kText;
  std::string_view text;
  bool after_colon = false;  // of a number
};

std::vector<Part> parts_of(const RankSnapshot& rank, std::string_view value) {
  std::vector<Part> parts;
  const bool has_host = !rank.host.empty() && rank.host != "unknown";
  for (std::size_t at = 0; at < value.size();) {
    std::size_t end = at + 1;
    Part part;
    if (has_host && value.substr(at).starts_with(rank.host)) {
      part.kind = Part::Kind::kHost;
      end = at + rank.host.size();
    } else if (is_digit(value[at])) {
      part.kind = Part::Kind::kNumber;
      part.after_colon = at > 0 && value[at - 1] == ':';
      while (end < value.size() && is_digit(value[end])) ++end;
    } else {
      while (end < value.size() && !is_digit(value[end]) && !(has_host && value.substr(end).starts_with(rank.host)))
        ++end;
    }
    part.text = value.substr(at, end - at);
    parts.push_back(part);
    at = end;
  }
  return parts;
}

// The part in words that are the same for each rank that it names; the part itself if it names none.
std::string own_form(const RankSnapshot& rank, const Part& part, NumberedBy by) {
  if (part.kind == Part::Kind::kHost) return "{host}";
  if (part.kind == Part::Kind::kText) return std::string(part.text);
  const std::optional<int> own = by == NumberedBy::kRank ? rank.rank : rank.local_rank;
  const auto number = number_of(part.text);
  if (own && part.after_colon && number && *number >= kFirstFreePort) return fmt::format("{{port {}}}", *number - *own);
  if (own && number == *own) return "{rank}";
  return number == rank.pid ? "{pid}" : std::string(part.text);
}

// Part by part: the "0" in "cuda-12.0/rank-3" is the same on all ranks, and names none of them.
bool differ_by_own_names_alone(const JobSnapshot& job, const std::vector<std::size_t>& ranks,
                               const std::vector<std::vector<Part>>& parts, NumberedBy by) {
  const std::vector<Part>& first = parts.front();
  for (std::size_t n = 0; n < first.size(); ++n) {
    bool same = true, same_form = true;
    const std::string form = own_form(job.ranks[ranks[0]], first[n], by);
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (parts[i].size() != first.size()) return false;
      same = same && parts[i][n].text == first[n].text;
      same_form = same_form && own_form(job.ranks[ranks[i]], parts[i][n], by) == form;
    }
    if (!same && !same_form) return false;
  }
  return true;
}

}  // namespace

bool differ_by_own_names_alone(const JobSnapshot& job, const std::vector<std::size_t>& ranks,
                               const std::vector<std::string_view>& values) {
  std::vector<std::vector<Part>> parts;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (is_quantity(values[i])) return false;
    parts.push_back(parts_of(job.ranks[ranks[i]], values[i]));
  }
  if (parts.empty()) return true;
  return differ_by_own_names_alone(job, ranks, parts, NumberedBy::kRank) ||
         differ_by_own_names_alone(job, ranks, parts, NumberedBy::kLocalRank);
}

}  // namespace rankstacks::analyzers
