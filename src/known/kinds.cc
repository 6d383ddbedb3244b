#include "known/kinds.h"

#include <array>
#include <cstddef>

namespace rankstacks::known {
namespace {

constexpr std::array<const char*, 27> kRoleNames = {
    "main",     "python",       "autograd",    "nccl-watchdog", "nccl-heartbeat", "nccl-monitor", "nccl-proxy",
    "nccl-ras", "nccl-service", "gloo-loop",   "gloo-worker",   "tcp-store",      "data-loader",  "checkpoint",
    "cuda",     "openmp",       "jit-compile", "grpc",          "profiler",       "rpc",          "mpi",
    "xla",      "elastic",      "logging",     "faulthandler",  "idle-pool",      "native",
};
static_assert(kRoleNames.size() == static_cast<std::size_t>(Role::kNative) + 1);

}  // namespace

const char* to_string(Role role) { return kRoleNames[static_cast<std::size_t>(role)]; }

std::optional<Role> role_of_word(std::string_view word) {
  for (std::size_t i = 0; i < kRoleNames.size(); ++i)
    if (word == kRoleNames[i]) return static_cast<Role>(i);
  return std::nullopt;
}

std::string_view to_string(Collective collective) { return word_of(kCollectiveWords, collective); }

}  // namespace rankstacks::known
