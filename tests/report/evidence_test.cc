// More evidence does not make a verdict worse. From saved reports of real hangs, whose true cause is known, facts are
// removed one after the other, in several orders: a verdict with more facts is never worse than one with fewer.
#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "support/saved_reports.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

// Removes what `member` gives of each thread. Returns whether there was anything to remove.
template <class F>
bool take(JobSnapshot& job, F member) {
  bool taken = false;
  for (RankSnapshot& rank : job.ranks)
    for (ThreadSnapshot& thread : rank.threads) {
      auto& fact = member(thread);
      taken |= fact.has_value();
      fact.reset();
    }
  return taken;
}

template <class F>
bool take_of_variables(JobSnapshot& job, F take_one) {
  bool taken = false;
  for (RankSnapshot& rank : job.ranks)
    for (ThreadSnapshot& thread : rank.threads)
      for (FrameVariables& variables : thread.variables.edit()) taken |= take_one(variables);
  return taken;
}

bool take_other_ends(JobSnapshot& job) {
  bool taken = false;
  for (RankSnapshot& rank : job.ranks)
    for (ThreadSnapshot& thread : rank.threads) {
      if (!thread.syscall) continue;
      taken |= !thread.syscall->others.empty();
      thread.syscall->others.clear();
      thread.syscall->own_end = false;
    }
  return taken;
}

bool take_gpus(JobSnapshot& job) {
  bool taken = false;
  for (RankSnapshot& rank : job.ranks) taken |= !std::exchange(rank.gpus, {}).empty();
  return taken;
}

// As in programs and libraries without symbols.
bool take_native_names(JobSnapshot& job) {
  FrameTable frames;
  std::vector<FrameId> ids;
  for (std::size_t i = 0; i < job.frames.size(); ++i) {
    Frame frame = job.frames[static_cast<FrameId>(i)];
    if (frame.kind == FrameKind::kNative) {
      frame.function.reset();
      frame.file.reset();
      frame.line.reset();
    }
    ids.push_back(frames.intern(std::move(frame)));
  }
  job.frames = std::move(frames);
  const auto renumber = [&](FrameId& id) { id = ids[id]; };
  for (RankSnapshot& rank : job.ranks) {
    for (ThreadSnapshot& thread : rank.threads) for_each_frame(thread, renumber);
    for (GpuSnapshot& gpu : rank.gpus) for_each_frame(gpu, renumber);
  }
  return true;
}

struct Fact {
  const char* name;
  bool (*take)(JobSnapshot&);  // false: there was none
};
constexpr Fact kFacts[] = {
    {"motion",
     [](JobSnapshot& job) {
       return take(
           job, [](ThreadSnapshot & t) -> auto& { return t.motion; });
     }},
    {"states",
     [](JobSnapshot& job) {
       return take(
           job, [](ThreadSnapshot & t) -> auto& { return t.state; });
     }},
    {"system calls",
     [](JobSnapshot& job) {
       return take(
           job, [](ThreadSnapshot & t) -> auto& { return t.syscall; });
     }},
    {"other ends", take_other_ends},
    {"lock owners",
     [](JobSnapshot& job) {
       return take(
           job, [](ThreadSnapshot & t) -> auto& { return t.lock_owner; });
     }},
    {"Python locks",
     [](JobSnapshot& job) {
       return take(
           job, [](ThreadSnapshot & t) -> auto& { return t.python_lock; });
     }},
    {"joined threads",
     [](JobSnapshot& job) {
       return take(
           job, [](ThreadSnapshot & t) -> auto& { return t.joins; });
     }},
    {"the GIL",
     [](JobSnapshot& job) {
       return take(
           job, [](ThreadSnapshot & t) -> auto& { return t.gil; });
     }},
    {"handled exceptions",
     [](JobSnapshot& job) {
       return take(
           job, [](ThreadSnapshot & t) -> auto& { return t.handles; });
     }},
    {"C++ exceptions",
     [](JobSnapshot& job) {
       return take(
           job, [](ThreadSnapshot & t) -> auto& { return t.exception; });
     }},
    {"groups",
     [](JobSnapshot& job) {
       return take_of_variables(job, [](FrameVariables& v) { return std::exchange(v.group, {}).has_value(); });
     }},
    {"counters",
     [](JobSnapshot& job) {
       return take_of_variables(job, [](FrameVariables& v) {
         return !std::exchange(v.numbers, {}).empty() || std::exchange(v.loops, 0) > 0;
       });
     }},
    {"GPUs", take_gpus},
    {"NCCL's counts", [](JobSnapshot& job) { return std::exchange(job.nccl, {}).has_value(); }},
    {"children",
     [](JobSnapshot& job) {
       return std::erase_if(job.ranks, [](const RankSnapshot& rank) { return rank.kind == RankKind::kChild; }) > 0;
     }},
    {"native names", take_native_names},
};

}  // namespace

// By the stacks alone both ranks wait at one place, in as many launches: NCCL's own error shows that their calls
// differ.
TEST_CASE("calls of two sizes are distinguished without what runs on the GPUs") {
  const auto all = truths(RANKSTACKS_FIXTURES);
  const auto found = std::find_if(
      all.begin(), all.end(), [](const auto& one) { return one.first.filename() == "other-size-with-gpus.json.gz"; });
  REQUIRE(found != all.end());
  SavedReport saved = read_saved(found->first, found->second);
  const auto status = [&] { return analyzers::analyze(saved.job).verdict.status; };
  CHECK(status() == analyzers::VerdictStatus::kCulprit);
  REQUIRE(take_gpus(saved.job));
  const analyzers::Verdict verdict = analyzers::analyze(saved.job).verdict;
  REQUIRE(verdict.suspects.size() == 2);
  CHECK(verdict.suspects[0].reason == analyzers::Reason::kCollectiveMismatch);
  CHECK(verdict.suspects[1].reason == analyzers::Reason::kCollectiveMismatch);
  CHECK(verdict.doubt == analyzers::Doubt::kNone);
  saved.job.nccl.reset();
  CHECK(status() == analyzers::VerdictStatus::kSymmetric);
}

TEST_CASE("more evidence makes no verdict worse") {
  // A report of two collectives, onto which another kernel was put by hand: its counts speak of the former.
  const std::string made_up = "another-kernel-of-two.json.gz";
  std::size_t reports = 0, taken = 0;
  for (const auto& [path, truth] : truths(RANKSTACKS_FIXTURES)) {
    if (path.filename() == made_up) continue;
    const SavedReport saved = read_saved(path, truth);
    ++reports;
    constexpr unsigned kOrders = 8;
    for (unsigned order = 0; order < kOrders; ++order) {
      std::vector<const Fact*> facts;
      for (const Fact& fact : kFacts)
        if (&fact != kFacts || saved.status != "healthy")
          facts.push_back(&fact);  // in one sample every wait seems to last
      std::shuffle(facts.begin(), facts.end(), std::mt19937(order));
      JobSnapshot left = saved.job;
      analyzers::Verdict verdict = analyzers::analyze(left).verdict;
      std::string gone;
      for (const Fact* fact : facts) {
        const Quality with = quality_of(saved, left, verdict);
        const std::string said = verdict.summary;
        if (!fact->take(left)) continue;
        verdict = analyzers::analyze(left).verdict;
        ++taken;
        INFO(saved.name << ": without" << (gone.empty() ? " nothing" : gone) << ": " << said << "\nand without "
                        << fact->name << ": " << verdict.summary);
        CHECK(with >= quality_of(saved, left, verdict));
        gone += fmt::format(" {},", fact->name);
      }
    }
  }
  CHECK(reports >= 90);
  CHECK(taken >= reports * 8);
}
