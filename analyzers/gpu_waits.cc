#include "analyzers/gpu_waits.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "analyzers/divergence.h"
#include "analyzers/gpu_motion.h"
#include "analyzers/launches.h"
#include "analyzers/progress.h"
#include "model/process_index.h"

namespace rankstacks::analyzers {
namespace {

constexpr double kBusy = 90, kAtRest = 10;  // percent

bool has_gpus(const JobSnapshot& job) {
  return std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankSnapshot& rank) { return !rank.gpus.empty(); });
}

// Whether this collective consists of sends and receives, whose kernel it has.
bool is_made_of_messages(known::Collective collective) {
  return collective == known::Collective::kAllToAll || collective == known::Collective::kGather ||
         collective == known::Collective::kScatter;
}

// Whether this may be the kernel that the CPU's call launched. c10d's barrier is an all-reduce; gather, scatter and
// all-to-all are sends and receives.
bool may_be_kernel_of(const RankState& s) {
  const Operation& call = s.doing.operation;
  if (call.generic || !s.gpu.named()) return true;
  return std::any_of(s.gpu.collectives.begin(), s.gpu.collectives.end(), [&](known::Collective kernel) {
    if (kernel == known::Collective::kAllReduce && call.collective == known::Collective::kBarrier) return true;
    if (kernel == known::Collective::kSendRecv)
      return call.sends || call.receives || is_made_of_messages(call.collective);
    return call.collective != known::Collective::kUnknown && kernel == call.collective;
  });
}

// Its CPU goes round in one function and counts nothing: it asks again and again whether its GPU has finished.
bool polls(const JobSnapshot& job, const RankState& s) {
  const RankSnapshot& rank = job.ranks[s.rank];
  return s.moves() && s.in_one_function && !s.counts && !s.left_wait && !launches_go_on(job, rank) && !gpus_go_on(rank);
}

void wait_for_own_gpu(RankState& s) {
  s.doing.activity = known::Activity::kGpuWait;
  s.doing.operation = {};
  s.gpu_wait_may_be_collective = false;
  s.known_from_gpu = true;
  s.group.reset();
  s.peer.reset();
}

// Whether the operation, group and peer known from the CPU may be those of this kernel.
bool cpu_names_kernel(const RankState& s) {
  return known::waits_for_ranks(s.doing.activity) && s.doing.activity != known::Activity::kStoreWait &&
         may_be_kernel_of(s);
}

// The kernel is that of messages, and the CPU is in a collective that consists of them: what it is, the CPU says.
bool cpu_is_in_exchange(const RankState& s) {
  return s.gpu.only_messages() && s.doing.activity == known::Activity::kCollective && !s.doing.operation.generic &&
         is_made_of_messages(s.doing.operation.collective);
}

void wait_in_kernel(const JobSnapshot& job, RankState& s) {
  const bool messages = s.gpu.only_messages();
  s.doing.activity = messages ? known::Activity::kPointToPoint : known::Activity::kCollective;
  s.doing.operation = operation_of_kind(messages ? known::OperationKind::kMessage : known::OperationKind::kCollective,
                                        name_collectives(s.gpu));
  s.doing.operation.call = s.doing.operation.name;  // several kernels may be there at once
  if (s.gpu.collectives.size() == 1) s.doing.operation.collective = s.gpu.collectives.front();
  s.doing.operation.sends = s.doing.operation.receives = messages;
  s.gpu_wait_may_be_collective = false;
  s.known_from_gpu = s.named_by_gpu = true;
  s.group.reset();
  s.peer.reset();
  if (polls(job, s)) s.progress = Progress::kRuns;
}

class GpuRefinement {
 public:
  GpuRefinement(const JobSnapshot& job, std::vector<RankState>& states) : job_(job), states_(states) {
    for (std::size_t i = 0; i < states.size(); ++i) {
      RankState& s = states[i];
      const RankSnapshot& rank = job.ranks[s.rank];
      s.gpu = gpu_state_of(job.frames, rank);
      s.gpu_only = rank.threads.empty() && !s.ended && gpus_were_examined(rank);
      if (!s.unrelated && s.readable) compared_.push_back(i);
    }
    forget_other_moments();
    forget_missing_kernels();
    assume_kernels();
    std::copy_if(compared_.begin(), compared_.end(), std::back_inserter(polling_),
                 [&](std::size_t i) { return states_[i].gpu.in_collective(); });
  }

  void refine() {
    const auto does_not_poll = [&](std::size_t i) {
      return states_[i].gpu.activity != GpuActivity::kCollective && states_[i].gpu.activity != GpuActivity::kUnknown;
    };
    if (polling_.empty()) {
      without_collectives();
      by_utilization();
    } else if (std::any_of(compared_.begin(), compared_.end(), does_not_poll)) {
      some_poll();
    } else {
      all_poll();
    }
  }

 private:
  // Both wait for ranks or their GPUs in the same step.
  static bool wait_alike(const RankState& a, const RankState& b) {
    return a.waits() && a.doing.activity == b.doing.activity && a.group == b.group &&
           divergence_of(a, b).counter.empty();
  }

  // The GPUs are asked some time after the stacks were read, and each at a time of its own. A collective that runs on
  // one GPU, while another rank that waits on the host has launched as many of them, and has nothing on its GPU, has
  // come and gone there: what runs is of another moment than the stacks. (A rank that waits for its GPU may have
  // launches there that wait for a copy, an event or a function of the host's.)
  void forget_other_moments() {
    const LaunchCounts launched(job_);
    std::vector<std::size_t> passing, others;
    std::copy_if(compared_.begin(), compared_.end(), std::back_inserter(others),
                 [&](std::size_t i) { return !states_[i].gpu.in_collective(); });
    if (others.empty()) return;
    for (const std::size_t i : compared_) {
      const GpuState& gpu = states_[i].gpu;
      if (gpu.activity != GpuActivity::kCollective || gpu.only_messages()) continue;
      if (std::all_of(others.begin(), others.end(), [&](std::size_t j) {
            const RankState& other = states_[j];
            return other.gpu.activity == GpuActivity::kIdle && known::waits_for_ranks(other.doing.activity) &&
                   launched.share_some(states_[i].rank, other.rank) && launched.are_equal(states_[i].rank, other.rank);
          }))
        passing.push_back(i);
    }
    for (const std::size_t i : passing) states_[i].gpu = GpuState();
  }

  // Nothing is seen on a GPU whose rank waits for it, and has launched a collective that cannot have ended. A device
  // that processes share shows the kernels of the process whose time slice it is.
  void forget_missing_kernels() {
    const LaunchCounts launched(job_);
    for (const std::size_t i : compared_) {
      RankState& s = states_[i];
      if (s.gpu.activity == GpuActivity::kIdle && s.gpu_wait_may_be_collective &&
          launched.has_one_that_cannot_end(s.rank))
        s.gpu = GpuState();
    }
  }

  // A rank whose GPUs did not answer waits for the collective in which the GPUs of those are that wait at its very
  // place, and have launched as much. Another kernel than a collective's, or none, is of the rank that was asked alone.
  void assume_kernels() {
    const auto answered = std::stable_partition(compared_.begin(), compared_.end(), [&](std::size_t i) {
      return gpus_were_examined(job_.ranks[states_[i].rank]);
    });
    const std::vector<std::size_t> known(compared_.begin(), answered), silent(answered, compared_.end());
    std::sort(compared_.begin(), compared_.end());
    if (known.empty() || silent.empty()) return;
    constexpr std::size_t kMaxCompared = 64;  // with each rank that did not answer
    std::map<std::string, std::vector<std::size_t>> at_place;
    for (const std::size_t i : known) {
      auto& there = at_place[place_key(job_, states_[i])];
      if (there.size() < kMaxCompared) there.push_back(i);
    }
    const LaunchCounts launched(job_);
    for (const std::size_t i : silent) {
      const auto there = at_place.find(place_key(job_, states_[i]));
      if (there == at_place.end()) continue;
      std::optional<GpuState> common;
      bool agree = true;
      for (const std::size_t j : there->second) {
        if (!wait_alike(states_[i], states_[j]) || !launched.are_equal(states_[i].rank, states_[j].rank)) continue;
        const GpuState& gpu = states_[j].gpu;
        if (!common) common = gpu;
        agree &= gpu.in_collective() && gpu.collectives == common->collectives;
        if (gpu.launch != common->launch) common->launch.reset();  // in groups of their own
        if (gpu.variant != common->variant) common->variant.reset();
      }
      if (!common || !agree) continue;
      states_[i].gpu = *common;
      states_[i].gpu_assumed = true;
    }
  }

  void without_collectives() {
    for (const std::size_t i : compared_)
      if (states_[i].gpu_wait_may_be_collective && states_[i].gpu.activity == GpuActivity::kUnknown) return;
    for (const std::size_t i : compared_) {
      RankState& s = states_[i];
      if (s.gpu_wait_may_be_collective && s.gpu.activity == GpuActivity::kKernel) wait_for_own_gpu(s);
    }
  }

  // Its CPU waits for the other ranks in the same call as the CPU of a rank whose GPU polls; the kernel of that call
  // has not started here.
  bool waits_alike(const RankState& s) const {
    return known::waits_for_ranks(s.doing.activity) && s.doing.activity != known::Activity::kStoreWait &&
           std::any_of(polling_.begin(), polling_.end(), [&](std::size_t i) {
             const Doing& doing = before_[i].doing;
             return doing.activity == s.doing.activity && same_call(doing.operation, s.doing.operation) &&
                    may_be_kernel_of(before_[i]);
           });
  }

  void some_poll() {
    before_ = states_;
    for (const std::size_t i : compared_) {
      RankState& s = states_[i];
      if (s.gpu.in_collective()) {
        if (s.answers_call) continue;  // its main thread waits on the GPU, but the ranks wait for another thread
        if (cpu_names_kernel(s)) s.known_from_gpu = true;
        else wait_in_kernel(job_, s);
        continue;
      }
      if (s.gpu.activity != GpuActivity::kKernel && s.gpu.activity != GpuActivity::kIdle) continue;
      const bool cpu_is_unclear =
          s.doing.activity == known::Activity::kUnknown || s.doing.activity == known::Activity::kAutograd;
      if (s.doing.activity == known::Activity::kGpuWait || waits_alike(s) ||
          (cpu_is_unclear && s.gpu.activity == GpuActivity::kKernel))
        wait_for_own_gpu(s);
    }
    name_the_only_peer();
  }

  void all_poll() {
    const RankState& first = states_[polling_.front()];
    const bool all_named =
        std::all_of(polling_.begin(), polling_.end(), [&](std::size_t i) { return states_[i].gpu.named(); });
    const bool differ = all_named && std::any_of(polling_.begin(), polling_.end(), [&](std::size_t i) {
                          return !may_be_same_collective(first.gpu, states_[i].gpu);
                        });
    const bool cpus_name_them = std::all_of(polling_.begin(), polling_.end(), [&](std::size_t i) {
      return cpu_names_kernel(states_[i]) && !states_[i].doing.operation.generic;
    });
    if (differ && std::all_of(polling_.begin(), polling_.end(), [&](std::size_t i) {
          return states_[i].gpu.launch && states_[i].gpu.collectives == first.gpu.collectives;
        }))
      name_launches(std::any_of(polling_.begin(), polling_.end(),
                                [&](std::size_t i) { return differ_in_variant(first.gpu, states_[i].gpu); }));
    for (const std::size_t i : polling_) {
      RankState& s = states_[i];
      const bool cpu_decides = cpus_name_them || cpu_is_in_exchange(s);
      if (differ && !cpu_decides && (s.launched_otherwise.empty() || !cpu_names_kernel(s))) wait_in_kernel(job_, s);
      else s.known_from_gpu = differ || s.gpu_wait_may_be_collective;
    }
    if (differ) name_the_only_peer();
  }

  void name_launches(bool with_variants) {
    for (const std::size_t i : polling_) {
      const GpuState& gpu = states_[i].gpu;
      states_[i].launched_otherwise =
          with_variants && gpu.variant ? fmt::format("{}, {}", *gpu.variant, *gpu.launch) : *gpu.launch;
    }
  }

  // If there are two ranks, the peer is the other one.
  void name_the_only_peer() {
    if (compared_.size() != 2) return;
    for (const std::size_t i : polling_) {
      RankState& s = states_[i];
      const RankSnapshot& rank = job_.ranks[s.rank];
      const auto other = job_.ranks[states_[compared_[compared_.front() == i ? 1 : 0]].rank].rank;
      if (s.doing.activity == known::Activity::kPointToPoint && !s.peer && rank.world_size == 2) s.peer = other;
    }
  }

  // Weaker evidence than kernels: for seconds nothing ran on one GPU, and always something on the others, whose CPUs
  // wait in the same way.
  void by_utilization() {
    std::vector<std::size_t> at_rest, busy;
    for (const std::size_t i : compared_) {
      const RankState& s = states_[i];
      const auto percent = utilization_of(job_.ranks[s.rank]);
      if (!s.gpu_wait_may_be_collective || s.gpu.activity != GpuActivity::kUnknown ||
          s.progress == Progress::kUnknown || s.moves() || !percent)
        return;
      if (*percent <= kAtRest) at_rest.push_back(i);
      else if (*percent >= kBusy) busy.push_back(i);
      else return;
    }
    if (at_rest.empty() || busy.size() < at_rest.size()) {
      if (at_rest.empty()) by_power();
      return;
    }
    for (const std::size_t i : at_rest) {
      wait_for_own_gpu(states_[i]);
      states_[i].known_from_utilization = true;
    }
  }

  // Kernels run on all GPUs; few of them compute, for longer than steps take, and the others only poll.
  void by_power() {
    std::vector<std::size_t> computing;
    for (const std::size_t i : compared_) {
      const RankSnapshot& rank = job_.ranks[states_[i].rank];
      const auto& motion = rank.threads[states_[i].doing.thread].motion;
      const std::optional<bool> computes = states_[i].gpu_computes;
      if (!computes || !motion || motion->span_ms < kLongerThanStepsMs) return;
      if (*computes) computing.push_back(i);
    }
    if (computing.empty() || computing.size() * 2 > compared_.size()) return;
    for (const std::size_t i : computing) {
      wait_for_own_gpu(states_[i]);
      states_[i].known_from_power = true;
    }
  }

  const JobSnapshot& job_;
  std::vector<RankState>& states_;
  std::vector<RankState> before_;                // the states as known from the CPUs
  std::vector<std::size_t> compared_, polling_;  // indices into the states
};

std::optional<bool> gpu_computes(const JobSnapshot& job, const ProcessIndex& processes, std::size_t rank) {
  // The driver's mean utilization is over its last samples, some of which may be from before the kernel. No kernel that
  // polls draws as much as kFarAbovePolling (an H100 of 700 W: 120 to 250 W).
  constexpr double kShareOfLimit = 0.35, kFarAbovePolling = 0.6, kMainlyBusyPercent = 50;
  std::optional<bool> computes;
  for (const GpuSnapshot& gpu : job.ranks[rank].gpus) {
    if (!gpu.health) continue;
    const GpuHealth& health = *gpu.health;
    const bool all_of_job = std::all_of(health.other_processes.begin(), health.other_processes.end(),
                                        [&](Pid other) { return !processes.find(rank, other).empty(); });
    const std::optional<double> power = health.power_mean_w ? health.power_mean_w : health.power_w;
    if (!all_of_job || !power || !health.power_limit_w || !health.utilization_mean) return std::nullopt;
    computes = computes.value_or(false) || *power >= kFarAbovePolling * *health.power_limit_w ||
               (*health.utilization_mean >= kMainlyBusyPercent && *power >= kShareOfLimit * *health.power_limit_w);
  }
  return computes;
}

}  // namespace

void find_computing_gpus(const JobSnapshot& job, std::vector<RankState>& states) {
  if (!has_gpus(job)) return;
  const ProcessIndex processes(job);
  for (RankState& state : states) state.gpu_computes = gpu_computes(job, processes, state.rank);
}

void refine_by_gpus(const JobSnapshot& job, std::vector<RankState>& states) {
  if (has_gpus(job)) GpuRefinement(job, states).refine();
}

std::string describe_gpu_wait(const RankState& s) {
  if (s.known_from_utilization) return "waits for its GPU, which is at rest while those of the others are busy";
  if (s.known_from_power) return "waits for its GPU, which computes while those of the others only poll";
  if (s.gpu.activity == GpuActivity::kKernel)
    return fmt::format("waits for its GPU, which runs {}", describe_kernel(*s.gpu.kernel));
  if (s.gpu.activity == GpuActivity::kIdle && s.known_from_gpu) return "waits for its GPU, on which no kernel runs";
  return "";
}

std::optional<double> utilization_of(const RankSnapshot& rank) {
  std::optional<double> most;
  for (const GpuSnapshot& gpu : rank.gpus) {
    if (!gpu.health) continue;
    if (!gpu.health->other_processes.empty()) return std::nullopt;
    if (gpu.health->utilization_mean) most = std::max(most.value_or(0), *gpu.health->utilization_mean);
  }
  return most;
}

}  // namespace rankstacks::analyzers
