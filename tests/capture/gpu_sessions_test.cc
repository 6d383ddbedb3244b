#include "capture/gpu_sessions.h"

#include <catch2/catch.hpp>

#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::capture;
using namespace rankstacks::testing;

namespace {

const std::string kDriver = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04";

}  // namespace

TEST_CASE("a launch that waits for room in its GPU's queue is known by its stack") {
  const auto launch_of = [](const Stack& autograd) {
    LiteralJob literal;
    RankSnapshot& rank = literal.rank(0, 2, waits_in_backward());
    literal.thread(rank, 777, "pt_autograd_0", autograd);
    return blocked_launch_of(literal.job.frames, rank);
  };
  const Frame inside = unknown(kDriver, 0xfca048), runtime = nat("cudaLaunchKernel", "/x/libcudart.so.13");
  const auto found = launch_of({libc("__sched_yield"), inside, inside, nat("cuLaunchKernel", kDriver), runtime});
  REQUIRE(found);
  CHECK((found->tid == 777 && found->call == "cuLaunchKernel"));
  // It computes in the launch; another library yields; a synchronisation yields, and holds no lock.
  CHECK_FALSE(launch_of({inside, inside, nat("cuLaunchKernel", kDriver), runtime}));
  CHECK_FALSE(launch_of({libc("__sched_yield"), nat("ncclProxyProgress(void*)", "/x/libnccl.so.2"), inside}));
  CHECK_FALSE(launch_of({libc("__sched_yield"), inside, nat("cuStreamSynchronize", kDriver), runtime}));
  CHECK_FALSE(launch_of({}));
}
