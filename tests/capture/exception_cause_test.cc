// Message texts of PyTorch's watchdogs, as observed, and the cause that is read from them.
#include <array>
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

TEST_CASE("messages of gloo, of monitored barriers and of the store") {
  const auto peer = ExceptionCause::kPeer, timeout = ExceptionCause::kTimeout;
  CHECK(cause_of("[./gloo/transport/tcp/pair.cc:598] Write error [127.0.0.1]:2142: Broken pipe") == peer);
  CHECK(cause_of("[./gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to "
                 "complete") == timeout);
  CHECK(cause_of("[./gloo/transport/tcp/pair.cc:299] Application timeout caused pair closure") == timeout);
  CHECK(cause_of("Rank 2 failed to pass monitoredBarrier in 30000 ms") == timeout);
  CHECK(
      cause_of("NCCL error in: /x/ProcessGroupNCCL.cpp:1234, remote process exited or there was a network error, NCCL "
               "version 2.18.1") == peer);
  CHECK(cause_of("Connection was likely closed. Did the remote server shutdown or crash?") == peer);
  CHECK(cause_of("wait timeout after 300000ms, keys: /default_pg/0//worker_count") == timeout);
  CHECK(cause_of("label 17 is out of range") == std::nullopt);
}

TEST_CASE("the first exception of a chain says what the others follow from") {
  constexpr const char* kClosed = "[./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:1";
  HandledException exception{"RuntimeError", "training has failed", {}, {}, {}};
  CHECK(cause_of(exception) == std::nullopt);
  exception.chain = {{ExceptionLink::kCause, "RuntimeError", kClosed}};
  CHECK(cause_of(exception) == ExceptionCause::kPeer);
  // One that queues end an attempt with is passed over.
  exception.chain.push_back({ExceptionLink::kContext, "queue.Empty", std::nullopt});
  CHECK(cause_of(exception) == ExceptionCause::kPeer);
  // The connections broke while it cleaned up, after a failure of its own.
  exception.chain = {{ExceptionLink::kContext, "ValueError", "label 17"}};
  exception.message = kClosed;
  CHECK(cause_of(exception) == std::nullopt);
  // A connection of any kind.
  exception = {"ConnectionResetError", "[Errno 104] Connection reset by peer", {}, {}, {}};
  CHECK(cause_of(exception) == std::nullopt);
  // raise RuntimeError("training has failed") from None
  exception = {"RuntimeError", "training has failed", {}, {}, {}};
  CHECK(cause_of(exception, std::array{ChainedException{ExceptionLink::kContext, "RuntimeError", kClosed}}) ==
        ExceptionCause::kPeer);
}
