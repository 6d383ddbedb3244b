#include "analyzers/standing.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "analyzers/gpu_waits.h"
#include "analyzers/launches.h"
#include "analyzers/messengers.h"
#include "analyzers/names.h"
#include "analyzers/own_threads.h"
#include "analyzers/peer_waits.h"

namespace rankstacks {
namespace {

bool is_child_of(const RankSnapshot& child, const RankSnapshot& rank) { return child.kind == RankKind::kChild && child.parent == rank.pid && child.host == rank.host; }

bool is_dead(const RankSnapshot& process) {
  const auto ended = [](const Problem& p) { return p.code == ProblemCode::kEnded; };
  // With a living thread left, a main thread that has ended is no end of the process.
  if (process.status != Status::kFailed) return process.threads.size() == 1 && (process.threads.front().state == 'Z' || process.threads.front().state == 'X');
  return process.threads.empty() && std::any_of(process.problems.begin(), process.problems.end(), ended);
}

// A data-loader worker that works: something of the data set stands inside of torch's worker loop. An idle one waits for an index there.
bool is_busy_worker(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) continue;
    if (is_place(frame, Place::kLoaderLoop)) return false;
    if (!is_library_file(frame.file.value_or("")) || is_place(frame, Place::kLoaderWork)) return true;
  }
  return false;
}

// A child that others wait for, rather than one that waits for a child of its own, or for work to be given to it (a pool's idle worker, a
// server between two requests, multiprocessing's own helpers).
bool may_be_waited_for(const JobSnapshot& job, const RankSnapshot& child) {
  for (const std::string& word : child.command)
    if (word.find("multiprocessing.resource_tracker") != std::string::npos || word.find("multiprocessing.forkserver") != std::string::npos) return false;
  for (const ThreadSnapshot& thread : child.threads) {
    if (thread.tid != child.pid) continue;
    const std::string call = blocking_call(job, thread);
    if (call == "wait4" || call == "waitid" || call == "waitpid") return false;
    for (std::size_t i = 0; i < own_frames(job.frames, thread); ++i) {
      const Frame& frame = job.frames[thread.frames[i]];
      if (frame.kind == FrameKind::kPython) return !is_place(frame, Place::kNoWork);
    }
  }
  return true;
}

// Reads a pipe: what a child prints.
bool reads_pipe(const ThreadSnapshot& thread) {
  return thread.syscall && thread.syscall->name == "read" && thread.syscall->fd_target && thread.syscall->fd_target->starts_with("pipe:");
}

// The dead child that explains why a rank waits, if any: not where it waits for the end of one, as waiting for a dead one ends at once.
bool may_miss_child(const JobSnapshot& job, const Standing& standing) {
  const std::string call = blocking_call(job, job.ranks[standing.rank].threads[standing.doing.thread]);
  return call != "wait4" && call != "waitid" && call != "waitpid";
}

std::size_t dead_children_of(const JobSnapshot& job, const RankSnapshot& rank) {
  return static_cast<std::size_t>(std::count_if(job.ranks.begin(), job.ranks.end(), [&](const RankSnapshot& child) { return is_child_of(child, rank) && is_dead(child); }));
}

// A child that ended well, and that nobody has asked for, leaves the same trace as a worker that died. Where ranks that have arrived at a
// collective have as many of them, it is what their common program does.
void forget_common_dead_children(const JobSnapshot& job, std::vector<Standing>& standings) {
  std::optional<std::size_t> common;
  for (const Standing& s : standings)
    if (s.readable && !s.stranger && waits_for_ranks(s.doing.activity)) common = std::min(common.value_or(SIZE_MAX), dead_children_of(job, job.ranks[s.rank]));
  for (Standing& s : standings)
    if (s.dead_child && common && dead_children_of(job, job.ranks[s.rank]) <= *common) s.dead_child.reset();
}

void look_at_children(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, Standing& standing) {
  const RankSnapshot& rank = job.ranks[standing.rank];
  const bool may_read_child = standing.doing.activity == Activity::kUserCode && reads_pipe(rank.threads[standing.doing.thread]);
  if (may_read_child || standing.doing.activity == Activity::kSubprocess) {
    std::vector<std::size_t> candidates;
    for (std::size_t c = 0; c < job.ranks.size(); ++c) {
      const RankSnapshot& child = job.ranks[c];
      if (!is_child_of(child, rank) || is_dead(child)) continue;
      const bool loads = std::find(roles[c].begin(), roles[c].end(), Role::kDataLoader) != roles[c].end();
      if (!loads && may_be_waited_for(job, child)) candidates.push_back(c);
    }
    if (candidates.size() == 1) standing.child = candidates.front();
    if (may_read_child && !candidates.empty()) standing.doing.activity = Activity::kSubprocess;
  }
  const Activity activity = standing.doing.activity;
  if (activity != Activity::kDataLoading && activity != Activity::kSubprocess && activity != Activity::kPythonLock) return;
  for (std::size_t c = 0; c < job.ranks.size(); ++c) {
    const RankSnapshot& child = job.ranks[c];
    if (!is_child_of(child, rank)) continue;
    if (is_dead(child)) {
      if (!standing.dead_child && may_miss_child(job, standing)) standing.dead_child = c;
      continue;
    }
    if (activity != Activity::kDataLoading || standing.told_by_child) continue;
    for (std::size_t t = 0; t < child.threads.size(); ++t)
      if (roles[c][t] == Role::kDataLoader && child.threads[t].tid == child.pid && is_busy_worker(job, child.threads[t])) {
        standing.told_by_child = c;
        standing.child_thread = t;
      }
  }
}

bool has_nccl(const std::vector<Role>& roles) {
  return std::any_of(roles.begin(), roles.end(), [](Role r) {
    return r == Role::kNcclWatchdog || r == Role::kNcclHeartbeat || r == Role::kNcclProxy || r == Role::kNcclService || r == Role::kNcclRas || r == Role::kNcclMonitor;
  });
}

const ThreadSnapshot* main_thread(const RankSnapshot& rank) {
  const auto it = std::find_if(rank.threads.begin(), rank.threads.end(), [&](const ThreadSnapshot& t) { return t.tid == rank.pid; });
  return it == rank.threads.end() ? nullptr : &*it;
}

// In a hang gloo's threads sleep, and so does the thread that waits for them, to the microsecond: where both ran, messages came. NCCL's and MPI's
// threads run, moving or not, and a store is polled.
bool gloo_moves(const RankSnapshot& rank, const std::vector<Role>& roles, const Motion& main) {
  if (main.runs < main.looks || is_busy(main)) return false;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    const auto& motion = rank.threads[t].motion;
    if (roles[t] == Role::kGlooLoop && motion && motion->runs >= motion->looks) return true;
  }
  return false;
}

// Of plain multiprocessing, whose processes no launcher has numbered: a queue, pipe or lock that another of them fills or holds. None: no such wait.
Operation wait_for_peer(const JobSnapshot& job, const ThreadSnapshot& thread) {
  const auto queue = operation_of_kind(OperationKind::kProcessQueue, "a multiprocessing queue"), pipe = operation_of_kind(OperationKind::kProcessPipe, "a multiprocessing pipe"),
             lock = operation_of_kind(OperationKind::kProcessLock, "a multiprocessing lock");
  Operation found;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) {
      if (is_process_lock(frame)) return lock;
      continue;
    }
    if (is_place(frame, Place::kProcessQueueWait)) return queue;
    if (is_place(frame, Place::kProcessQueue)) return {};
    if (is_place(frame, Place::kProcessPipe)) {
      found = pipe;
      continue;   // a queue may be around it
    }
    if (is_place(frame, Place::kProcessLock)) return lock;
    return found;
  }
  return {};
}

// Where a thread's own code begins: the outermost Python function of the user's, which may lie elsewhere on another machine. "": it has none.
std::string entry_of(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (std::size_t i = own_frames(job.frames, thread); i-- > 0;) {
    const Frame& frame = job.frames[thread.frames[i]];
    if (frame.kind == FrameKind::kPython && !is_library_file(frame.file.value_or("<unknown>"))) return frame.function.value_or("") + '|' + std::string(base_name(*frame.file));
  }
  return "";
}

// The function that a main thread stands by in; nothing where it is at work, or waits for other ranks itself.
std::optional<std::string> stands_by_in(const JobSnapshot& job, const ThreadSnapshot& main, const Doing& doing) {
  if (waits_for_ranks(doing.activity) || (doing.by_frame && doing.activity != Activity::kPythonLock) || (main.state && main.state != 'S') || main.gil == Gil::kHolds || (main.motion && is_busy(*main.motion))) return std::nullopt;
  // A call that waits for anything to happen, rather than for an answer or in an exchange of its own.
  const bool waits = doing.operation.kind == OperationKind::kEventLoop || waits_for_events(job, main);
  if (doing.activity != Activity::kPythonLock && !((doing.activity == Activity::kUserCode || doing.activity == Activity::kNetworkIo) && waits)) return std::nullopt;
  const auto place = telling_frame(job, main);
  if (!place) return std::nullopt;
  const Frame& frame = job.frames[main.frames[*place]];
  if (frame.kind != FrameKind::kPython) return std::nullopt;
  return frame.function.value_or("") + '|' + frame.file.value_or("");
}

// Threads that began in one function, a rank each.
struct AlikeThreads {
  // What the one of them waits for that tells most. A thread beside the training ones may wait for ranks at all times (a listener in the store, a
  // receiver of messages): collectives are for training.
  enum class Wait { kNone, kOther, kExchange, kCollective };

  std::map<std::size_t, std::size_t> threads;   // index of the thread by that of the standing
  std::size_t waiting = 0;                      // how many wait for other ranks
  Wait wait = Wait::kNone;

  void add(std::size_t standing, std::size_t thread, Activity activity, bool has_nccl) {
    threads.try_emplace(standing, thread);
    const bool on_device = activity == Activity::kGpuWait && has_nccl;   // for a kernel that may be a collective's
    if (!waits_for_ranks(activity) && !on_device) return;
    ++waiting;
    wait = std::max(wait, activity == Activity::kCollective ? Wait::kCollective : activity == Activity::kPointToPoint || on_device ? Wait::kExchange : Wait::kOther);
  }
  bool half_wait() const { return waiting > 0 && waiting * 2 >= threads.size(); }
  // Whether they may be what trains: most ranks have one, and half of these have arrived. In a collective one that has arrived is enough, and half of the
  // ranks, if no other has a thread in a collective (`arrived`): then those of the others may be gone.
  bool may_train(std::size_t ranks, const std::set<std::size_t>& arrived) const {
    if (threads.size() * 2 > ranks) return wait == Wait::kCollective || half_wait();
    return threads.size() * 2 == ranks && wait == Wait::kCollective && std::all_of(arrived.begin(), arrived.end(), [&](std::size_t i) { return threads.contains(i); });
  }
  // Where only some wait, a rank differs.
  auto weight() const { return std::tuple(wait, half_wait(), waiting < threads.size(), waiting); }
};

// Jobs that train in a thread of their own, while the main thread joins it, polls it or waits for signals: where all main threads stand by in one
// function, and threads that began in one function wait for other ranks, these tell, of each rank that has one.
void tell_by_training_threads(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, Activities& activities, std::vector<Standing>& standings) {
  std::optional<std::string> common;
  std::map<std::string, AlikeThreads> by_entry;
  std::set<std::size_t> arrived;   // standings with a thread in a collective
  std::size_t ranks = 0;
  for (std::size_t i = 0; i < standings.size(); ++i) {
    const Standing& s = standings[i];
    if (s.stranger || !s.readable) continue;
    ++ranks;
    const RankSnapshot& rank = job.ranks[s.rank];
    std::map<std::string, int> alike;   // threads of one rank that began in one function are told apart by the order in which they began
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      if (rank.threads[t].tid == rank.pid) {
        const auto where = stands_by_in(job, rank.threads[t], activities.of_thread(s.rank, t));
        if (!where || (common && *common != *where)) return;
        common = where;
        continue;
      }
      std::string entry = roles[s.rank][t] == Role::kPython ? entry_of(job, rank.threads[t]) : "";
      if (entry.empty()) continue;
      entry += fmt::format("|{}", alike[entry]++);
      const Activity activity = activities.of_thread(s.rank, t).activity;
      by_entry[entry].add(i, t, activity, has_nccl(roles[s.rank]));
      if (activity == Activity::kCollective) arrived.insert(i);
    }
  }
  const AlikeThreads* trainers = nullptr;
  for (const auto& [entry, group] : by_entry)
    if (group.may_train(ranks, arrived) && (trainers == nullptr || trainers->weight() < group.weight())) trainers = &group;
  if (trainers == nullptr) return;
  for (const auto& [i, thread] : trainers->threads) {
    Doing doing = activities.of_thread(standings[i].rank, thread);
    if (doing.activity == Activity::kUnknown) continue;
    standings[i].doing = std::move(doing);
    standings[i].by_own_thread = true;
  }
}

// The thread by which a rank is compared with the others.
const ThreadSnapshot* leading_thread(const JobSnapshot& job, const Standing& standing) {
  const RankSnapshot& rank = job.ranks[standing.rank];
  return standing.by_own_thread ? &rank.threads[standing.doing.thread] : main_thread(rank);
}

void find_peer_waits(const JobSnapshot& job, std::vector<Standing>& standings) {
  const auto may = [&](const Standing& s) { return s.readable && !s.stranger && !job.ranks[s.rank].rank; };
  if (std::count_if(standings.begin(), standings.end(), may) < 2) return;
  for (Standing& s : standings) {
    if (!may(s) || waits_for_ranks(s.doing.activity) || s.dead_child || s.doing.activity == Activity::kStopped) continue;
    Operation wait = wait_for_peer(job, job.ranks[s.rank].threads[s.doing.thread]);
    if (wait.is_none()) continue;
    s.doing.activity = Activity::kPeerWait;
    s.doing.operation = std::move(wait);
  }
}

// Now and then a thread that a look has stopped goes back to its wait so late that this is counted as a run between the looks.
bool ran_by_itself(const Motion& motion) {
  constexpr std::int64_t kLooksPerLateReturn = 4;
  return motion.runs > 0 && motion.runs * kLooksPerLateReturn >= motion.looks;
}

void tell_pace(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, Standing& standing) {
  const RankSnapshot& rank = job.ranks[standing.rank];
  const ThreadSnapshot* main = leading_thread(job, standing);
  if (main == nullptr || !main->motion || main->motion->looks < 2) return;
  const ThreadSnapshot& told = rank.threads[standing.doing.thread];
  std::vector<const Motion*> motions = {&*main->motion};
  if (&told != main && told.motion) motions.push_back(&*told.motion);
  if (standing.told_by_child) {
    const auto& worker = job.ranks[*standing.told_by_child].threads[standing.child_thread].motion;
    if (worker) motions.push_back(&*worker);
  }
  if (!standing.doing.by_frame && waits_for_own_threads(job, *main))
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      const Role role = roles[standing.rank][t];
      const auto& motion = rank.threads[t].motion;
      if ((role == Role::kNative || role == Role::kPython) && motion && motion->moved && !standing.inferred) motions.push_back(&*motion);
    }
  standing.left_wait = main->motion->left_wait;
  standing.pace = Pace::kStill;
  for (const Motion* motion : motions) {
    if ((motion->moved && !standing.inferred) || motion->counted) standing.pace = Pace::kMoves;
    else if (ran_by_itself(*motion) && standing.pace == Pace::kStill) standing.pace = Pace::kRuns;
    standing.busy |= is_busy(*motion);
    standing.counts |= motion->counted;
    standing.travels |= motion->travelled;
  }
  if (launches_go_on(job, rank)) standing.pace = Pace::kMoves;
  if (standing.waits() && standing.doing.activity != Activity::kStoreWait && gloo_moves(rank, roles[standing.rank], *main->motion)) standing.pace = Pace::kMoves;
}

std::optional<int> number_of(const FrameVariables& variables, std::string_view name) {
  for (const auto& [n, value] : variables.numbers)
    if (n == name && value >= 0 && value <= INT32_MAX) return static_cast<int>(value);
  return std::nullopt;
}

// What the arguments of c10d's functions tell: src and dst are ranks of the job, group_src and group_dst places in the group.
void tell_partners(const JobSnapshot& job, Standing& standing) {
  if (!waits_for_ranks(standing.doing.activity)) return;
  const ThreadSnapshot& thread = job.ranks[standing.rank].threads[standing.doing.thread];
  for (const FrameVariables& variables : thread.variables) {
    if (!standing.group && variables.group) standing.group = variables.group;
    if (standing.doing.activity != Activity::kPointToPoint || standing.peer) continue;
    for (const std::string_view name : {"src", "dst"}) {
      if (const auto peer = number_of(variables, name)) standing.peer = peer;
      const auto place = number_of(variables, name == "src" ? "group_src" : "group_dst");
      if (!standing.peer && place && variables.group && static_cast<std::size_t>(*place) < variables.group->ranks.size()) standing.peer = variables.group->ranks[static_cast<std::size_t>(*place)];
    }
  }
}

void tell_path(const JobSnapshot& job, Standing& standing) {
  const RankSnapshot& rank = job.ranks[standing.rank];
  const ThreadSnapshot* main = leading_thread(job, standing);
  if (main == nullptr) return;
  const std::string executable = rank.executable.value_or("");
  const std::string_view program = base_name(executable);
  for (std::size_t i = main->frames.size(); i-- > 0;) {
    const Frame& frame = job.frames[main->frames[i]];
    const bool of_user = frame.kind == FrameKind::kPython ? !is_library_file(frame.file.value_or("<unknown>"))
                                                           : frame.function && frame.line && base_name(frame.module) == program && !is_interpreter(frame.module) && !is_thread_start(frame);
    if (!of_user) continue;
    CodePlace place{frame.function.value_or(""), frame.file.value_or(""), frame.line.value_or(-1), {}, 0};
    for (const FrameVariables& variables : main->variables)
      if (variables.frame == i) place.numbers = variables.numbers, place.loops = variables.loops;
    standing.path.push_back(std::move(place));
  }
}

// Where most processes have a rank's number and the world's size, those that have none are not of the job. Where none has, those that run another
// program than the others.
void find_strangers(const JobSnapshot& job, std::vector<Standing>& standings) {
  const auto numbered = [&](const Standing& s) { return job.ranks[s.rank].rank && job.ranks[s.rank].world_size; };
  const auto count = static_cast<std::size_t>(std::count_if(standings.begin(), standings.end(), numbered));
  if (count >= 2) {
    for (Standing& s : standings) s.stranger = !numbered(s) && !job.ranks[s.rank].rank && s.readable;
    return;
  }
  if (count != 0) return;
  std::map<std::string, std::size_t> programs;
  for (const Standing& s : standings)
    if (s.readable) ++programs[job.ranks[s.rank].executable.value_or("")];
  for (Standing& s : standings) {
    const std::size_t alike = s.readable ? programs[job.ranks[s.rank].executable.value_or("")] : 0;
    s.stranger = s.readable && alike * 4 <= standings.size() && standings.size() > 2;
  }
  if (std::none_of(standings.begin(), standings.end(), [](const Standing& s) { return s.readable && !s.stranger; }))
    for (Standing& s : standings) s.stranger = false;
}

// Faults of the program's own; SIGABRT may be a follower's (the watchdog), SIGTRAP and SIGQUIT are how cores are taken on purpose.
bool is_fault(int signal) { return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGSYS; }

}  // namespace

bool is_busy(const Motion& motion) {
  constexpr double kShare = 0.2;
  return motion.span_ms > 0 && motion.cpu_ms >= kShare * motion.span_ms;
}

std::vector<Standing> standings_of(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, const std::vector<Cluster>& clusters) {
  Activities activities(job, roles);
  std::vector<Standing> standings;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank) continue;
    Standing standing;
    standing.rank = r;
    standing.readable = std::any_of(rank.threads.begin(), rank.threads.end(), [&](const ThreadSnapshot& t) { return t.tid == rank.pid; });
    standing.ended = is_dead(rank);
    if (standing.ended) standing.readable = false;
    if (standing.readable) standing.doing = activities.of_rank(r);
    if (standing.readable)
      if (auto awaited = of_awaited_thread(job, activities, r, standing.doing)) standing.doing = std::move(*awaited);
      else if (auto called = of_called_library(job, roles, activities, r, standing.doing)) standing.doing = std::move(*called);
    standings.push_back(std::move(standing));
  }
  find_strangers(job, standings);
  tell_by_training_threads(job, roles, activities, standings);
  for (Standing& standing : standings) {
    if (!standing.readable) continue;
    standing.gpu_wait_may_be_collective = standing.doing.activity == Activity::kGpuWait && has_nccl(roles[standing.rank]);
    look_at_children(job, roles, standing);
  }
  forget_common_dead_children(job, standings);
  find_peer_waits(job, standings);
  tell_by_classes(job, clusters, activities, standings);
  tell_by_other_ends(job, standings);
  for (Standing& standing : standings) {
    if (!standing.readable) continue;
    tell_pace(job, roles, standing);
    tell_partners(job, standing);
    tell_path(job, standing);
  }
  tell_by_gpus(job, standings);
  return standings;
}

std::string place_key(const JobSnapshot& job, const Standing& standing) {
  if (standing.named_by_gpu) return "on the GPU|" + standing.doing.operation.key();   // the CPU may be further on
  std::string key = standing.doing.operation.key();
  if (const ThreadSnapshot* leading = leading_thread(job, standing)) {
    const ThreadSnapshot& thread = *leading;
    bool user_code = false;
    for (const FrameId id : thread.frames) {
      const Frame& frame = job.frames[id];
      if (frame.kind != FrameKind::kPython || is_library_file(frame.file.value_or("<unknown>"))) continue;
      key += fmt::format("|{}|{}|{}", frame.function.value_or(""), *frame.file, frame.line.value_or(-1));
      user_code = true;
    }
    const auto index = telling_frame(job, thread);
    if (user_code || !index) return key;
    const Frame& frame = job.frames[thread.frames[*index]];
    key += fmt::format("|{}|{}|{}", frame.function.value_or(""), frame.file.value_or(""), frame.kind == FrameKind::kPython ? frame.line.value_or(-1) : -1);
  }
  return key;
}

MissingRanks missing_ranks(const JobSnapshot& job) {
  MissingRanks missing;
  std::set<int> seen;
  std::map<std::string, int> per_host;
  int world = 0;
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.kind != RankKind::kRank) continue;
    if (!rank.rank && is_dead(rank)) continue;            // its environment ended with it
    if (!rank.rank || !rank.world_size) return missing;   // who the others are cannot be told
    if (is_dead(rank)) continue;
    if (world != 0 && *rank.world_size != world) return missing;
    world = *rank.world_size;
    if (seen.insert(*rank.rank).second) ++per_host[rank.host];
  }
  constexpr int kMostRanks = 1 << 20;   // more than any job has; a corrupt snapshot may say anything
  if (seen.empty() || world > kMostRanks) return missing;
  for (const UnseenRank& unseen : job.not_looked_at)
    if (unseen.rank < world && seen.insert(unseen.rank).second) {
      missing.alive.push_back(unseen.rank);
      ++per_host[unseen.host];
    }
  int block = 0;
  for (const auto& [host, count] : per_host) block = std::max(block, count);
  // Blocks of `block` ranks: a block without any rank seen is a machine not looked at. So is a shorter one at the end, where others are.
  std::vector<int> tail;
  for (int first = 0; first < world; first += block) {
    const int end = std::min(first + block, world);
    const auto some = seen.lower_bound(first);
    const bool unseen = some == seen.end() || *some >= end;
    std::vector<int>& into = !unseen ? missing.certain : end - first == block ? missing.elsewhere : tail;
    for (int r = first; r < end; ++r)
      if (!seen.contains(r)) into.push_back(r);
  }
  std::vector<int>& into = missing.elsewhere.empty() ? missing.certain : missing.elsewhere;
  into.insert(into.end(), tail.begin(), tail.end());
  return missing;
}

std::vector<std::size_t> crashed_ranks(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles) {
  std::vector<std::size_t> faults, aborts;
  std::size_t ranks = 0;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank) continue;
    ++ranks;
    if (!rank.signal) continue;
    constexpr int kSentByUser = 0;   // SI_USER: kill(1) from outside, as when cores are taken of a job that hangs
    if (rank.signal->code == kSentByUser) continue;
    if (is_fault(rank.signal->number)) faults.push_back(r);
    if (rank.signal->number != SIGABRT) continue;
    bool by_messenger = false;   // NCCL's watchdog aborts its process because of what another rank did
    for (std::size_t t = 0; t < rank.threads.size(); ++t)
      if (rank.threads[t].tid == rank.signal->tid) by_messenger = is_messenger(roles[r][t], rank.threads[t]);
    if (!by_messenger) aborts.push_back(r);
  }
  // A signal that every rank shares tells nobody apart; a single core shares it with no one.
  if (!faults.empty()) {
    const int first = job.ranks[faults.front()].signal->number;
    const bool shared = ranks > 1 && faults.size() == ranks && std::all_of(faults.begin(), faults.end(), [&](std::size_t r) { return job.ranks[r].signal->number == first; });
    return shared ? std::vector<std::size_t>{} : faults;
  }
  return ranks > 1 && aborts.size() == ranks ? std::vector<std::size_t>{} : aborts;
}

}  // namespace rankstacks
