#include "analyzers/training_threads.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "analyzers/flight_records.h"
#include "analyzers/names.h"
#include "analyzers/progress.h"
#include "analyzers/roles.h"
#include "analyzers/thread_waits.h"

namespace rankstacks::analyzers {
namespace {

// The innermost Python function of the user's, "forward of engine.py". "" if there is none.
std::string innermost_of_user(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (is_users_code(frame)) return frame.function.value_or("") + " of " + std::string(base_name(*frame.file));
  }
  return "";
}

// The function in which a main thread is idle; std::nullopt if it is at work, or waits for other ranks itself.
std::optional<std::string> standby_function(const JobSnapshot& job, const ThreadSnapshot& main, const Doing& doing) {
  const bool without_task = doing.operation.kind == known::OperationKind::kWork;
  if (!without_task &&
      (known::waits_for_ranks(doing.activity) || (doing.by_frame && doing.activity != known::Activity::kPythonLock)))
    return std::nullopt;
  if ((main.state && main.state != 'S') || main.gil == Gil::kHolds || is_busy(main)) return std::nullopt;
  // A call that waits for any event, as opposed to an answer or an exchange of its own.
  const bool waits = doing.operation.kind == known::OperationKind::kEventLoop || waits_for_events(job, main);
  if (!without_task && doing.activity != known::Activity::kPythonLock &&
      !((doing.activity == known::Activity::kUserCode || doing.activity == known::Activity::kNetworkIo) && waits))
    return std::nullopt;
  const auto place = deciding_frame(job, main);
  if (!place) return std::nullopt;
  const Frame& frame = job.frames[main.frames[*place]];
  if (frame.kind != FrameKind::kPython) return std::nullopt;
  return frame.function.value_or("") + '|' + frame.file.value_or("");
}

// Threads with a common start function, one per rank.
struct AlikeThreads {
  // The most significant wait among them. Other threads than the training ones may wait for ranks at all times (a
  // listener in the store, a receiver of messages); collectives are for training.
  enum class Wait { kNone, kOther, kExchange, kCollective };

  std::map<std::size_t, std::size_t> threads;  // index of the thread by index of the state
  std::size_t waiting = 0;                     // number of threads that wait for other ranks
  Wait wait = Wait::kNone;

  void add(std::size_t state, std::size_t thread, Wait of_thread) {
    threads.try_emplace(state, thread);
    if (of_thread != Wait::kNone) ++waiting;
    wait = std::max(wait, of_thread);
  }
  bool half_wait() const { return waiting > 0 && waiting * 2 >= threads.size(); }
  // Whether these may be the threads that train: most ranks have one, and half of them have arrived. If they wait in
  // a collective, it is enough that one has arrived; then half of the ranks are enough, too, provided that no other
  // rank has a thread in a collective (`arrived`), since the threads of the others may have ended.
  bool may_train(std::size_t ranks, const std::set<std::size_t>& arrived) const {
    if (threads.size() * 2 > ranks) return wait == Wait::kCollective || half_wait();
    return threads.size() * 2 == ranks && wait == Wait::kCollective &&
           std::all_of(arrived.begin(), arrived.end(), [&](std::size_t i) { return threads.contains(i); });
  }
  // If only some of them wait, a rank differs.
  auto weight() const { return std::tuple(wait, half_wait(), waiting < threads.size(), waiting); }
};

// For whom threads wait, as far as their stacks and the Flight Recorder show it.
class Waits {
 public:
  explicit Waits(const JobSnapshot& job) : job_(job) {}

  // `only_one`: of its process, that waits for a GPU; what the record has may be of another thread otherwise.
  AlikeThreads::Wait of(std::size_t rank, known::Activity activity, const std::vector<known::Role>& roles,
                        bool only_one) {
    using Wait = AlikeThreads::Wait;
    if (activity == known::Activity::kCollective) return Wait::kCollective;
    if (activity == known::Activity::kPointToPoint) return Wait::kExchange;
    // For a kernel that may be a collective's.
    if (activity == known::Activity::kGpuWait && has_nccl(roles))
      return only_one && is_ahead(rank) ? Wait::kCollective : Wait::kExchange;
    return known::waits_for_ranks(activity) ? Wait::kOther : Wait::kNone;
  }

 private:
  bool is_ahead(std::size_t rank) {
    if (!ahead_) ahead_ = ranks_that_need_all_by_record(job_);
    return ahead_->contains(rank);
  }

  const JobSnapshot& job_;
  std::optional<std::set<std::size_t>> ahead_;
};

}  // namespace

std::string entry_of(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (std::size_t i = own_frames(job.frames, thread); i-- > 0;) {
    const Frame& frame = job.frames[thread.frames[i]];
    if (is_users_code(frame)) return frame.function.value_or("") + " of " + std::string(base_name(*frame.file));
  }
  return "";
}

void refine_by_training_threads(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                Activities& activities, std::vector<RankState>& states) {
  std::optional<std::string> common;
  std::map<std::string, AlikeThreads> by_entry;
  std::set<std::size_t> arrived;  // states with a thread in a collective
  std::size_t ranks = 0;
  Waits waits(job);
  for (std::size_t i = 0; i < states.size(); ++i) {
    const RankState& s = states[i];
    if (s.unrelated || !s.readable) continue;
    ++ranks;
    const RankSnapshot& rank = job.ranks[s.rank];
    // Threads of one rank with the same start function are distinguished by the order in which they started.
    std::map<std::string, int> alike;
    std::size_t on_gpu = 0;
    for (std::size_t t = 0; t < rank.threads.size(); ++t)
      if (roles[s.rank][t] == known::Role::kPython && rank.threads[t].tid != rank.pid &&
          activities.of_thread(s.rank, t).activity == known::Activity::kGpuWait)
        ++on_gpu;
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      if (rank.threads[t].tid == rank.pid) {
        const auto where = standby_function(job, rank.threads[t], activities.of_thread(s.rank, t));
        if (!where || (common && *common != *where)) return;
        common = where;
        continue;
      }
      std::string entry = roles[s.rank][t] == known::Role::kPython ? entry_of(job, rank.threads[t]) : "";
      if (entry.empty()) continue;
      entry += fmt::format("|{}", alike[entry]++);
      const auto wait = waits.of(s.rank, activities.of_thread(s.rank, t).activity, roles[s.rank], on_gpu == 1);
      by_entry[entry].add(i, t, wait);
      if (wait == AlikeThreads::Wait::kCollective) arrived.insert(i);
    }
  }
  const AlikeThreads* trainers = nullptr;
  for (const auto& [entry, group] : by_entry)
    if (group.may_train(ranks, arrived) && (trainers == nullptr || trainers->weight() < group.weight()))
      trainers = &group;
  if (trainers == nullptr) return;
  for (const auto& [i, thread] : trainers->threads) {
    Doing doing = activities.of_thread(states[i].rank, thread);
    if (doing.activity == known::Activity::kUnknown) continue;
    states[i].doing = std::move(doing);
    states[i].by_own_thread = true;
  }
}

void refine_by_shared_work(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                           Activities& activities, std::vector<RankState>& states) {
  const auto at_work = [&](std::size_t rank, known::Activity activity) {
    return known::waits_for_ranks(activity) || (activity == known::Activity::kGpuWait && has_nccl(roles[rank]));
  };
  std::set<std::string> work;  // the functions in which ranks wait
  for (const RankState& s : states)
    if (s.readable && !s.unrelated && at_work(s.rank, s.doing.activity))
      if (std::string place = innermost_of_user(job, job.ranks[s.rank].threads[s.doing.thread]); !place.empty())
        work.insert(std::move(place));
  if (work.empty()) return;
  for (RankState& s : states) {
    if (!s.readable || s.unrelated || at_work(s.rank, s.doing.activity)) continue;
    const RankSnapshot& rank = job.ranks[s.rank];
    if (rank.threads[s.doing.thread].tid != rank.pid || thread_wait_of(rank, s.doing.thread) ||
        !standby_function(job, rank.threads[s.doing.thread], activities.of_thread(s.rank, s.doing.thread)))
      continue;
    std::vector<std::size_t> found;
    for (std::size_t t = 0; t < rank.threads.size(); ++t)
      if (t != s.doing.thread && roles[s.rank][t] == known::Role::kPython &&
          work.contains(innermost_of_user(job, rank.threads[t])))
        found.push_back(t);
    if (found.size() != 1) continue;
    s.doing = activities.of_thread(s.rank, found.front());
    s.by_own_thread = true;
  }
}

}  // namespace rankstacks::analyzers
