// Frames that wait for other ranks, and other frames of the same libraries that could be mistaken for such a wait. The
// order only matters within one frame: the first matching rule decides. PyTorch names are from 1.13 to 2.15.
#include "known/rules.h"

namespace rankstacks::known {
namespace {

using A = Activity;
using C = Collective;
using K = OperationKind;
using M = ActivityMatch;

constexpr bool kOverTransport = true;

// clang-format off
constexpr ActivityRule kRules[] = {
    // The rendezvous store. torch/csrc/distributed/c10d: TCPStore.cpp, PrefixStore.cpp, FileStore.cpp, HashStore.cpp,
    // socket.cpp
    {M::kNative, "c10d::TCPStore::ping", "", A::kStoreWait, "pytorch c10d/TCPStore.cpp, 2.4-", {"TCPStore", "the rendezvous store (TCPStore)", C::kUnknown, K::kStoreGreeting}},
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
    {M::kPythonFile, "", "torch/distributed/rendezvous.py", A::kStoreWait, "pytorch distributed/rendezvous.py: its store is a TCPStore, by env:// and tcp://", {"TCPStore", "rendezvous"}},
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
    // The stages of a pipeline: Megatron-LM, NeMo; DeepSpeed
    {M::kPython, "_communicate", "megatron/core/pipeline_parallel/", A::kPointToPoint, "megatron-core pipeline_parallel/p2p_communication.py", {"_communicate", "the exchange between pipeline stages"}},
    {M::kPython, "recv_forward", "megatron/core/pipeline_parallel/", A::kPointToPoint, "megatron-core pipeline_parallel/p2p_communication.py"},
    {M::kPython, "recv_backward", "megatron/core/pipeline_parallel/", A::kPointToPoint, "megatron-core pipeline_parallel/p2p_communication.py"},
    {M::kPython, "send_forward", "megatron/core/pipeline_parallel/", A::kPointToPoint, "megatron-core pipeline_parallel/p2p_communication.py"},
    {M::kPython, "send_backward", "megatron/core/pipeline_parallel/", A::kPointToPoint, "megatron-core pipeline_parallel/p2p_communication.py"},
    {M::kPython, "send_forward_recv_backward", "megatron/core/pipeline_parallel/", A::kPointToPoint, "megatron-core pipeline_parallel/p2p_communication.py"},
    {M::kPython, "send_backward_recv_forward", "megatron/core/pipeline_parallel/", A::kPointToPoint, "megatron-core pipeline_parallel/p2p_communication.py"},
    {M::kPython, "send_forward_recv_forward", "megatron/core/pipeline_parallel/", A::kPointToPoint, "megatron-core pipeline_parallel/p2p_communication.py"},
    {M::kPython, "send_backward_recv_backward", "megatron/core/pipeline_parallel/", A::kPointToPoint, "megatron-core pipeline_parallel/p2p_communication.py"},
    {M::kPython, "send_forward_backward_recv_forward_backward", "megatron/core/pipeline_parallel/", A::kPointToPoint, "megatron-core pipeline_parallel/p2p_communication.py"},
    {M::kPython, "send", "deepspeed/runtime/pipe/p2p.py", A::kPointToPoint, "deepspeed runtime/pipe/p2p.py"},
    {M::kPython, "recv", "deepspeed/runtime/pipe/p2p.py", A::kPointToPoint, "deepspeed runtime/pipe/p2p.py"},
    {M::kNativePrefix, "ncclSend", "", A::kPointToPoint, "nccl nccl.h"},
    {M::kNativePrefix, "ncclRecv", "", A::kPointToPoint, "nccl nccl.h"},
    {M::kNativePrefix, "MPI_Send", "", A::kPointToPoint, "the MPI standard: mpi.h; MPI_Sendrecv too"},
    {M::kNativePrefix, "MPI_Ssend", "", A::kPointToPoint, "the MPI standard: mpi.h"},
    {M::kNativePrefix, "MPI_Recv", "", A::kPointToPoint, "the MPI standard: mpi.h"},
    {M::kNativePrefix, "MPI_Mrecv", "", A::kPointToPoint, "the MPI standard: mpi.h"},
    {M::kNativePrefix, "MPI_Probe", "", A::kPointToPoint, "the MPI standard: mpi.h"},
    {M::kNativePrefix, "MPI_Mprobe", "", A::kPointToPoint, "the MPI standard: mpi.h"},
    {M::kNativePrefix, "MPI_Wait", "", A::kPointToPoint, "the MPI standard: mpi.h"},
    // These return at once
    {M::kNativePrefix, "MPI_Test", "", A::kPointToPoint, "the MPI standard: mpi.h; MPI_Testall, MPI_Testany, MPI_Testsome too", {"MPI_Test", "a poll for messages (MPI_Test, MPI_Iprobe)", C::kUnknown, K::kPolledMessage}},
    {M::kNativePrefix, "MPI_Iprobe", "", A::kPointToPoint, "the MPI standard: mpi.h", {"MPI_Test", "a poll for messages (MPI_Test, MPI_Iprobe)", C::kUnknown, K::kPolledMessage}},
    {M::kNativePrefix, "MPI_Improbe", "", A::kPointToPoint, "the MPI standard: mpi.h", {"MPI_Test", "a poll for messages (MPI_Test, MPI_Iprobe)", C::kUnknown, K::kPolledMessage}},
    {M::kNativePrefix, "MPI_Request_get_status", "", A::kPointToPoint, "the MPI standard: mpi.h", {"MPI_Test", "a poll for messages (MPI_Test, MPI_Iprobe)", C::kUnknown, K::kPolledMessage}},
    // The lock of a window, which another rank may hold; and what its owner has to answer
    {M::kNativePrefix, "MPI_Win_lock", "", A::kPeerWait, "the MPI standard: mpi.h; MPI_Win_lock_all too", {"MPI_Win_lock", "the lock of a window (MPI_Win_lock)", C::kUnknown, K::kProcessLock}},
    {M::kNativePrefix, "MPI_Win_unlock", "", A::kPeerWait, "the MPI standard: mpi.h; MPI_Win_unlock_all too", {"MPI_Win_unlock", "what it does to a window (MPI_Win_unlock)", C::kUnknown, K::kRemoteCall}},
    {M::kNativePrefix, "MPI_Win_flush", "", A::kPeerWait, "the MPI standard: mpi.h; MPI_Win_flush_all, MPI_Win_flush_local too", {"MPI_Win_flush", "what it does to a window (MPI_Win_flush)", C::kUnknown, K::kRemoteCall}},

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
    {M::kPython, "barrier", "horovod/torch/", A::kCollective, "horovod torch/mpi_ops.py, 0.27-"},
    {M::kPython, "join", "horovod/torch/", A::kCollective, "horovod torch/mpi_ops.py: ranks without input wait for the others", {"join", "Horovod's join"}},
    {M::kPython, "init", "horovod/common/basics.py", A::kCollective, "horovod common/basics.py", {"init", "Horovod's set-up", C::kUnknown, K::kSetUp}},
    {M::kPython, "sync_global_devices", "jax/", A::kCollective, "jax experimental/multihost_utils.py", {"sync_global_devices", "", C::kBarrier}},
    {M::kPython, "broadcast_one_to_all", "jax/", A::kCollective, "jax experimental/multihost_utils.py"},
    {M::kPython, "process_allgather", "jax/", A::kCollective, "jax experimental/multihost_utils.py"},
    {M::kPython, "assert_equal", "jax/experimental/multihost_utils.py", A::kCollective, "jax experimental/multihost_utils.py"},
    {M::kPython, "shutdown", "jax/_src/distributed.py", A::kCollective, "jax _src/distributed.py: a barrier of the coordination service", {"shutdown", "the end of jax.distributed", C::kBarrier}},
    {M::kPython, "sync_global_processes", "/orbax/checkpoint/", A::kCollective, "orbax checkpoint/_src/multihost/multihost.py", {"sync_global_processes", "", C::kBarrier}},
    {M::kPython, "sync_global_devices", "/orbax/checkpoint/", A::kCollective, "orbax checkpoint/utils.py, -0.5", {"sync_global_devices", "", C::kBarrier}},
    {M::kPython, "broadcast_one_to_all", "/orbax/checkpoint/", A::kCollective, "orbax checkpoint/_src/multihost/multihost.py"},
    // DeepSpeed's ZeRO-3: a module's parameters are gathered before it runs. Most of these waits are torch's own; what is
    // left is a wait for the GPU, or for a Work that was begun before.
    {M::kPython, "fetch_sub_module", "deepspeed/runtime/zero/", A::kCollective, "deepspeed runtime/zero/partitioned_param_coordinator.py", {"fetch_sub_module", "ZeRO-3's all-gather of parameters", C::kAllGather}},
    {M::kPython, "wait", "deepspeed/runtime/zero/partition_parameters.py", A::kCollective, "deepspeed runtime/zero/partition_parameters.py: AllGatherHandle, AllGatherCoalescedHandle", {"fetch_sub_module", "ZeRO-3's all-gather of parameters", C::kAllGather}},
    // XLA's coordination service, and its collectives within a process and between processes
    {M::kNative, "WaitAtBarrier", "", A::kCollective, "xla pjrt/distributed/client.cc, tsl coordination_service_agent.cc", {"wait_at_barrier", "the coordination service's barrier", C::kBarrier}},
    {M::kNative, "BlockingKeyValueGet", "", A::kStoreWait, "xla pjrt/distributed/client.cc", {"BlockingKeyValueGet", "the coordination service's store"}},
    {M::kNative, "CoordinationServiceAgent::GetKeyValue", "", A::kStoreWait, "xla coordination_service_agent.cc", {"BlockingKeyValueGet", "the coordination service's store"}},
    {M::kPython, "initialize", "jax/_src/distributed.py", A::kStoreWait, "jax _src/distributed.py", {"initialize", "jax.distributed.initialize"}},
    {M::kNative, "xla::internal::Rendezvous", "", A::kCollective, "xla service/rendezvous.cc", {"Rendezvous", "XLA's rendezvous", C::kUnknown, K::kNone, true}},
    {M::kNative, "xla::cpu::GlooCommunicator::AllReduce", "", A::kCollective, "xla backends/cpu/collectives/gloo_communicator.cc", {"all_reduce"}},
    {M::kNative, "xla::cpu::GlooCommunicator::AllGather", "", A::kCollective, "xla backends/cpu/collectives/gloo_communicator.cc", {"all_gather"}},
    {M::kNative, "xla::cpu::GlooCommunicator::", "", A::kCollective, "xla backends/cpu/collectives/gloo_communicator.cc", {"GlooCommunicator", "a gloo collective of XLA", C::kUnknown, K::kNone, true}},
    // TensorFlow's collectives, in its threads `collective_ops`; all of them run within ExecuteAsync. A server that waits
    // for its end is idle.
    {M::kNative, "tensorflow::RingReducer::", "", A::kCollective, "tensorflow core/common_runtime/ring_reducer.cc", {"all_reduce", "TensorFlow's all-reduce", C::kAllReduce}},
    {M::kNative, "tensorflow::RingGatherer::", "", A::kCollective, "tensorflow core/common_runtime/ring_gatherer.cc", {"all_gather", "TensorFlow's all-gather", C::kAllGather}},
    {M::kNative, "tensorflow::HierarchicalTreeBroadcaster::", "", A::kCollective, "tensorflow core/common_runtime/hierarchical_tree_broadcaster.cc", {"broadcast", "TensorFlow's broadcast", C::kBroadcast}},
    {M::kNative, "tensorflow::BaseCollectiveExecutor::", "", A::kCollective, "tensorflow core/common_runtime/base_collective_executor.cc", {"BaseCollectiveExecutor", "a collective of TensorFlow", C::kUnknown, K::kNone, true}},
    {M::kNative, "tensorflow::GrpcServer::Join", "", A::kPeerWait, "tensorflow core/distributed_runtime/rpc/grpc_server_lib.cc", {"Join", "requests to TensorFlow's server", C::kUnknown, K::kWork}},
    // torchft: the replicas of a job agree on who takes part in a step
    {M::kPython, "wait_quorum", "torchft/manager.py", A::kCollective, "torchft manager.py", {"wait_quorum", "torchft's quorum"}},
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
    {M::kNativePrefix, "ncclP2PPreconnectFunc", "", A::kPointToPoint, "nccl group.cc, 2.12-", {"ncclSend", "NCCL's connection set-up for a message", C::kSendRecv, K::kSetUp}},
    {M::kNativePrefix, "ncclGroupEnd", "", A::kCollective, "nccl nccl.h"},
    {M::kNativePrefix, "ncclCommInit", "", A::kCollective, "nccl init.cc: nccl.h", {"ncclCommInitRank", "NCCL's communicator set-up", C::kUnknown, K::kSetUp}},
    {M::kNativePrefix, "ncclCommSplit", "", A::kCollective, "nccl init.cc: nccl.h", {"ncclCommInitRank", "NCCL's communicator set-up", C::kUnknown, K::kSetUp}},
    {M::kNativePrefix, "ncclCommFinalize", "", A::kCollective, "nccl init.cc: nccl.h"},
    {M::kNative, "horovod::torch::WaitAndClear", "", A::kCollective, "horovod torch/mpi_ops_v2.cc", {"horovod", "a Horovod collective"}},
    {M::kNative, "horovod::common::", "", A::kCollective, "horovod common/operations.cc", {"horovod", "a Horovod collective"}},
    // Collectives of Python objects consist of several calls of MPI, sends and receives among them.
    {M::kNativeOp, "allreduce", "6mpi4py_3MPI_", A::kCollective, "mpi4py MPI.src/Comm.pyx, 3.0-: of Python objects", {"MPI_Allreduce", "mpi4py's allreduce"}, kOverTransport},
    {M::kNativeOp, "reduce", "6mpi4py_3MPI_", A::kCollective, "mpi4py MPI.src/Comm.pyx, 3.0-: of Python objects", {"MPI_Reduce", "mpi4py's reduce"}, kOverTransport},
    {M::kNativeOp, "bcast", "6mpi4py_3MPI_", A::kCollective, "mpi4py MPI.src/Comm.pyx, 3.0-: of Python objects", {"MPI_Bcast", "mpi4py's bcast"}, kOverTransport},
    {M::kNativeOp, "gather", "6mpi4py_3MPI_", A::kCollective, "mpi4py MPI.src/Comm.pyx, 3.0-: of Python objects", {"MPI_Gather", "mpi4py's gather"}, kOverTransport},
    {M::kNativeOp, "scatter", "6mpi4py_3MPI_", A::kCollective, "mpi4py MPI.src/Comm.pyx, 3.0-: of Python objects", {"MPI_Scatter", "mpi4py's scatter"}, kOverTransport},
    {M::kNativeOp, "allgather", "6mpi4py_3MPI_", A::kCollective, "mpi4py MPI.src/Comm.pyx, 3.0-: of Python objects", {"MPI_Allgather", "mpi4py's allgather"}, kOverTransport},
    {M::kNativeOp, "alltoall", "6mpi4py_3MPI_", A::kCollective, "mpi4py MPI.src/Comm.pyx, 3.0-: of Python objects", {"MPI_Alltoall", "mpi4py's alltoall"}, kOverTransport},
    {M::kNativeOp, "scan", "6mpi4py_3MPI_", A::kCollective, "mpi4py MPI.src/Comm.pyx, 3.0-: of Python objects", {"MPI_Scan", "mpi4py's scan"}, kOverTransport},
    {M::kNativeOp, "exscan", "6mpi4py_3MPI_", A::kCollective, "mpi4py MPI.src/Comm.pyx, 3.0-: of Python objects", {"MPI_Exscan", "mpi4py's exscan"}, kOverTransport},
    {M::kNativeOp, "neighbor_allgather", "6mpi4py_3MPI_", A::kCollective, "mpi4py MPI.src/Comm.pyx, 3.0-: of Python objects", {"MPI_Neighbor_allgather", "mpi4py's neighbor_allgather"}, kOverTransport},
    {M::kNativeOp, "neighbor_alltoall", "6mpi4py_3MPI_", A::kCollective, "mpi4py MPI.src/Comm.pyx, 3.0-: of Python objects", {"MPI_Neighbor_alltoall", "mpi4py's neighbor_alltoall"}, kOverTransport},
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

    // Ray. An actor's main thread is in main_loop for all of its life; it waits there if nothing is inside.
    {M::kPython, "get_objects", "ray/_private/worker.py", A::kPeerWait, "ray _private/worker.py", {"get", "ray.get", C::kUnknown, K::kRemoteCall}, true},
    {M::kPython, "get", "ray/_private/worker.py", A::kPeerWait, "ray _private/worker.py", {"get", "ray.get", C::kUnknown, K::kRemoteCall}, true},
    {M::kPython, "wait", "ray/_private/worker.py", A::kPeerWait, "ray _private/worker.py", {"wait", "ray.wait", C::kUnknown, K::kRemoteCall}, true},
    {M::kPythonWaits, "main_loop", "ray/_private/worker.py", A::kPeerWait, "ray _private/worker.py", {"main_loop", "the next task of Ray", C::kUnknown, K::kWork}, true},

    // vLLM's engine and its workers: requests and answers through shared memory (a spin, a sleep or zmq inside)
    {M::kPython, "get_response", "vllm/v1/executor/multiproc_executor.py", A::kPeerWait, "vllm v1/executor/multiproc_executor.py: collective_rpc", {"collective_rpc", "the workers' answers", C::kUnknown, K::kRemoteCall}, true},
    {M::kPython, "wait_for_ready", "vllm/v1/executor/multiproc_executor.py", A::kPeerWait, "vllm v1/executor/multiproc_executor.py", {"wait_for_ready", "the start of the workers", C::kUnknown, K::kRemoteCall}, true},
    {M::kPython, "_ensure_worker_termination", "vllm/v1/executor/multiproc_executor.py", A::kPeerWait, "vllm v1/executor/multiproc_executor.py: shutdown", {"shutdown", "the end of the workers", C::kUnknown, K::kRemoteCall}, true},
    {M::kPython, "wait_until_ready", "vllm/distributed/device_communicators/shm_broadcast.py", A::kCollective, "vllm distributed/device_communicators/shm_broadcast.py", {"wait_until_ready", "the set-up of a queue in shared memory", C::kUnknown, K::kSetUp}},
    {M::kPython, "enqueue", "vllm/distributed/device_communicators/shm_broadcast.py", A::kPeerWait, "vllm distributed/device_communicators/shm_broadcast.py: until all have read what is there", {"enqueue", "room in a queue in shared memory", C::kUnknown, K::kRemoteCall}, true},
    {M::kPython, "dequeue", "vllm/distributed/device_communicators/shm_broadcast.py", A::kPeerWait, "vllm distributed/device_communicators/shm_broadcast.py: a worker between two requests", {"dequeue", "the next request (shm_broadcast)", C::kUnknown, K::kWork}, true},
    {M::kPythonWaits, "_process_input_queue", "vllm/v1/engine/core.py", A::kPeerWait, "vllm v1/engine/core.py", {"_process_input_queue", "the next request", C::kUnknown, K::kWork}, true},
    // SGLang: the first scheduler of a group asks for requests again and again, and sends the others what has come
    {M::kPythonWaits, "recv_requests", "sglang/srt/managers/scheduler", A::kPeerWait, "sglang srt/managers/scheduler.py", {"recv_requests", "the next request", C::kUnknown, K::kWork}, true},
    {M::kPythonWaits, "event_loop_normal", "sglang/srt/managers/scheduler", A::kPeerWait, "sglang srt/managers/scheduler.py", {"recv_requests", "the next request", C::kUnknown, K::kWork}, true},
    {M::kPythonWaits, "event_loop_overlap", "sglang/srt/managers/scheduler", A::kPeerWait, "sglang srt/managers/scheduler.py", {"recv_requests", "the next request", C::kUnknown, K::kWork}, true},
    {M::kPythonWaits, "event_loop_pp", "sglang/srt/managers/scheduler", A::kPeerWait, "sglang srt/managers/scheduler_pp_mixin.py", {"recv_requests", "the next request", C::kUnknown, K::kWork}, true},
    {M::kPythonWaits, "self_check_during_idle", "sglang/srt/managers/scheduler", A::kPeerWait, "sglang srt/managers/scheduler.py", {"recv_requests", "the next request", C::kUnknown, K::kWork}, true},
    {M::kPythonWaits, "maybe_sleep", "sglang/srt/managers/scheduler", A::kPeerWait, "sglang srt/managers/scheduler.py: IdleSleeper", {"recv_requests", "the next request", C::kUnknown, K::kWork}, true},
    {M::kPythonWaits, "event_loop", "sglang/srt/managers/detokenizer_manager.py", A::kPeerWait, "sglang srt/managers/detokenizer_manager.py", {"event_loop", "the next tokens", C::kUnknown, K::kWork}, true},
    {M::kPythonWaits, "event_loop", "sglang/srt/managers/data_parallel_controller.py", A::kPeerWait, "sglang srt/managers/data_parallel_controller.py", {"event_loop", "the next request", C::kUnknown, K::kWork}, true},
};
// clang-format on

}  // namespace

std::span<const ActivityRule> built_in_waits() { return kRules; }

}  // namespace rankstacks::known
