// Message texts of PyTorch's watchdogs, as observed, and the cause that is read from them.
#include <catch2/catch.hpp>

#include "capture/exception_cause.h"

using namespace rankstacks;
using namespace rankstacks::capture;

TEST_CASE("an error of the process's own GPU work") {
  const auto own = ExceptionCause::kOwnGpu;
  CHECK(cause_of("[PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog thread terminated with exception: CUDA "
                 "error: an illegal memory access was "
                 "encountered\nCUDA kernel errors might be asynchronously reported at some other API call") == own);
  CHECK(cause_of("[PG 0 (default_pg) Rank 12] Process group watchdog thread terminated with exception: CUDA error: "
                 "uncorrectable ECC error encountered\n") == own);
  CHECK(cause_of("[Rank 7] NCCL watchdog thread terminated with exception: CUDA error: unknown error\n") == own);
  CHECK(cause_of("CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA`") == own);
  CHECK(cause_of("[Rank 1] Process group watchdog thread terminated with exception: NCCL error: unhandled cuda error "
                 "(run with NCCL_DEBUG=INFO for details), NCCL "
                 "version 2.21.5") == own);
}

TEST_CASE("messages about other ranks") {
  CHECK(cause_of("[PG ID 0 PG GUID 0 Rank 3] Process group watchdog thread terminated with exception: [Rank 3] "
                 "Watchdog caught collective operation timeout: "
                 "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1) ran for 600000 milliseconds before timing out.") ==
        ExceptionCause::kTimeout);
  CHECK(cause_of("[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)") ==
        ExceptionCause::kTimeout);
  CHECK(cause_of("[Rank 0] Process group watchdog thread terminated with exception: NCCL error: remote process exited "
                 "or there was a network error, NCCL version "
                 "2.20.5\nncclRemoteError: A call failed") == ExceptionCause::kPeer);
  CHECK(cause_of("NCCL error: unhandled system error, NCCL version 2.18.1") == ExceptionCause::kPeer);
  CHECK(cause_of("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
                 "[127.0.0.1]:41413") == ExceptionCause::kPeer);
  CHECK(
      cause_of("[../third_party/gloo/gloo/transport/tcp/pair.cc:598] Read error [127.0.0.1]:2142: Connection reset by "
               "peer") == ExceptionCause::kPeer);
}

TEST_CASE("other texts give no cause") {
  CHECK(cause_of("") == std::nullopt);
  CHECK(cause_of("[") == std::nullopt);
  CHECK(cause_of("] ") == std::nullopt);
  CHECK(cause_of("shard-7: it says CUDA error: unknown error") == std::nullopt);
  CHECK(cause_of("CUDA error: driver shutting down") == std::nullopt);
  CHECK(cause_of("first line\nCUDA error: unknown error") == std::nullopt);
  CHECK(cause_of("[Rank 1] Process group watchdog thread terminated with exception: ") == std::nullopt);
}
