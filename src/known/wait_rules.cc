// Frames that wait for other ranks, and other frames of the same libraries that could be mistaken for such a wait. The
// order only matters within one frame: the first matching rule decides. PyTorch names are from 1.13 to 2.15.
#include "known/rules.h"

namespace rankstacks::known {
namespace {

using A = Activity;
using C = Collective;
using K = OperationKind;
using M = ActivityMatch;

// clang-format off
constexpr ActivityRule kRules[] = {
    // The rendezvous store. torch/csrc/distributed/c10d: TCPStore.cpp, PrefixStore.cpp, FileStore.cpp, HashStore.cpp,
    // socket.cpp
    {M::kNative, "c10d::TCPStore::", "", A::kStoreWait, "pytorch c10d/TCPStore.cpp", {"TCPStore", "the rendezvous store (TCPStore)"}},
    {M::kNative, "c10d::PrefixStore::", "", A::kStoreWait, "pytorch c10d/PrefixStore.cpp", {"Store", "the rendezvous store"}},
    {M::kNative, "c10d::FileStore::", "", A::kStoreWait, "pytorch c10d/FileStore.cpp", {"FileStore", "the rendezvous store (FileStore)"}},
    {M::kNative, "c10d::HashStore::", "", A::kStoreWait, "pytorch c10d/HashStore.cpp", {"Store", "the rendezvous store"}},
    {M::kNative, "c10d::Store::", "", A::kStoreWait, "pytorch c10d/Store.cpp", {"Store", "the rendezvous store"}},
    {M::kNative, "GlooStore::", "", A::kStoreWait, "pytorch c10d/ProcessGroupGloo.hpp", {"Store", "the rendezvous store"}},
    {M::kNative, "c10d::detail::TCPClient", "", A::kStoreWait, "pytorch c10d/TCPStore.cpp", {"TCPStore", "the rendezvous store (TCPStore)"}},
    {M::kNative, "c10d::detail::Socket", "", A::kStoreWait, "pytorch c10d/socket.cpp", {"TCPStore", "the rendezvous store (TCPStore)"}},
    {M::kNative, "c10d::ProcessGroupNCCL::broadcastUniqueNCCLID", "", A::kStoreWait, "pytorch c10d/ProcessGroupNCCL.cpp", {"broadcastUniqueNCCLID", "the exchange of NCCL's id"}},
    {M::kPython, "_store_based_barrier", "torch/distributed/distributed_c10d.py", A::kStoreWait, "pytorch distributed_c10d.py", {"_store_based_barrier", "the store's barrier"}},
    {M::kPythonFile, "", "torch/distributed/rendezvous.py", A::kStoreWait, "pytorch distributed/rendezvous.py", {"rendezvous", "rendezvous"}},
    {M::kPythonFile, "", "torch/distributed/elastic/rendezvous/", A::kStoreWait, "pytorch distributed/elastic/rendezvous/", {"rendezvous", "rendezvous"}},
    {M::kPythonFile, "", "torch/distributed/elastic/utils/store.py", A::kStoreWait, "pytorch distributed/elastic/utils/store.py", {"Store", "the rendezvous store"}},
    {M::kPython, "init_process_group", "torch/distributed/distributed_c10d.py", A::kStoreWait, "pytorch distributed_c10d.py"},
    {M::kPython, "new_group", "torch/distributed/distributed_c10d.py", A::kStoreWait, "pytorch distributed_c10d.py"},
    {M::kPython, "_new_process_group_helper", "torch/distributed/distributed_c10d.py", A::kStoreWait, "pytorch distributed_c10d.py", {"new_group"}},

    // Teardown while other ranks may still run: pytorch/pytorch#122358.
    {M::kPython, "destroy_process_group", "torch/distributed/distributed_c10d.py", A::kException, "pytorch distributed_c10d.py"},
    {M::kPython, "_abort_process_group", "torch/distributed/distributed_c10d.py", A::kException, "pytorch distributed_c10d.py"},
    {M::kNative, "c10d::ProcessGroupNCCL::~ProcessGroupNCCL", "", A::kException, "pytorch c10d/ProcessGroupNCCL.cpp: pytorch/pytorch#122358"},
    {M::kNative, "c10d::ProcessGroupNCCL::abort", "", A::kException, "pytorch c10d/ProcessGroupNCCL.cpp"},
    {M::kNative, "c10d::ProcessGroupNCCL::shutdown", "", A::kException, "pytorch c10d/ProcessGroupNCCL.cpp, 2.2-"},
    {M::kNativePrefix, "ncclCommAbort", "", A::kException, "nccl init.cc: nccl.h"},

    // Point to point
    {M::kPython, "send", "torch/distributed/distributed_c10d.py", A::kPointToPoint, "pytorch distributed_c10d.py"},
    {M::kPython, "recv", "torch/distributed/distributed_c10d.py", A::kPointToPoint, "pytorch distributed_c10d.py"},
    {M::kPython, "isend", "torch/distributed/distributed_c10d.py", A::kPointToPoint, "pytorch distributed_c10d.py"},
    {M::kPython, "irecv", "torch/distributed/distributed_c10d.py", A::kPointToPoint, "pytorch distributed_c10d.py"},
    {M::kPython, "batch_isend_irecv", "torch/distributed/distributed_c10d.py", A::kPointToPoint, "pytorch distributed_c10d.py"},
    {M::kPython, "send_object_list", "torch/distributed/distributed_c10d.py", A::kPointToPoint, "pytorch distributed_c10d.py"},
    {M::kPython, "recv_object_list", "torch/distributed/distributed_c10d.py", A::kPointToPoint, "pytorch distributed_c10d.py"},
    {M::kNativeOp, "send", "c10d::", A::kPointToPoint, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp"},
    {M::kNativeOp, "recv", "c10d::", A::kPointToPoint, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp"},
    {M::kNativeOp, "recvAnysource", "c10d::", A::kPointToPoint, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp"},
    {M::kNative, "c10d::ProcessGroupGloo::SendWork::wait", "", A::kPointToPoint, "pytorch c10d/ProcessGroupGloo.cpp", {"send"}},
    {M::kNative, "c10d::ProcessGroupGloo::RecvWork::wait", "", A::kPointToPoint, "pytorch c10d/ProcessGroupGloo.cpp", {"recv"}},
    {M::kNativePrefix, "ncclSend", "", A::kPointToPoint, "nccl nccl.h"},
    {M::kNativePrefix, "ncclRecv", "", A::kPointToPoint, "nccl nccl.h"},
    {M::kNativePrefix, "MPI_Send", "", A::kPointToPoint, "the MPI standard: mpi.h; MPI_Sendrecv too"},
    {M::kNativePrefix, "MPI_Ssend", "", A::kPointToPoint, "the MPI standard: mpi.h"},
    {M::kNativePrefix, "MPI_Recv", "", A::kPointToPoint, "the MPI standard: mpi.h"},
    {M::kNativePrefix, "MPI_Mrecv", "", A::kPointToPoint, "the MPI standard: mpi.h"},
    {M::kNativePrefix, "MPI_Probe", "", A::kPointToPoint, "the MPI standard: mpi.h"},
    {M::kNativePrefix, "MPI_Mprobe", "", A::kPointToPoint, "the MPI standard: mpi.h"},
    {M::kNativePrefix, "MPI_Wait", "", A::kPointToPoint, "the MPI standard: mpi.h"},

    // Collectives, Python side: every public function of distributed_c10d.py that talks to all ranks of a group
    {M::kPython, "all_reduce", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "all_reduce_coalesced", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "reduce", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "broadcast", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "broadcast_object_list", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "all_gather", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "all_gather_single", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "all_gather_coalesced", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "all_gather_into_tensor", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "_all_gather_base", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py", {"all_gather_into_tensor"}},
    {M::kPython, "all_gather_object", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "gather", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "gather_single", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "gather_object", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "scatter", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "scatter_object_list", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "reduce_scatter", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "reduce_scatter_single", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "reduce_scatter_tensor", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "_reduce_scatter_base", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py", {"reduce_scatter_tensor"}},
    {M::kPython, "all_to_all", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "all_to_all_single", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "barrier", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "monitored_barrier", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "split_group", "torch/distributed/distributed_c10d.py", A::kCollective, "pytorch distributed_c10d.py"},
    {M::kPython, "wait_tensor", "torch/distributed/_functional_collectives.py", A::kCollective, "pytorch distributed/_functional_collectives.py"},
    {M::kPython, "wait_for", "multiprocessing/synchronize.py", A::kCollective, "cpython Lib/multiprocessing/synchronize.py: under Barrier.wait", {"Barrier.wait", "a multiprocessing barrier", C::kBarrier}},
    {M::kPython, "synchronize", "horovod/", A::kCollective, "horovod torch/mpi_ops.py, tensorflow/mpi_ops.py", {"horovod", "a Horovod collective"}},
    {M::kPython, "sync_global_devices", "jax/", A::kCollective, "jax experimental/multihost_utils.py", {"sync_global_devices", "", C::kBarrier}},
    {M::kPython, "broadcast_one_to_all", "jax/", A::kCollective, "jax experimental/multihost_utils.py"},
    {M::kPython, "process_allgather", "jax/", A::kCollective, "jax experimental/multihost_utils.py"},
    {M::kPython, "assert_equal", "jax/experimental/multihost_utils.py", A::kCollective, "jax experimental/multihost_utils.py"},
    // XLA's coordination service, and its collectives within a process and between processes
    {M::kNative, "WaitAtBarrier", "", A::kCollective, "xla pjrt/distributed/client.cc, tsl coordination_service_agent.cc", {"wait_at_barrier", "the coordination service's barrier", C::kBarrier}},
    {M::kNative, "BlockingKeyValueGet", "", A::kStoreWait, "xla pjrt/distributed/client.cc", {"BlockingKeyValueGet", "the coordination service's store"}},
    {M::kNative, "CoordinationServiceAgent::GetKeyValue", "", A::kStoreWait, "xla coordination_service_agent.cc", {"BlockingKeyValueGet", "the coordination service's store"}},
    {M::kPython, "initialize", "jax/_src/distributed.py", A::kStoreWait, "jax _src/distributed.py", {"initialize", "jax.distributed.initialize"}},
    {M::kNative, "xla::internal::Rendezvous", "", A::kCollective, "xla service/rendezvous.cc", {"Rendezvous", "XLA's rendezvous", C::kUnknown, K::kNone, true}},
    {M::kNative, "xla::cpu::GlooCommunicator::AllReduce", "", A::kCollective, "xla backends/cpu/collectives/gloo_communicator.cc", {"all_reduce"}},
    {M::kNative, "xla::cpu::GlooCommunicator::AllGather", "", A::kCollective, "xla backends/cpu/collectives/gloo_communicator.cc", {"all_gather"}},
    {M::kNative, "xla::cpu::GlooCommunicator::", "", A::kCollective, "xla backends/cpu/collectives/gloo_communicator.cc", {"GlooCommunicator", "a gloo collective of XLA", C::kUnknown, K::kNone, true}},
    // Native side: c10d/Work.cpp, ProcessGroup*.cpp, reducer.cpp; gloo; nccl.h; mpi.h
    {M::kNative, "c10d::Reducer::finalize_backward", "", A::kCollective, "pytorch c10d/reducer.cpp", {"Reducer::finalize_backward", "DDP's gradient all-reduce", C::kAllReduce}},
    {M::kNative, "c10d::Reducer::sync_bucket_indices", "", A::kCollective, "pytorch c10d/reducer.cpp", {"Reducer::sync_bucket_indices", "DDP's bucket broadcast", C::kBroadcast}},
    {M::kNative, "c10d::verify_params_across_processes", "", A::kCollective, "pytorch c10d/reducer.cpp", {"verify_params_across_processes", "DDP's parameter check", C::kAllGather}},
    {M::kNative, "c10d::broadcast_coalesced", "", A::kCollective, "pytorch c10d/comm.cpp", {"broadcast_coalesced", "DDP's parameter broadcast", C::kBroadcast}},
    {M::kNative, "c10d::ProcessGroupNCCL::initNCCLComm", "", A::kCollective, "pytorch c10d/ProcessGroupNCCL.cpp", {"ncclCommInitRank", "NCCL's communicator set-up", C::kUnknown, K::kSetUp}},
    {M::kNative, "c10d::ProcessGroupNCCL::getNCCLComm", "", A::kCollective, "pytorch c10d/ProcessGroupNCCL.cpp", {"ncclCommInitRank", "NCCL's communicator set-up", C::kUnknown, K::kSetUp}},
    {M::kNative, "WorkNCCL::synchronize", "", A::kCollective, "pytorch c10d/ProcessGroupNCCL.cpp", {"Work::wait", "a collective's Work::wait", C::kUnknown, K::kNone, true}},
    {M::kNative, "Work::wait", "", A::kCollective, "pytorch c10d/Work.cpp, ProcessGroupGloo.cpp", {"Work::wait", "a collective's Work::wait", C::kUnknown, K::kNone, true}},
    {M::kNativeOp, "allreduce", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp", {"all_reduce"}},
    {M::kNativeOp, "allreduce_coalesced", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp", {"all_reduce_coalesced"}},
    {M::kNativeOp, "broadcast", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp"},
    {M::kNativeOp, "reduce", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp"},
    {M::kNativeOp, "allgather", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp", {"all_gather"}},
    {M::kNativeOp, "_allgather_base", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp", {"all_gather_into_tensor"}},
    {M::kNativeOp, "allgather_coalesced", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp", {"all_gather_coalesced"}},
    {M::kNativeOp, "gather", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp"},
    {M::kNativeOp, "scatter", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp"},
    {M::kNativeOp, "reduce_scatter", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp"},
    {M::kNativeOp, "_reduce_scatter_base", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp", {"reduce_scatter_tensor"}},
    {M::kNativeOp, "alltoall", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp", {"all_to_all"}},
    {M::kNativeOp, "alltoall_base", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp", {"all_to_all_single"}},
    {M::kNativeOp, "barrier", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp"},
    {M::kNativeOp, "monitoredBarrier", "c10d::", A::kCollective, "pytorch c10d: ProcessGroup.hpp, ProcessGroup*.cpp, Ops.cpp", {"monitored_barrier"}},
    {M::kNative, "gloo::transport::tcp::UnboundBuffer::wait", "", A::kCollective, "gloo transport/tcp", {"UnboundBuffer::wait", "a gloo collective", C::kUnknown, K::kNone, true}},
    {M::kNative, "gloo::transport::tcp::Pair::waitUntilConnected", "", A::kCollective, "gloo transport/tcp", {"connectFullMesh", "gloo's connection set-up", C::kUnknown, K::kSetUp}},
    {M::kNative, "gloo::rendezvous::Context::connectFullMesh", "", A::kCollective, "gloo rendezvous/context.cc", {"connectFullMesh", "gloo's connection set-up", C::kUnknown, K::kSetUp}},
    {M::kNativeOp, "allreduce", "gloo::", A::kCollective, "gloo allreduce.cc, barrier.cc", {"all_reduce"}},
    {M::kNativeOp, "barrier", "gloo::", A::kCollective, "gloo allreduce.cc, barrier.cc"},
    {M::kNativePrefix, "ncclAll", "", A::kCollective, "nccl nccl.h"},
    {M::kNativePrefix, "ncclBroadcast", "", A::kCollective, "nccl nccl.h"},
    {M::kNativePrefix, "ncclBcast", "", A::kCollective, "nccl nccl.h"},
    {M::kNativePrefix, "ncclReduce", "", A::kCollective, "nccl nccl.h"},
    {M::kNativePrefix, "ncclGroupEnd", "", A::kCollective, "nccl nccl.h"},
    {M::kNativePrefix, "ncclCommInit", "", A::kCollective, "nccl init.cc: nccl.h", {"ncclCommInitRank", "NCCL's communicator set-up", C::kUnknown, K::kSetUp}},
    {M::kNativePrefix, "ncclCommSplit", "", A::kCollective, "nccl init.cc: nccl.h", {"ncclCommInitRank", "NCCL's communicator set-up", C::kUnknown, K::kSetUp}},
    {M::kNativePrefix, "ncclCommFinalize", "", A::kCollective, "nccl init.cc: nccl.h"},
    {M::kNative, "horovod::common::", "", A::kCollective, "horovod common/operations.cc", {"horovod", "a Horovod collective"}},
    {M::kNativePrefix, "MPI_", "", A::kCollective, "the MPI standard: mpi.h"},
    {M::kNativePrefix, "nvshmem_barrier", "", A::kCollective, "nvshmem nvshmem.h"},
    {M::kNativePrefix, "shmem_barrier", "", A::kCollective, "the OpenSHMEM standard: shmem.h"},

    // Remote calls. torch/distributed/rpc/api.py: shutdown waits in _all_gather until no rank has an open call.
    {M::kPython, "rpc_sync", "torch/distributed/rpc/", A::kPeerWait, "pytorch distributed/rpc/", {"rpc_sync", "a remote call (rpc_sync)", C::kUnknown, K::kRemoteCall}},
    {M::kPython, "init_rpc", "torch/distributed/rpc/", A::kStoreWait, "pytorch distributed/rpc/", {"init_rpc", "the set-up of RPC"}},
    {M::kPython, "_all_gather", "torch/distributed/rpc/", A::kCollective, "pytorch distributed/rpc/", {"_wait_all_workers", "RPC's barrier", C::kBarrier}},
    {M::kPython, "_barrier", "torch/distributed/rpc/", A::kCollective, "pytorch distributed/rpc/", {"_wait_all_workers", "RPC's barrier", C::kBarrier}},
    {M::kPython, "_wait_all_workers", "torch/distributed/rpc/", A::kCollective, "pytorch distributed/rpc/", {"_wait_all_workers", "RPC's barrier", C::kBarrier}},
    {M::kPython, "shutdown", "torch/distributed/rpc/", A::kCollective, "pytorch distributed/rpc/", {"shutdown", "RPC's shutdown"}},
};
// clang-format on

}  // namespace

std::span<const ActivityRule> built_in_waits() { return kRules; }

}  // namespace rankstacks::known
