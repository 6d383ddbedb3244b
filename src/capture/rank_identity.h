// Which rank of which size a process is: from its environment, else from its core's file name.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace rankstacks {

struct RankIdentity {
  std::optional<int> rank, world_size, local_rank;
  int precedence = -1;   // which launcher's variables told: smaller is nearer to the training program; -1: none
  static constexpr int kSlurm = 5;   // of srun's variables, which every shell and notebook of an allocation has as well
};

// The first of these that has a rank: RANK (torchrun, torch.distributed), OMPI_COMM_WORLD_*, MV2_COMM_WORLD_*, PMI_*, PMIX_RANK, SLURM_*. One
// launcher's variables are never mixed with another's, except that a missing size is taken from the next.
RankIdentity identity_from_environment(const std::map<std::string, std::string>& environment);

// "core.rank3.4711", "train_rank-12.core": the number behind the word rank.
std::optional<int> rank_from_file_name(const std::string& path);

}  // namespace rankstacks
