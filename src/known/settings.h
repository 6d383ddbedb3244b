// The environment variables that a report holds, and those of them that differ between healthy ranks.
#pragma once

#include <span>
#include <string_view>

namespace rankstacks::known {

// Whether a variable of this name is in reports: NCCL_*, TORCH_*, CUDA_*, OMP_*, GLOO_*, UCX_*, FI_*, PYTHON*. A name
// with characters other than letters, digits and '_' is of none of these.
bool is_setting(std::string_view name);

// A variable whose value differs between ranks by its nature.
struct OwnValueRule {
  std::string_view name;  // the whole name
  std::string_view why;
};

std::span<const OwnValueRule> own_value_rules();
// nullptr: its value should be the same on all ranks.
const OwnValueRule* own_value_rule(std::string_view name);

// Whether ranks that differ in it may fail to understand each other: a difference is mentioned in the verdict.
bool is_communication_setting(std::string_view name);

// Whether a value is a word that a library defines for its settings ("INFO", "Ring", "efa"), or the kernel's name of a
// network interface or adapter ("eth0", "mlx5_1"): it says how a job runs, and nothing about whose it is.
bool is_setting_word(std::string_view value);

}  // namespace rankstacks::known
