// What the stacks show: roles, clusters, verdict. Pure functions of the snapshot: they use no clock, files or
// processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analyzers/differences.h"
#include "analyzers/reason.h"
#include "analyzers/wait_chains.h"
#include "analyzers/wait_graph.h"
#include "known/kinds.h"
#include "model/snapshot.h"

namespace rankstacks::analyzers {

// Threads of one role whose normalised stacks are equal.
struct Cluster {
  int id = 0;  // dense; in the order of `Analysis::clusters`: odd first, then by role, then larger first
  known::Role role = known::Role::kNative;
  // Indices into JobSnapshot::ranks, ascending, unique (children are listed by their own index)
  std::vector<std::size_t> ranks;
  std::vector<std::pair<std::size_t, std::size_t>> members;  // (rank index, thread index)
  bool odd = false;
  std::vector<FrameId> frames;  // those of the first member, innermost first
};

struct Evidence {
  std::size_t rank = 0, thread = 0, frame = 0;  // indices
};

// What a rank does. `kind` is a reason (docs/json.md) or one of: in-collective, in-p2p, in-barrier, in-store-wait,
// computing, idle.
struct RankActivity {
  std::string kind;
  std::string summary;                   // "waits in all_reduce of group 1 (ranks 0,2) (step at train.py:17)"
  std::optional<std::string> operation;  // if it waits for other ranks
  std::optional<std::string> group;      // the name of its process group
  std::optional<int> peer;               // the other rank of a send or receive
  std::optional<bool> moves;             // whether it moves; known from several samples only
  Evidence evidence;
};

struct Suspect {
  std::size_t rank = 0;  // index into JobSnapshot::ranks; SIZE_MAX: a missing rank, then `missing_rank`
  int missing_rank = -1;
  Reason reason = Reason::kNone;
  double confidence = 0;  // 0..1
  std::string summary, advice;
  std::vector<Evidence> evidence;
};

// Values of Verdict::reference, in addition to "pipeline stages: Megatron, from the command line".
inline constexpr const char* kFromGroups = "process groups and peers, from the ranks' memory";
inline constexpr const char* kAllRanks = "all ranks, as no groups are known";
inline constexpr const char* kInferredFromStacks = "inferred from the stacks, most of which are alike";
inline constexpr const char* kFromLaunches = "NCCL's communicators";
inline constexpr const char* kFromNetwork = "NCCL's threads for the network";
inline constexpr const char* kFromWatchdogs = "what NCCL's watchdogs say";
inline constexpr const char* kFromFlightRecords = "PyTorch's Flight Recorder";

// A rank to examine first if the verdict is undecided. A candidate is not accused of anything.
struct Candidate {
  std::size_t rank = 0;  // index into JobSnapshot::ranks
  Reason reason = Reason::kNone;
  std::string would_decide;  // "--gpu", "more samples (--samples 40)"
  std::string summary;
};

struct Verdict {
  VerdictStatus status = VerdictStatus::kUndecided;
  Doubt doubt = Doubt::kNone;
  std::string summary;
  std::vector<Suspect> suspects;
  // How some rank depends on a suspect, and what that suspect waits for: one for each of the first suspects.
  std::vector<WaitChain> chains;
  std::vector<Candidate> candidates;  // best first; empty unless the status is undecided
  // How it is known which ranks should be alike: kFromGroups, ...; "" if nothing was compared.
  std::string reference = {};
  // Indices into Analysis::differences: those that may have to do with it, if it says that ranks misunderstand each
  // other, that one has crashed, or that it is undecided.
  std::vector<std::size_t> differences = {};
};

struct Analysis {
  std::vector<std::vector<known::Role>> roles;  // [rank index][thread index]
  std::vector<std::vector<int>> cluster_of;     // [rank index][thread index]: Cluster::id
  std::vector<Cluster> clusters;
  // [rank index]; std::nullopt for a child, or if the frames do not show it
  std::vector<std::optional<RankActivity>> activities;
  Verdict verdict;
  WaitGraph waits;
  std::vector<Difference> differences;  // between ranks that should be alike; difference_words.h has their sentences
};

struct Facts;  // facts.h

Analysis analyze(const JobSnapshot& job);
// The same with differences that are known already: those of the job before its values were redacted.
Analysis analyze(const JobSnapshot& job, std::vector<Difference> differences);

// The parts of analyze(), each in its own file.
std::vector<std::vector<known::Role>> assign_roles(const JobSnapshot& job);
std::vector<Cluster> cluster_threads(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles);
Verdict judge(const Facts& facts);

}  // namespace rankstacks::analyzers
