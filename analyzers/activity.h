// What a thread is doing, as far as its frames show.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analyzers/activity_rules.h"
#include "analyzers/analysis.h"
#include "analyzers/operation.h"
#include "analyzers/place.h"
#include "model/families.h"

namespace rankstacks::analyzers {

// The reason of a suspect with this activity; kNone if it is not an activity that can be blamed (unknown, a wait for
// others).
Reason reason_of(known::Activity activity);

struct Doing {
  known::Activity activity = known::Activity::kUnknown;
  std::size_t thread = 0;    // index of the thread that this is known from
  std::size_t frame = 0;     // index of the frame that shows it (0 if the system call or the state does)
  bool by_frame = false;     // known from a frame of the table, not from the system call or by elimination
  Operation operation;       // none if only the activity is known
  bool in_teardown = false;  // the main program has ended, and the thread does this on its way out
  bool connects = false;     // it sets up the connection for a message, which takes both ends
};

// The rule of each frame, looked up once. Ranks share their native functions, at different addresses. The table of
// frames must outlive the cache, and must be the same in every call.
class RuleCache {
 public:
  const known::ActivityRule* of(const FrameTable& frames, FrameId id);  // nullptr if no rule holds

 private:
  std::unordered_map<std::string_view, const known::ActivityRule*> by_function_;
  std::unordered_map<FrameId, const known::ActivityRule*> by_frame_;
};

// Compares a job's stacks with the tables of known/. What it is made from must outlive this object.
class Activities {
 public:
  Activities(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles, const Families& families)
      : job_(job), roles_(roles), families_(families) {}

  Doing of_thread(std::size_t rank, std::size_t thread);
  // A whole rank: what its main thread does, or, if the main thread only waits for another thread of the process,
  // what that thread does.
  Doing of_rank(std::size_t rank);
  // What the thread does that runs a call which another process has made to this rank (torch.distributed.rpc);
  // std::nullopt if there is no such thread, or if it waits for ranks as well. `main` is the index of the main thread.
  std::optional<Doing> of_served_call(std::size_t rank, std::size_t main);

 private:
  struct DecidingRule {
    const known::ActivityRule* rule = nullptr;  // nullptr if no frame shows the activity
    std::size_t frame = 0;                      // index of the frame that shows it
  };
  DecidingRule deciding_rule(const ThreadSnapshot& thread);
  // What the frame shows that `decided`.
  Doing by_frames(const RankSnapshot& rank, const ThreadSnapshot& thread, const DecidingRule& decided);
  // If the main thread waits for threads of its own process, as `doing` says, these show what the rank does. Of several
  // threads one that waits for ranks comes last, since a helper such as a watchdog may always do so. std::nullopt if
  // they do not show it.
  std::optional<Doing> of_awaited_threads(std::size_t rank, std::size_t main, const Doing& doing);

  // Whether the thread waits for a future of DDP's hook (hook_futures.h): in a process with NCCL's threads, of which no
  // thread is in a collective. gloo's and MPI's futures are complete when a thread of theirs has run the collective.
  // Where most ranks wait there, they wait for a rank.
  bool waits_for_hooks_future(std::size_t rank, std::size_t thread, std::size_t frame);
  // The frame in which it waits for a call that another process carries out.
  std::optional<std::size_t> remote_call_of(std::size_t rank, std::size_t thread) const;
  bool most_wait_for_buckets();
  // For a thread that waits for a future of DDP's hook: what the thread does that is to set it, if that is known.
  Doing of_hooks_future(std::size_t rank, const Doing& waiting);

  const JobSnapshot& job_;
  const std::vector<std::vector<known::Role>>& roles_;
  const Families& families_;
  RuleCache rules_;
  std::optional<bool> most_wait_for_buckets_;
};

}  // namespace rankstacks::analyzers
