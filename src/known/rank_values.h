// Where frameworks keep the number of their own rank in memory: in objects of their Python modules.
#pragma once

#include <span>
#include <string_view>

namespace rankstacks::known {

// The value, an int or a str, that `path` leads to: a global of the module, and attributes of it.
struct RankValueRule {
  std::string_view module;  // as in sys.modules
  std::string_view path;    // "global_state.process_id"
  std::string_view name;    // of the variable as which capture/rank_identity knows it; no environment has such a name
  std::string_view source;
};

std::span<const RankValueRule> rank_values();

// PyTorch's default process group is no instance of a class written in Python (python/rank_values.h).
inline constexpr std::string_view kC10dModule = "torch.distributed.distributed_c10d", kTorchRank = "torch:rank",
                                  kTorchWorldSize = "torch:world_size";

}  // namespace rankstacks::known
