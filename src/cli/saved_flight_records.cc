#include "cli/saved_flight_records.h"

#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "capture/flight_records.h"
#include "flight_recorder/dump.h"
#include "flight_recorder/pickle.h"
#include "model/captured_at.h"

namespace rankstacks::cli {
namespace {

constexpr const char* kName = "Flight Recorder";  // of PyTorch

RankSnapshot rank_of(FlightRecord record, int rank) {
  RankSnapshot made;
  made.rank = rank;
  made.source = Source::kDump;
  made.dumped_by = kName;
  made.path = record.path;
  made.host = "unknown";
  made.problems.push_back({"read from the dump of a Flight Recorder: its calls of collectives and messages, no stacks",
                           "rankstacks attach, or the output of py-spy or gdb for the same ranks, tells more",
                           ProblemCode::kFromOtherTool});
  made.flight_record = std::move(record);
  return made;
}

bool is_record_alone(const RankSnapshot& rank) {
  return rank.source == Source::kDump && rank.threads.empty() && rank.gpus.empty() && rank.flight_record &&
         rank.dumped_by == kName;
}

}  // namespace

bool is_flight_record(std::string_view text) {
  if (flight_recorder::looks_like_pickle(text)) return true;
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return false;
  if (text[begin] == '{') return contains(text, "\"entries\"") && contains(text, "\"pg_config\"");
  return !capture::records_of_page(text, "").empty();
}

Result<JobSnapshot> read_flight_record(std::string_view text, const std::string& path, std::optional<int> rank) {
  JobSnapshot job;
  job.captured_at = captured_at_text(std::chrono::system_clock::now());
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (!flight_recorder::looks_like_pickle(text) && begin != std::string_view::npos && text[begin] != '{') {
    std::optional<Error> first;
    for (auto& [page, number, record] : capture::records_of_page(text, path)) {
      if (record && number) job.ranks.push_back(rank_of(*std::move(record), *number));
      else if (!record && !first) first = record.error();
    }
    if (job.ranks.empty() && first) return fail(*first);
    return job;
  }
  auto record = flight_recorder::read_dump(text, path);
  if (!record) return fail(record.error());
  if (!rank) rank = capture::rank_of_dump(path);
  if (!rank)
    return fail({.code = ErrorCode::kNotFound,
                 .subject = path,
                 .what = "a dump of PyTorch's Flight Recorder whose name has no rank",
                 .hint = "the number at the end of its name is its rank; or name it: --ranks FILE=RANK"});
  job.ranks.push_back(rank_of(*std::move(record), *rank));
  return job;
}

void fold_flight_records(JobSnapshot& job) {
  std::map<int, std::vector<std::size_t>> alone, others;  // by the number of the rank
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    if (const RankSnapshot& rank = job.ranks[r]; rank.rank && rank.kind == RankKind::kRank)
      (is_record_alone(rank) ? alone : others)[*rank.rank].push_back(r);
  std::vector<bool> left_out(job.ranks.size());
  for (const auto& [number, records] : alone) {
    for (std::size_t n = 0; n + 1 < records.size(); ++n) left_out[records[n]] = true;
    const auto with_stacks = others.find(number);
    if (with_stacks == others.end() || with_stacks->second.size() != 1) continue;
    RankSnapshot& rank = job.ranks[with_stacks->second.front()];
    if (!rank.flight_record) rank.flight_record = std::move(job.ranks[records.back()].flight_record);
    left_out[records.back()] = true;
  }
  std::vector<RankSnapshot> ranks;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    if (!left_out[r]) ranks.push_back(std::move(job.ranks[r]));
  job.ranks = std::move(ranks);
}

}  // namespace rankstacks::cli
