// Determines which rank of which world a process is: from what its framework has in memory (python/rank_values.h), from
// its environment, else from its core's file name.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "model/file_rank.h"

namespace rankstacks::capture {

struct RankIdentity {
  std::optional<int> rank, world_size, local_rank;
  // The number of ranks on its machine: as the launcher states it, or all, if they meet at an address that no other
  // machine can reach.
  std::optional<int> local_world_size;
  int precedence = -1;  // which variables were used: smaller is closer to the training program; -1: none
  // By the environment alone, which every process has inherited from the one that started it.
  std::optional<int> inherited_rank;
  int inherited_precedence = -1;

  // The process's title (titled_ranks.h): after what frameworks have in memory, before all environments.
  static constexpr int kTitle = 4, kFirstOfEnvironment = 5;
  // The precedence of srun's variables, which every shell and notebook of an allocation has too.
  static constexpr int kSlurm = kFirstOfEnvironment + 5;
  // TF_CONFIG, the last of all.
  static constexpr int kTensorflow = kFirstOfEnvironment + 10;
  // Open MPI, MVAPICH2, MPICH's Hydra and Intel MPI, PMIx.
  bool is_of_mpi() const { return precedence > kFirstOfEnvironment && precedence < kSlurm; }
};

// The identity from the first of these that has a rank: what jax, vLLM, SGLang or torch.distributed have in memory;
// RANK (torchrun, torch.distributed), OMPI_COMM_WORLD_*, MV2_COMM_WORLD_*, PMI_*, PMIX_RANK, SLURM_*, and others.
// Variables of different launchers are never mixed, except that a missing size is taken from the next one of the same
// rank.
RankIdentity identity_from_environment(const std::map<std::string, std::string>& environment);

// Whether a process has its rank only from `parent`, in whose environment it was started: a helper of that rank.
bool inherits(const RankIdentity& process, const RankIdentity& parent);

}  // namespace rankstacks::capture
