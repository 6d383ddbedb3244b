// What must not change a verdict: the order in which processes and threads are listed, and how many ranks do what the
// innocent ones do. What may make it less certain, but must not accuse an innocent rank: a GPU that did not answer.
#include <catch2/catch.hpp>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "support/saved_reports.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

void shuffle(JobSnapshot& job, unsigned seed) {
  std::mt19937 order(seed);
  std::shuffle(job.ranks.begin(), job.ranks.end(), order);
  for (RankSnapshot& rank : job.ranks)
    if (rank.threads.size() > 2) std::shuffle(std::next(rank.threads.begin()), rank.threads.end(), order);
  if (!job.nccl) return;
  std::shuffle(job.nccl->communicators.begin(), job.nccl->communicators.end(), order);
  for (NcclCommunicator& communicator : job.nccl->communicators)
    std::shuffle(communicator.members.begin(), communicator.members.end(), order);
}

// "culprit: 1 user-code"
std::string in_words(const JobSnapshot& job, const analyzers::Verdict& verdict) {
  std::string text(analyzers::to_string(verdict.status));
  for (const auto& [rank, reason] : accused_of(job, verdict)) text += fmt::format(", {} {}", rank, reason);
  return text;
}

// Ranks whose GPUs answered, at most 4 of them.
std::vector<std::size_t> that_answered(const JobSnapshot& job) {
  constexpr std::size_t kMax = 4;
  std::vector<std::size_t> found;
  for (std::size_t r = 0; r < job.ranks.size() && found.size() < kMax; ++r)
    if (std::any_of(job.ranks[r].gpus.begin(), job.ranks[r].gpus.end(),
                    [](const GpuSnapshot& gpu) { return gpu.execution.has_value(); }))
      found.push_back(r);
  return found;
}

void forget_kernels(RankSnapshot& rank) {
  for (GpuSnapshot& gpu : rank.gpus) gpu.execution.reset();
}

// A rank that does what an innocent one does, copied with what other ranks know of it: its groups, its communicators.
class Copies {
 public:
  Copies(JobSnapshot& job, std::size_t rank, int count)
      : job_(job), original_(job.ranks[rank]), world_(original_.world_size.value_or(0)), count_(count) {}

  void add() {
    for (int copy = 0; copy < count_; ++copy) add_rank(copy);
    for (RankSnapshot& rank : job_.ranks) {
      if (rank.world_size) rank.world_size = world_ + count_;
      rank.local_world_size.reset();
      for (ThreadSnapshot& thread : rank.threads)
        for (FrameVariables& variables : thread.variables.edit())
          if (variables.group) join(variables.group->ranks);
    }
  }

 private:
  void add_rank(int copy) {
    RankSnapshot rank = original_;
    rank.rank = world_ + copy;
    rank.pid = 3'000'000 + copy;
    rank.local_rank.reset();
    for (ThreadSnapshot& thread : rank.threads)
      if (thread.tid == original_.pid) thread.tid = rank.pid;
    if (job_.nccl)
      for (NcclCommunicator& communicator : job_.nccl->communicators) join(communicator, rank.pid);
    job_.ranks.push_back(std::move(rank));
  }
  void join(NcclCommunicator& communicator, Pid pid) const {
    const auto same = std::find_if(communicator.members.begin(), communicator.members.end(), [&](const auto& member) {
      return member.process && member.process->pid == original_.pid && member.process->host == original_.host;
    });
    if (same == communicator.members.end()) return;
    NcclMember member = *same;
    member.pid = member.process->pid = pid;
    member.rank = communicator.size++;
    communicator.members.push_back(std::move(member));
  }
  void join(std::vector<int>& group) const {
    if (std::find(group.begin(), group.end(), *original_.rank) == group.end()) return;
    for (int copy = 0; copy < count_; ++copy) group.push_back(world_ + copy);
  }

  JobSnapshot& job_;
  const RankSnapshot original_;
  const int world_, count_;
};

bool is_innocent(const SavedReport& saved, const RankSnapshot& rank) {
  return rank.kind == RankKind::kRank && rank.rank && rank.world_size && !saved.suspects.contains(rank_label(rank));
}

void forget_number(JobSnapshot& job, std::size_t rank) {
  job.ranks[rank].rank.reset();
  job.ranks[rank].world_size.reset();
}

// As where there is no unwind information: two frames, and Python's next to them.
void cut_stack(JobSnapshot& job, std::size_t rank) {
  if (!job.ranks[rank].python_version) return;
  for (ThreadSnapshot& thread : job.ranks[rank].threads) {
    if (thread.tid != job.ranks[rank].pid) continue;
    ThreadSnapshot cut = thread;
    cut.frames.clear();
    cut.variables.clear();
    for (std::size_t i = 0; i < thread.frames.size(); ++i) {
      Frame frame = job.frames[thread.frames[i]];
      if (frame.kind == FrameKind::kNative && cut.frames.size() >= 2) continue;
      if (frame.kind == FrameKind::kPython) frame.origin = FrameOrigin::kSeparate;
      for (FrameVariables variables : thread.variables) {
        if (variables.frame != i) continue;
        variables.frame = cut.frames.size();
        cut.variables.push_back(std::move(variables));
      }
      cut.frames.push_back(job.frames.intern(std::move(frame)));
    }
    cut.stack_end = StackEnd::kNoUnwindInfo;
    cut.handles.reset();
    cut.raises.reset();
    thread = std::move(cut);
  }
  job.ranks[rank].status = Status::kPartial;
}

// What may be lacking of one rank.
struct Lack {
  const char* name;
  void (*take)(JobSnapshot&, std::size_t rank);
};
constexpr Lack kLacks[] = {
    {"the later samples",
     [](JobSnapshot& job, std::size_t r) {
       for (ThreadSnapshot& thread : job.ranks[r].threads) thread.motion.reset();
     }},
    {"variables",
     [](JobSnapshot& job, std::size_t r) {
       for (ThreadSnapshot& thread : job.ranks[r].threads) thread.variables.clear();
     }},
    {"the main thread's stack",
     [](JobSnapshot& job, std::size_t r) {
       for (ThreadSnapshot& thread : job.ranks[r].threads) {
         if (thread.tid != job.ranks[r].pid) continue;
         thread.frames.clear();
         thread.variables.clear();
         thread.stack_end = StackEnd::kMemoryUnavailable;
       }
       job.ranks[r].status = Status::kPartial;
     }},
    {"the stack beyond its innermost frames", cut_stack},
    {"everything",
     [](JobSnapshot& job, std::size_t r) {
       job.ranks[r].threads.clear();
       job.ranks[r].gpus.clear();
       job.ranks[r].status = Status::kFailed;
     }},
    {"what is behind a call of the GPU's driver",
     [](JobSnapshot& job, std::size_t r) {
       for (ThreadSnapshot& thread : job.ranks[r].threads) {
         if (thread.tid != job.ranks[r].pid) continue;
         thread.state = 'D';
         thread.stack_end = StackEnd::kMemoryUnavailable;
         thread.syscall = SyscallInfo{.name = "ioctl", .number = 16, .fd = 31, .fd_target = "/dev/nvidiactl"};
         std::erase_if(thread.frames.edit(), [&](FrameId id) { return job.frames[id].kind == FrameKind::kNative; });
         thread.variables.clear();
       }
     }},
    {"NCCL's counts",
     [](JobSnapshot& job, std::size_t r) {
       if (!job.nccl) return;
       for (NcclCommunicator& communicator : job.nccl->communicators)
         std::erase_if(communicator.members, [&](const NcclMember& member) {
           return member.process && member.process->pid == job.ranks[r].pid;
         });
     }},
    {"the Flight Recorder's dump", [](JobSnapshot& job, std::size_t r) { job.ranks[r].flight_record.reset(); }},
    {"the number", forget_number},
};

}  // namespace

TEST_CASE("the order of ranks and threads makes no difference to a verdict") {
  for (const auto& [path, truth] : truths(RANKSTACKS_FIXTURES)) {
    const SavedReport saved = read_saved(path, truth);
    const analyzers::Verdict first = analyzers::analyze(saved.job).verdict;
    const std::string expected = in_words(saved.job, first);
    for (unsigned seed = 0; seed < 2; ++seed) {
      JobSnapshot job = saved.job;
      shuffle(job, seed);
      const analyzers::Verdict again = analyzers::analyze(job).verdict;
      INFO(saved.name << " in another order (" << seed << "): " << first.summary << "\nand then: " << again.summary);
      CHECK(in_words(job, again) == expected);
    }
  }
}

TEST_CASE("ranks whose GPUs did not answer make no verdict accuse an innocent one") {
  // A report of two collectives, onto which another kernel was put by hand.
  const std::string made_up = "another-kernel-of-two.json.gz";
  for (const auto& [path, truth] : truths(RANKSTACKS_FIXTURES)) {
    if (path.filename() == made_up) continue;
    const SavedReport saved = read_saved(path, truth);
    const auto answered = that_answered(saved.job);
    if (quality_of(saved, saved.job, analyzers::analyze(saved.job).verdict) == Quality::kInnocentAccused) continue;
    for (unsigned silent = 1; silent < 1u << answered.size(); ++silent) {
      JobSnapshot job = saved.job;
      std::string names;
      for (std::size_t i = 0; i < answered.size(); ++i) {
        if ((silent >> i & 1) == 0) continue;
        forget_kernels(job.ranks[answered[i]]);
        names += " " + rank_label(job.ranks[answered[i]]);
      }
      const analyzers::Verdict verdict = analyzers::analyze(job).verdict;
      INFO(saved.name << " without the kernels of" << names << ": " << verdict.summary);
      CHECK(quality_of(saved, job, verdict) != Quality::kInnocentAccused);
    }
  }
}

TEST_CASE("a verdict is the same if more ranks do what an innocent one does") {
  for (const auto& [path, truth] : truths(RANKSTACKS_FIXTURES)) {
    const SavedReport saved = read_saved(path, truth);
    // The coordinates of a copy would be those of its original.
    if (saved.status != "culprit" || saved.job.ranks.front().coordinates) continue;
    const std::string expected = in_words(saved.job, analyzers::analyze(saved.job).verdict);
    for (std::size_t r = 0; r < saved.job.ranks.size(); ++r) {
      if (!is_innocent(saved, saved.job.ranks[r]) || saved.job.ranks[r].flight_record) continue;
      JobSnapshot job = saved.job;
      Copies(job, r, 6).add();
      const analyzers::Verdict again = analyzers::analyze(job).verdict;
      INFO(saved.name << " with 6 more as " << rank_label(saved.job.ranks[r]) << ": " << again.summary);
      CHECK(in_words(job, again) == expected);
    }
  }
}

TEST_CASE("what is lacking of one rank makes no verdict accuse an innocent one") {
  for (const auto& [path, truth] : truths(RANKSTACKS_FIXTURES)) {
    SavedReport saved = read_saved(path, truth);
    if (saved.status == "healthy") continue;  // in one sample every wait seems to last
    if (quality_of(saved, saved.job, analyzers::analyze(saved.job).verdict) == Quality::kInnocentAccused) continue;
    for (std::size_t r = 0; r < saved.job.ranks.size(); ++r) {
      if (saved.job.ranks[r].kind != RankKind::kRank) continue;
      for (const Lack& lack : kLacks) {
        JobSnapshot job = saved.job;
        // Coordinates belong to numbers.
        if (lack.take == forget_number && job.ranks[r].coordinates) continue;
        const std::string label = rank_label(job.ranks[r]);
        lack.take(job, r);
        SavedReport as_named{saved.name, {}, saved.status, saved.suspects};
        if (const auto culprit = saved.suspects.find(label); culprit != saved.suspects.end())
          as_named.suspects[rank_label(job.ranks[r])] = culprit->second;
        const analyzers::Verdict verdict = analyzers::analyze(job).verdict;
        INFO(saved.name << " without " << lack.name << " of rank " << label << ": " << verdict.summary);
        CHECK(quality_of(as_named, job, verdict) != Quality::kInnocentAccused);
      }
    }
  }
}
