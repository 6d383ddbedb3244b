// Determines which rank of which world a process is: from its environment, else from its core's file name.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace rankstacks::capture {

struct RankIdentity {
  std::optional<int> rank, world_size, local_rank;
  // The number of ranks on its machine: as the launcher states it, or all, if they meet at an address that no other
  // machine can reach.
  std::optional<int> local_world_size;
  int precedence = -1;  // which launcher's variables were used: smaller is closer to the training program; -1: none
  // The precedence of srun's variables, which every shell and notebook of an allocation has too.
  static constexpr int kSlurm = 5;
  // Open MPI, MVAPICH2, MPICH's Hydra and Intel MPI, PMIx.
  bool is_of_mpi() const { return precedence >= 1 && precedence <= 4; }
};

// The identity from the first of these that has a rank: RANK (torchrun, torch.distributed), OMPI_COMM_WORLD_*,
// MV2_COMM_WORLD_*, PMI_*, PMIX_RANK, SLURM_*. Variables of different launchers are never mixed, except that a missing
// size is taken from the next one.
RankIdentity identity_from_environment(const std::map<std::string, std::string>& environment);

// "core.rank3.4711", "train_rank-12.core": the number after the word "rank".
std::optional<int> rank_from_file_name(const std::string& path);

}  // namespace rankstacks::capture
