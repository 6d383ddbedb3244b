// Operations as values: which collective a call is in any library's spelling, and what makes two calls one.
#include <catch2/catch.hpp>

#include "analyzers/activity.h"
#include "analyzers/analysis.h"
#include "analyzers/operation.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

Operation in_python(const std::string& function, const std::string& file = "torch/distributed/distributed_c10d.py") {
  LiteralJob literal;
  literal.rank(0, 1, {libc("futex"), py(function, kPackages + file, 10), py("step", "/home/u/train.py", 5)});
  const auto roles = assign_roles(literal.job);
  return Activities(literal.job, roles, Families(literal.job)).of_thread(0, 0).operation;
}

Operation in_native(const std::string& function) {
  LiteralJob literal;
  literal.rank(0, 1, {libc("futex"), nat(function), nat("main")});
  const auto roles = assign_roles(literal.job);
  return Activities(literal.job, roles, Families(literal.job)).of_thread(0, 0).operation;
}

}  // namespace

TEST_CASE("a call's collective, in any spelling") {
  CHECK(collective_of_call("all_reduce") == known::Collective::kAllReduce);
  CHECK(collective_of_call("ncclAllReduce") == known::Collective::kAllReduce);
  CHECK(collective_of_call("MPI_Allreduce") == known::Collective::kAllReduce);
  CHECK(collective_of_call("all_gather_into_tensor") == known::Collective::kAllGather);
  CHECK(collective_of_call("_allgather_base") == known::Collective::kAllGather);
  CHECK(collective_of_call("reduce_scatter_tensor") == known::Collective::kReduceScatter);
  CHECK(collective_of_call("MPI_Reduce_scatter_block") == known::Collective::kReduceScatter);
  CHECK(collective_of_call("all_to_all_single") == known::Collective::kAllToAll);
  CHECK(collective_of_call("MPI_Alltoallv") == known::Collective::kAllToAll);
  CHECK(collective_of_call("monitored_barrier") == known::Collective::kBarrier);
  CHECK(collective_of_call("ncclBcast") == known::Collective::kBroadcast);
  CHECK(collective_of_call("broadcast_object_list") == known::Collective::kBroadcast);
  CHECK(collective_of_call("gather_object") == known::Collective::kGather);
  CHECK(collective_of_call("scatter") == known::Collective::kScatter);
  CHECK(collective_of_call("MPI_Reduce") == known::Collective::kReduce);
  CHECK(collective_of_call("wait_tensor") == known::Collective::kUnknown);
  CHECK(collective_of_call("") == known::Collective::kUnknown);
}

TEST_CASE("a frame's operation") {
  SECTION("one call by its Python and by its native function") {
    CHECK(same_call(in_python("all_reduce"), in_native("c10d::ProcessGroupGloo::allreduce(std::vector<at::Tensor>&)")));
    CHECK(same_call(in_python("_all_gather_base"), in_python("all_gather_into_tensor")));
    CHECK_FALSE(same_call(in_python("all_gather"), in_python("all_gather_object")));
    CHECK_FALSE(same_call(in_python("all_reduce"), in_python("reduce")));
  }
  SECTION("one that its name for people does not spell") {
    const Operation reduction = in_native("c10d::Reducer::finalize_backward()");
    CHECK(reduction.kind == known::OperationKind::kCollective);
    CHECK(reduction.collective == known::Collective::kAllReduce);
    CHECK(reduction.name == "DDP's gradient all-reduce");
    CHECK_FALSE(same_call(reduction, in_python("all_reduce")));
  }
  SECTION("which way a message goes") {
    CHECK((in_python("isend").sends && !in_python("isend").receives));
    CHECK((in_native("MPI_Mprobe").receives && !in_native("MPI_Mprobe").sends));
    CHECK((in_native("PMPI_Sendrecv").sends && in_native("PMPI_Sendrecv").receives));
    CHECK((!in_native("MPI_Waitall").sends && !in_native("MPI_Waitall").receives));
    CHECK(in_native("MPI_Waitall").kind == known::OperationKind::kMessage);
  }
  SECTION("what comes before the first collective") {
    CHECK(in_native("ncclCommInitRankConfig").kind == known::OperationKind::kSetUp);
    CHECK(same_call(in_native("ncclCommInitRankConfig"), in_native("c10d::ProcessGroupNCCL::initNCCLComm(int)")));
    CHECK(in_native("c10d::TCPStore::get(std::string const&)").kind == known::OperationKind::kStore);
  }
  SECTION("barriers") {
    CHECK(in_python("monitored_barrier").collective == known::Collective::kBarrier);
    CHECK(in_native("MPI_Barrier").collective == known::Collective::kBarrier);
    CHECK(in_python("wait_for", "multiprocessing/synchronize.py").collective == known::Collective::kBarrier);
  }
  SECTION("one that many share") {
    CHECK(in_native("c10d::Work::wait(std::chrono::milliseconds)").generic);
    CHECK_FALSE(in_python("all_reduce").generic);
  }
  SECTION("none") {
    CHECK(in_python("fit", "lightning/trainer.py").is_none());
    CHECK(in_python("wait", "subprocess.py").is_none());
  }
}

TEST_CASE("functions whose name is that of a collective and nothing else") {
  for (const char* name : {"Comm::allreduce(double&)", "barrier", "_all_gather", "Ring.broadcast", "AllToAll"}) {
    INFO(name);
    CHECK(is_named_as_collective(name));
  }
  for (const char* name : {"gather_statistics", "reduce", "barrier_for(int)", "broadcast_shapes", "scatter", ""}) {
    INFO(name);
    CHECK_FALSE(is_named_as_collective(name));
  }
}
