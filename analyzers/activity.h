// What a thread is doing, as far as its frames tell.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analyzers/activity_rules.h"
#include "analyzers/analysis.h"
#include "analyzers/place.h"
#include "analyzers/operation.h"

namespace rankstacks {

// The reason of a suspect that does this; kNone where the activity is none (unknown, a wait for others).
Reason reason_of(Activity activity);

struct Doing {
  Activity activity = Activity::kUnknown;
  std::size_t thread = 0;              // index of the thread that told
  std::size_t frame = 0;               // index of the frame that told (0 where the system call or state did)
  bool by_frame = false;               // a frame of the table told, rather than the system call or what was left over
  Operation operation;                 // none: only the activity is known
  bool in_teardown = false;            // the main program has ended: it does this on its way out
};

// The rule of each frame, looked up once. Ranks share their native functions, under other addresses. The table of frames must outlive it, and
// be the same in every call.
class RuleCache {
 public:
  const ActivityRule* of(const FrameTable& frames, FrameId id);   // null: none

 private:
  std::unordered_map<std::string_view, const ActivityRule*> by_function_;
  std::unordered_map<FrameId, const ActivityRule*> by_frame_;
};

// Reads a job's stacks against the tables of known/. The job must outlive it.
class Activities {
 public:
  Activities(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles) : job_(job), roles_(roles) {}

  Doing of_thread(std::size_t rank, std::size_t thread);
  // A whole rank: its main thread, or where that only waits for a thread of its own, that thread.
  Doing of_rank(std::size_t rank);

 private:
  struct DecidingRule {
    const ActivityRule* rule = nullptr;   // null: no frame tells
    std::size_t frame = 0;                // index of the frame that tells
  };
  DecidingRule deciding_rule(const ThreadSnapshot& thread);

  const JobSnapshot& job_;
  const std::vector<std::vector<Role>>& roles_;
  RuleCache rules_;
};

}  // namespace rankstacks
