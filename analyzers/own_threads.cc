#include "analyzers/own_threads.h"

#include <algorithm>
#include <map>
#include <set>

#include "analyzers/names.h"
#include "analyzers/roles.h"

namespace rankstacks {

bool waits_for_own_threads(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.state && *thread.state != 'S') return false;
  if (thread.syscall) return thread.syscall->name == "futex";
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative || !is_opaque(frame.module)) return false;
    if (!frame.function) continue;
    const std::string name = public_libc_name(*frame.function);
    if (name == "pthread_join" || name.starts_with("pthread_cond_") || name.starts_with("sem_") || name.starts_with("std::thread::join") || name.starts_with("futex")) return true;
  }
  return false;
}

namespace {

// A thread that every rank has is no background where it gets on in one of them: what it does in the others is what they do.
void tell_by_motion(const JobSnapshot& job, const std::vector<Cluster>& clusters, const std::map<std::size_t, std::size_t>& standing_of, Activities& activities, std::vector<Standing>& standings) {
  std::map<std::size_t, std::size_t> most_active;   // thread by rank
  bool some_move = false;
  for (const Cluster& cluster : clusters) {
    if (cluster.role != Role::kNative) continue;
    for (const auto& [rank, thread] : cluster.members) {
      const auto& motion = job.ranks[rank].threads[thread].motion;
      if (!standing_of.contains(rank) || !motion || is_idle(job, job.ranks[rank].threads[thread], cluster.role)) continue;
      some_move = some_move || motion->moved;
      const auto [it, is_first] = most_active.try_emplace(rank, thread);
      const auto& best = job.ranks[rank].threads[it->second].motion;
      if (!is_first && std::pair(motion->moved, motion->runs) > std::pair(best->moved, best->runs)) it->second = thread;
    }
  }
  if (!some_move) return;
  for (const auto& [rank, thread] : most_active) standings[standing_of.at(rank)].doing = activities.of_thread(rank, thread);
}

}  // namespace

void tell_by_classes(const JobSnapshot& job, const std::vector<Cluster>& clusters, Activities& activities, std::vector<Standing>& standings) {
  std::map<std::size_t, std::size_t> standing_of;   // by rank index
  for (std::size_t i = 0; i < standings.size(); ++i) {
    const Standing& s = standings[i];
    if (s.stranger || !s.readable) continue;
    const Activity activity = s.doing.activity;
    const bool told = s.doing.by_frame || (activity != Activity::kUserCode && activity != Activity::kNativeLock && activity != Activity::kUnknown);
    if (told || job.ranks[s.rank].python_version || !waits_for_own_threads(job, job.ranks[s.rank].threads[s.doing.thread])) return;
    standing_of.emplace(s.rank, i);
  }
  if (standing_of.size() < 2) return;

  struct Telling {
    int cluster = -1;
    std::size_t thread = 0;
  };
  std::map<std::size_t, Telling> telling;           // by standing
  for (const Cluster& cluster : clusters) {
    if (cluster.role != Role::kNative && cluster.role != Role::kPython) continue;
    const std::set<std::size_t> ranks(cluster.ranks.begin(), cluster.ranks.end());
    if (std::all_of(standing_of.begin(), standing_of.end(), [&](const auto& one) { return ranks.contains(one.first); })) continue;
    for (const auto& [rank, thread] : cluster.members)
      if (const auto it = standing_of.find(rank); it != standing_of.end() && !is_idle(job, job.ranks[rank].threads[thread], cluster.role)) telling.try_emplace(it->second, Telling{cluster.id, thread});
  }
  if (telling.size() != standing_of.size()) {         // some rank has nothing of its own
    tell_by_motion(job, clusters, standing_of, activities, standings);
    return;
  }

  std::map<int, std::vector<std::size_t>> classes;
  for (const auto& [i, tells] : telling) {
    classes[tells.cluster].push_back(i);
    standings[i].doing = activities.of_thread(standings[i].rank, tells.thread);
  }
  const auto largest = std::max_element(classes.begin(), classes.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (largest->second.size() * 2 <= standing_of.size()) return;
  for (const auto& [cluster, members] : classes) {
    if (cluster == largest->first) continue;
    for (const std::size_t i : members) {
      const auto& motion = job.ranks[standings[i].rank].threads[standings[i].doing.thread].motion;
      // One that wakes up again and again does not stand still, whatever place the looks hit.
      if (motion && (motion->moved || motion->counted || is_busy(*motion) || motion->runs >= motion->looks)) return;
    }
  }
  for (const std::size_t i : largest->second) {
    Doing& doing = standings[i].doing;
    if (waits_for_ranks(doing.activity)) continue;
    doing.activity = Activity::kPeerWait;
    const ThreadSnapshot& thread = job.ranks[standings[i].rank].threads[doing.thread];
    const auto place = telling_frame(job, thread);
    doing.operation = operation_of_call(OperationKind::kUnnamed, place ? short_function(*job.frames[thread.frames[*place]].function) : "", place ? "" : "a wait");
    doing.by_frame = false;
    standings[i].inferred = true;
  }
}

}  // namespace rankstacks
