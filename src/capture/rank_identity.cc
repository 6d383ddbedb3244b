#include "capture/rank_identity.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <span>
#include <utility>

#include "capture/tensorflow_cluster.h"

namespace rankstacks::capture {
namespace {

struct Variables {
  const char *rank, *world_size, *local_rank, *local_world_size;
};

// What frameworks have in memory, by the names of known/rank_values.cc. It says what the program has passed to its
// framework: the environment of a job that numbers its ranks itself may be that of a shell, or have the number of a
// machine.
constexpr Variables kInMemory[] = {
    {"jax:process_id", "jax:num_processes", "", ""},
    {"vllm:rank", "vllm:world_size", "vllm:local_rank", ""},
    {"sglang:rank", "sglang:world_size", "", ""},
    {"torch:rank", "torch:world_size", "", ""},
};
static_assert(std::size(kInMemory) <= RankIdentity::kTitle);

// In order of precedence: the variables that the training program itself reads come before those with which its
// launcher was started. `srun torchrun ...` sets SLURM_PROCID in every rank of a node, and RANK in the ranks alone.
constexpr Variables kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},  // PyTorch's env:// rendezvous
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},  // Open MPI
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},                                                   // MVAPICH2
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},                  // MPICH's Hydra, Intel MPI
    {"PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE"},                // PMIx servers
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},  // srun
    {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"},    // horovodrun with gloo
    {"JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "", ""},                                 // jax.distributed.initialize
    {"PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_LOCAL_RANK",
     "PADDLE_LOCAL_SIZE"},                 // paddle.distributed.launch
    {"JOB_COMPLETION_INDEX", "", "", ""},  // an indexed job of Kubernetes; the last of them
};

// Behind all of kLaunchers: a JSON (tensorflow_cluster.h).
constexpr const char* kTfConfig = "TF_CONFIG";
static_assert(std::size(kLaunchers) == RankIdentity::kTensorflow - RankIdentity::kFirstOfEnvironment);

// Far above the size of any job; a larger number is not a rank.
std::optional<int> number(const std::map<std::string, std::string>& environment, const char* name) {
  const auto it = environment.find(name);
  if (it == environment.end()) return std::nullopt;
  int value = 0;
  const char* end = it->second.data() + it->second.size();
  const auto [p, e] = std::from_chars(it->second.data(), end, value);
  if (e != std::errc() || p != end || value < 0 || value > kMaxRank) return std::nullopt;
  return value;
}

// PyTorch's ranks meet at MASTER_ADDR, JAX's at the coordinator's address: at a loopback address none can be on another
// machine.
bool meets_on_this_machine(const std::map<std::string, std::string>& environment) {
  for (const char* name :
       {"jax:coordinator_address", "MASTER_ADDR", "JAX_COORDINATOR_ADDRESS", "COORDINATOR_ADDRESS"}) {
    const auto it = environment.find(name);
    if (it == environment.end()) continue;
    const std::string host = it->second.substr(0, it->second == "::1" ? std::string::npos : it->second.find(':'));
    return host == "localhost" || host == "::1" || host.starts_with("127.");
  }
  return false;
}

// What the variables of one launcher say.
struct Stated {
  std::optional<int> rank, world_size, local_rank, local_world_size;
};

Stated stated_by(const std::map<std::string, std::string>& environment, const Variables& v) {
  const auto rank = number(environment, v.rank);
  if (!rank) return {};
  return {rank, number(environment, v.world_size), number(environment, v.local_rank),
          number(environment, v.local_world_size)};
}

Stated stated_by_tf_config(const std::map<std::string, std::string>& environment) {
  const auto it = environment.find(kTfConfig);
  const auto task = it == environment.end() ? std::nullopt : task_of_tf_config(it->second);
  if (!task) return {};
  return {task->rank, task->world_size, std::nullopt,
          task->on_one_machine ? std::optional(task->world_size) : std::nullopt};
}

}  // namespace

RankIdentity identity_from_environment(const std::map<std::string, std::string>& environment) {
  RankIdentity identity;
  const auto take = [&](const Stated& stated, int precedence) {
    if (!identity.rank && stated.rank) {
      identity.rank = stated.rank;
      identity.precedence = precedence;
    }
    if (!stated.rank || stated.rank != identity.rank) return;
    if (!identity.world_size) identity.world_size = stated.world_size;
    if (!identity.local_rank) identity.local_rank = stated.local_rank;
    if (!identity.local_world_size) identity.local_world_size = stated.local_world_size;
  };
  const auto look_at = [&](std::span<const Variables> rows, int precedence) {
    for (const Variables& v : rows) take(stated_by(environment, v), precedence++);
  };
  const auto look_at_launchers = [&] {
    std::span<const Variables> launchers = kLaunchers;
    // The number of its pod is none of a parameter server.
    if (const auto it = environment.find(kTfConfig); it != environment.end() && is_no_rank_of_tf_config(it->second))
      launchers = launchers.first(launchers.size() - 1);
    look_at(launchers, RankIdentity::kFirstOfEnvironment);
    take(stated_by_tf_config(environment), RankIdentity::kTensorflow);
  };
  look_at_launchers();
  const RankIdentity inherited = std::exchange(identity, {});
  look_at(kInMemory, 0);
  // A process that its launcher has numbered is the same rank with and without its framework: its helpers, which have
  // its environment alone, are to have the same.
  if (!identity.rank || identity.rank == inherited.rank) {
    const auto world_size = identity.world_size;
    identity = inherited;
    if (world_size) identity.world_size = world_size;
  } else {
    look_at_launchers();
  }
  identity.inherited_rank = inherited.rank;
  identity.inherited_precedence = inherited.precedence;
  if (!identity.local_world_size && meets_on_this_machine(environment)) identity.local_world_size = identity.world_size;
  return identity;
}

bool inherits(const RankIdentity& process, const RankIdentity& parent) {
  if (process.rank == parent.rank && process.precedence == parent.precedence) return true;
  const bool numbered_by_environment = process.precedence >= RankIdentity::kFirstOfEnvironment;
  return numbered_by_environment && process.inherited_rank == parent.inherited_rank &&
         process.inherited_precedence == parent.inherited_precedence;
}

}  // namespace rankstacks::capture
