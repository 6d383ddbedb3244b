// What differs between ranks that should be alike: versions, settings, limits, and the machines below them.
//
// A difference is evidence, and never by itself a reason to accuse a rank: jobs run for months with two versions of
// glibc. So no rule of the verdict depends on it. A verdict that says that ranks misunderstand each other, or that
// cannot say what is wrong, mentions those that may be the cause (Verdict::differences).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

enum class DifferenceKind {
  kVersion,   // of a component (known/components.h)
  kBuild,     // two builds of one component, of the same version or of none that is known
  kVariable,  // a variable of the environment
  kKernel,
  kDistribution,
  kContainer,
  kGpuDriver,     // the kernel's driver
  kLimit,         // a soft limit (ulimit)
  kMemoryLimit,   // of the control groups
  kCpuLimit,      // of the control groups
  kProcessLimit,  // of the control groups
  kCpus,          // the number of processors on which a rank may run
  kClock,         // whether the clock is synchronised
  kOldDriver,     // the driver is too old for the CUDA runtime: no difference between ranks, but of two parts of one
  kOtherDriver,   // libcuda is of another version than the kernel's driver
};

struct DifferenceSide {
  std::optional<std::string> value;  // empty: not set, or unlimited
  std::vector<std::size_t> ranks;    // indices into JobSnapshot::ranks, ascending
  bool operator==(const DifferenceSide&) const = default;
};

struct Difference {
  DifferenceKind kind = DifferenceKind::kVersion;
  std::string name;                   // of the component, variable or limit; "" where the kind says it all
  std::vector<DifferenceSide> sides;  // the one with the fewest ranks first
  // Ranks that differ in it may fail to understand each other.
  bool concerns_communication = false;
  bool operator==(const Difference&) const = default;
};

// Those that concern communication first, then by kind. Ranks without an environment, children, and what is not known
// of a rank are not compared; nor are values that differ by their nature (known/settings.h, own_value.h).
std::vector<Difference> find_differences(const JobSnapshot& job);

// The version of a component that a rank has loaded, "2.28.9"; of several copies all, "2.19.3 and 2.28.9". "" if not
// known, or if it has not loaded it.
std::string version_of(const RankSnapshot& rank, std::string_view component);

// The version of the kernel's driver of its GPUs, from /proc or from NVML; "" if not known.
std::string gpu_driver_of(const RankSnapshot& rank);

}  // namespace rankstacks::analyzers
