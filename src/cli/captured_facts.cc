#include "cli/captured_facts.h"

#include <algorithm>
#include <unordered_map>

#include "report/report.h"

namespace rankstacks::cli {
namespace {

// Renumbers the frames of `rank`, which are those of `from`, as frames of `to`.
void move_frames(RankSnapshot& rank, const FrameTable& from, FrameTable& to) {
  const auto renumber = [&](FrameId& id) { id = to.intern(from[id]); };
  for (ThreadSnapshot& thread : rank.threads) for_each_frame(thread, renumber);
  for (GpuSnapshot& gpu : rank.gpus) for_each_frame(gpu, renumber);
}

bool is_of_files(ProblemCode code) {
  return code == ProblemCode::kFileMissing || code == ProblemCode::kFileMismatch ||
         code == ProblemCode::kFileUnverified;
}

void join_thread(ThreadSnapshot& noted, ThreadSnapshot& read) {
  noted.frames = std::move(read.frames);
  noted.variables = std::move(read.variables);
  noted.handles_cxx = std::move(read.handles_cxx);
  noted.raises_cxx = std::move(read.raises_cxx);
  noted.handles = std::move(read.handles);
  noted.raises = std::move(read.raises);
  noted.stack_end = read.stack_end;
  noted.omitted = read.omitted;
}

void join_threads(RankSnapshot& noted, RankSnapshot& read) {
  std::unordered_map<Tid, ThreadSnapshot*> by_tid;
  for (ThreadSnapshot& thread : noted.threads) by_tid.emplace(thread.tid, &thread);
  std::vector<ThreadSnapshot> unknown;
  for (ThreadSnapshot& thread : read.threads) {
    const auto known = by_tid.find(thread.tid);
    if (known != by_tid.end()) join_thread(*known->second, thread);
    else unknown.push_back(std::move(thread));
  }
  std::move(unknown.begin(), unknown.end(), std::back_inserter(noted.threads));
}

// `read`: with the frames of `noted`'s job already.
void join_rank(RankSnapshot& noted, RankSnapshot read, bool has_all_symbols) {
  join_threads(noted, read);
  noted.path = read.path;
  noted.status = std::max(noted.status, read.status);
  if (noted.gpus.empty()) noted.gpus = std::move(read.gpus);
  // A dump that was read when the core was made says more than the memory in it.
  if (read.flight_record && (!noted.flight_record || !read.flight_record->from_memory))
    noted.flight_record = std::move(read.flight_record);
  for (Problem& problem : read.problems) {
    const bool is_known = std::any_of(noted.problems.begin(), noted.problems.end(),
                                      [&](const Problem& p) { return p.message == problem.message; });
    if (!is_known && !(has_all_symbols && is_of_files(problem.code))) noted.problems.push_back(std::move(problem));
  }
}

}  // namespace

JobSnapshot facts_of_rank(const JobSnapshot& job, std::size_t rank) {
  JobSnapshot facts;
  facts.tool_version = job.tool_version;
  facts.captured_at = job.captured_at;
  facts.elapsed_ms = job.elapsed_ms;
  facts.not_looked_at = job.not_looked_at;
  facts.nccl = job.nccl;
  RankSnapshot only = job.ranks[rank];
  for (ThreadSnapshot& thread : only.threads) {
    ThreadSnapshot none;
    join_thread(thread, none);
  }
  move_frames(only, job.frames, facts.frames);
  facts.ranks.push_back(std::move(only));
  return facts;
}

std::vector<JobSnapshot> join_facts(JobSnapshot cores, const capture::NotedReports& noted) {
  std::vector<JobSnapshot> joined;
  std::vector<RankSnapshot> others;
  for (RankSnapshot& rank : cores.ranks) {
    const auto facts = rank.path ? noted.find(*rank.path) : noted.end();
    if (facts == noted.end()) {
      others.push_back(std::move(rank));
      continue;
    }
    auto job = report::read_json_report(facts->second.json, *rank.path);
    if (!job || job->ranks.size() != 1) {
      rank.problems.push_back({job ? "its own note of the report is not of one process" : job.error().message(),
                               "the capture is damaged; copy it again", ProblemCode::kMalformed});
      rank.status = std::max(rank.status, Status::kPartial);
      others.push_back(std::move(rank));
      continue;
    }
    move_frames(rank, cores.frames, job->frames);
    join_rank(job->ranks.front(), std::move(rank), facts->second.has_all_symbols);
    joined.push_back(std::move(*job));
  }
  cores.ranks = std::move(others);
  if (!cores.ranks.empty() || joined.empty()) joined.push_back(std::move(cores));
  return joined;
}

}  // namespace rankstacks::cli
