#include "cli/saved_flight_records.h"

#include <sys/stat.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "capture/flight_records.h"
#include "dumps/dump.h"
#include "flight_recorder/dump.h"
#include "flight_recorder/pickle.h"
#include "model/captured_at.h"

namespace rankstacks::cli {
namespace {

constexpr const char* kName = "Flight Recorder";  // of PyTorch

// Ranks wait for each other: in one job no last call is so much older than that of another rank.
constexpr double kOtherTimeMs = 15 * 60'000;

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

// Of a rank that has not answered torch's debug server, or wrongly.
RankSnapshot unanswered(const Error& error, int rank) {
  RankSnapshot made;
  made.rank = rank;
  made.host = "unknown";
  made.source = Source::kDump;
  made.dumped_by = "torch";
  made.path = error.subject;
  made.status = Status::kFailed;
  made.problems.push_back(problem_of(error));
  return made;
}

// When the dump was written, as far as its file says: if it was copied, the last call was longer ago than that.
void take_time(FlightRecord& record, const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  capture::take_time_of_last_call(record,
                                  std::chrono::system_clock::from_time_t(status.st_mtime) + std::chrono::seconds(1));
}

// A number that is in none of its groups is something else, as a date.
std::optional<int> rank_by_name(std::string path, const FlightRecord& record) {
  for (const std::string_view ending : {".gz", ".zst", ".xz"})
    if (path.ends_with(ending)) path.resize(path.size() - ending.size());
  const auto is_member = [&](const std::optional<int>& rank) {
    bool some_have_members = false, is_in_one = false;
    for (const RecordedGroup& group : record.groups) {
      some_have_members |= !group.ranks.empty();
      is_in_one |= rank && std::find(group.ranks.begin(), group.ranks.end(), *rank) != group.ranks.end();
    }
    return rank && (is_in_one || !some_have_members);
  };
  for (const auto& rank : {capture::rank_of_dump(path), dumps::rank_from_dump_name(path)})
    if (is_member(rank)) return rank;
  return std::nullopt;
}

bool is_record_alone(const RankSnapshot& rank) {
  return rank.source == Source::kDump && rank.threads.empty() && rank.gpus.empty() && rank.flight_record &&
         rank.dumped_by == kName;
}

}  // namespace

std::optional<Result<JobSnapshot>> read_flight_record(std::string_view text, const std::string& path,
                                                      std::optional<int> rank) {
  JobSnapshot job;
  job.captured_at = captured_at_text(std::chrono::system_clock::now());
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const bool is_json = text.substr(begin).starts_with('{');
  if (is_json && !(contains(text, "\"entries\"") && contains(text, "\"pg_config\""))) return std::nullopt;
  if (!is_json && !flight_recorder::looks_like_pickle(text)) {
    for (auto& [page, number, record] : capture::records_of_page(text, path)) {
      if (!number) continue;
      if (record) take_time(*record, path);
      job.ranks.push_back(record ? rank_of(*std::move(record), *number) : unanswered(record.error(), *number));
    }
    return job.ranks.empty() ? std::nullopt : std::optional<Result<JobSnapshot>>(std::move(job));
  }
  auto record = flight_recorder::read_dump(text, path);
  if (!record) return fail(record.error());
  take_time(*record, path);
  if (!rank) rank = rank_by_name(path, *record);
  if (!rank)
    return fail({.code = ErrorCode::kNotFound,
                 .subject = path,
                 .what = "a dump of PyTorch's Flight Recorder whose name has no rank",
                 .hint = "the number at the end of its name is its rank; or name it: --ranks FILE=RANK"});
  job.ranks.push_back(rank_of(*std::move(record), *rank));
  return job;
}

std::vector<RankSnapshot> take_flight_records(JobSnapshot& job) {
  const auto first = std::stable_partition(job.ranks.begin(), job.ranks.end(),
                                           [](const RankSnapshot& rank) { return !is_record_alone(rank); });
  std::vector<RankSnapshot> records(std::make_move_iterator(first), std::make_move_iterator(job.ranks.end()));
  job.ranks.erase(first, job.ranks.end());
  return records;
}

void fold_flight_records(JobSnapshot& job, std::vector<RankSnapshot> records) {
  std::int64_t newest = 0;
  for (const RankSnapshot& one : records) newest = std::max(newest, one.flight_record->last_call_ns.value_or(0));
  // The newest of a process first.
  std::stable_sort(records.begin(), records.end(), [](const RankSnapshot& a, const RankSnapshot& b) {
    return std::pair(*a.rank, -a.flight_record->last_call_ns.value_or(0)) <
           std::pair(*b.rank, -b.flight_record->last_call_ns.value_or(0));
  });
  std::map<int, std::vector<std::size_t>> with_stacks;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    if (job.ranks[r].rank && job.ranks[r].kind == RankKind::kRank) with_stacks[*job.ranks[r].rank].push_back(r);
  const RankSnapshot* last = nullptr;
  std::vector<RankSnapshot> alone;
  for (RankSnapshot& one : records) {
    FlightRecord& record = *one.flight_record;
    const bool is_of_last = last != nullptr && last->rank == one.rank && !record.thread_ids.empty() &&
                            last->flight_record->thread_ids == record.thread_ids;
    if (is_of_last) continue;
    const auto others = with_stacks.find(*one.rank);
    if (others != with_stacks.end() && others->second.size() == 1) {
      RankSnapshot& rank = job.ranks[others->second.front()];
      if (rank.source != Source::kDump) record.age_ms = 0;  // named together: of one time
      rank.flight_record = std::move(record);
      with_stacks.erase(others);
      continue;
    }
    const double behind_ms = record.last_call_ns ? static_cast<double>(newest - *record.last_call_ns) / 1e6 : 0;
    if (behind_ms > kOtherTimeMs) {
      record.age_ms = behind_ms;
      one.problems.push_back({fmt::format("its last call is {:.0f} minutes before that of another rank: the dump is of "
                                          "another time, and is not compared",
                                          behind_ms / 60'000),
                              "name the dumps of one time", ProblemCode::kMismatch});
    }
    alone.push_back(std::move(one));
    last = &alone.back();
  }
  std::move(alone.begin(), alone.end(), std::back_inserter(job.ranks));
}

}  // namespace rankstacks::cli
