// What the stacks say: roles, clusters, verdict. Pure functions of the snapshot: no clock, no files, no processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analyzers/reason.h"
#include "analyzers/wait_chains.h"
#include "analyzers/wait_graph.h"
#include "known/kinds.h"
#include "model/snapshot.h"

namespace rankstacks {

// Threads of one role whose normalised stacks are equal.
struct Cluster {
  int id = 0;                           // dense; in the order of `Analysis::clusters`: odd first, then by role, then larger first
  Role role = Role::kNative;
  std::vector<std::size_t> ranks;       // indices into JobSnapshot::ranks, ascending, unique (children stand under themselves)
  std::vector<std::pair<std::size_t, std::size_t>> members;   // (rank index, thread index)
  bool odd = false;
  std::vector<FrameId> frames;          // those of its first member, innermost first
};

struct Evidence {
  std::size_t rank = 0, thread = 0, frame = 0;   // indices
};

// What a rank does, in one word of the contract's reasons or of these: in-collective, in-p2p, in-barrier, in-store-wait, computing, idle.
struct RankActivity {
  std::string kind;
  std::string summary;                     // "waits in all_reduce of group 1 (ranks 0,2) (step at train.py:17)"
  std::optional<std::string> operation;    // of a wait for other ranks
  std::optional<std::string> group;        // the name of its process group
  std::optional<int> peer;                 // the other rank of a send or receive
  std::optional<bool> moves;               // between several samples
  Evidence evidence;
};

struct Suspect {
  std::size_t rank = 0;                 // index into JobSnapshot::ranks; SIZE_MAX: a missing rank, then `missing_rank`
  int missing_rank = -1;
  Reason reason = Reason::kNone;
  double confidence = 0;                // 0..1
  std::string summary, advice;
  std::vector<Evidence> evidence;
};

// Verdict::reference, besides "pipeline stages: Megatron, from the command line".
inline constexpr const char* kFromGroups = "process groups and peers, from the ranks' memory";
inline constexpr const char* kAllRanks = "all ranks, as no groups are known";
inline constexpr const char* kInferredFromStacks = "inferred from the stacks, most of which are alike";
inline constexpr const char* kFromLaunches = "NCCL's communicators";

// A rank to look at first where the verdict is undecided. It accuses nobody.
struct Candidate {
  std::size_t rank = 0;                 // index into JobSnapshot::ranks
  Reason reason = Reason::kNone;
  std::string would_decide;             // "--gpu", "a longer look (--samples 20)"
  std::string summary;
};

struct Verdict {
  VerdictStatus status = VerdictStatus::kUndecided;
  Doubt doubt = Doubt::kNone;
  std::string summary;
  std::vector<Suspect> suspects;
  std::vector<WaitChain> chains;        // how somebody depends on a suspect, and on what that one waits: one for each of the first suspects
  std::vector<Candidate> candidates;    // best first; only where the status is undecided
  std::string reference = {};           // how it is known which ranks should be alike: one of kFromGroups ..., "": nothing was compared
};

struct Analysis {
  std::vector<std::vector<Role>> roles;          // [rank index][thread index]
  std::vector<std::vector<int>> cluster_of;      // [rank index][thread index]: Cluster::id
  std::vector<Cluster> clusters;
  std::vector<std::optional<RankActivity>> activities;   // [rank index]; nothing: a child, or its frames do not tell
  Verdict verdict;
  WaitGraph waits;
};

struct Facts;   // facts.h

Analysis analyze(const JobSnapshot& job);

// The parts, each in its own file.
std::vector<std::vector<Role>> assign_roles(const JobSnapshot& job);
std::vector<Cluster> cluster_threads(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles);
Verdict judge(const Facts& facts);

}  // namespace rankstacks
