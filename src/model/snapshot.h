// The result of one capture of a job: the only input of analyzers and reports.
//
// Nothing here depends on ptrace, files or libraries. A JobSnapshot can be saved as JSON and read back, and every
// report can be made from it.
//
//     JobSnapshot
//       frames: FrameTable      each distinct frame once; threads refer to it by FrameId
//       ranks:  RankSnapshot[]
//                 threads: ThreadSnapshot[]
//                            frames: FrameId[]   innermost first
//       nccl:   NcclStatus      NCCL's own view of its communicators
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/boxed.h"
#include "base/shared_list.h"
#include "base/types.h"
#include "model/environment.h"
#include "model/fault.h"
#include "model/flight_record.h"
#include "model/gpu.h"
#include "model/kernel_kill.h"
#include "model/missing_file.h"
#include "model/node.h"
#include "model/problem.h"
#include "model/python_value.h"

namespace rankstacks {
inline namespace model {

using FrameId = std::uint32_t;

enum class FrameKind { kNative, kPython, kGpu };

// How the unwinder found a frame's pc.
enum class FrameOrigin {
  kNormal,        // registers or unwind information
  kFramePointer,  // no unwind information there: the rbp chain was followed
  // The pc was not in code, and the return address on top of the stack was taken; or there was no unwind information,
  // and the address that the code is about to return to was taken.
  kReturnSlot,
  kSeparate,  // a Python frame whose place in the native stack is not known: shown next to the native frames
};

struct Frame {
  FrameKind kind = FrameKind::kNative;
  std::optional<std::string> function;  // native, gpu: demangled; python: co_name. Empty if no symbol covers it
  std::optional<std::string> qualname;  // python from 3.11
  std::string module;                   // native: path as in the target; "": not in any module
  std::optional<std::string> file;      // source file; python: raw co_filename
  std::optional<int> line;
  Address address = 0;          // native: pc or return address, as gdb shows it; gpu: the virtual pc on the device
  std::optional<Vaddr> offset;  // native: inside the module's file view; gpu: from the function's start
  bool inlined = false;         // native: inlined into the next frame
  FrameOrigin origin = FrameOrigin::kNormal;

  bool operator==(const Frame&) const = default;
};

// Interns frames. Ids are dense and start at 0.
class FrameTable {
 public:
  FrameId intern(Frame frame);
  const Frame& operator[](FrameId id) const { return frames_[id]; }
  std::size_t size() const { return frames_.size(); }
  std::vector<Frame> take() && { return std::move(frames_); }  // by their ids

 private:
  std::vector<Frame> frames_;
  std::unordered_multimap<std::size_t, FrameId> by_hash_;
};

// kRegistersUnknown: the thread was not stopped, and the caller is where a register says that only a stop tells.
enum class StackEnd { kComplete, kNoUnwindInfo, kMemoryUnavailable, kRepeatedFrame, kDepthLimit, kRegistersUnknown };
enum class Gil { kHolds, kWaits };
enum class Source {
  kLive,
  kCore,
  kDump,  // the text that another tool has printed about the process
};
// How a process was read: all of its threads stopped, some of them, none, or not a process at all but its core.
enum class ReadMethod { kStopped, kPartlyStopped, kWithoutStop, kCore };
enum class RankKind { kRank, kChild };
enum class Status { kComplete, kPartial, kFailed };

// How a process is involved in the call that a thread is blocked in.
enum class EndKind {
  kPipe,      // it has the other end of the pipe or FIFO open
  kSocket,    // it has the other socket of the connection open, or listens for the connection
  kLock,      // it holds the file lock that the thread waits for
  kChild,     // it is the process for whose end the thread waits
  kDatabase,  // it holds the lock of the SQLite database that the thread is trying to lock
};

struct OtherEnd {
  Pid pid = 0;
  EndKind kind = EndKind::kPipe;
  std::string command;  // "python3 prepare.py", for a process that is not in the snapshot; else ""
  bool operator==(const OtherEnd&) const = default;
};

struct SyscallInfo {
  std::string name;  // "futex"; "syscall_999" for a number without a name
  int number = -1;
  std::optional<int> fd;
  std::optional<std::string> fd_target;  // "/data/x", "pipe:[123]", "tcp 10.0.0.1:4 -> 10.0.0.2:5"
  // Live: the processes that the call waits for, by pid; at most kMaxOthers of them. Includes the thread's own process
  // only if that is the only one. Empty: not known.
  static constexpr std::size_t kMaxOthers = 8;
  std::vector<OtherEnd> others;
  // Its own process has the other end (or holds the lock) too, in addition to `others` or to processes that are not
  // visible.
  bool own_end = false;
  // With an end of kind kDatabase: the database's path, as in the descriptor of the waiting process; std::nullopt if it
  // is one of several.
  std::optional<std::string> database;
  // The address of the other end of the connection, if it is not one of this machine's.
  std::optional<std::string> other_host;
  // Live: it waits for connections: in poll() for those of one listening socket (TCP or Unix), or in epoll_wait() for
  // events of which some are a listening socket's and none are those of a connection that its own process has made.
  bool listens = false;
  bool operator==(const SyscallInfo&) const = default;
};

// Frames left out in the middle of a very deep stack: `count` frames before frames[at].
struct OmittedFrames {
  std::size_t at = 0;
  std::size_t count = 0;
};

// A process group of PyTorch, as its process knows it (torch/distributed/distributed_c10d.py: _pg_names,
// _pg_group_ranks).
struct ProcessGroup {
  std::string name;        // the same on all of its ranks; "" if it has none
  std::vector<int> ranks;  // its members, as ranks of the job, in the group's order; empty: unknown
  // What it is for, as its program or torch says: "mesh_tp", "default_pg"; "" if it has none, or if it is not known.
  std::string description = {};
  // Whether they are one group: what is known of a group's purpose may differ from rank to rank.
  bool operator==(const ProcessGroup& other) const { return name == other.name && ranks == other.ranks; }
};

// The values of variables of one Python frame. They are not a part of Frame: ranks at the same place have different
// values.
struct FrameVariables {
  std::size_t frame = 0;  // index into ThreadSnapshot::frames
  // Loop counters (step, epoch, i); in c10d's functions src, dst, tag. Sorted by name.
  std::vector<std::pair<std::string, std::int64_t>> numbers;
  std::optional<ProcessGroup> group;  // in c10d's functions: the group that they work on
  // The number of `for` loops around the current line, from the iterators at the bottom of the frame's value stack; 0:
  // none, or not known.
  int loops = 0;
  bool operator==(const FrameVariables&) const = default;
};

// What several samples show about a thread. ThreadSnapshot::motion is empty if there was only one sample.
struct Motion {
  int samples = 0;     // number of samples that found the thread, including the first
  int places = 0;      // number of different stacks among them, compared as clusters are
  bool moved = false;  // its place in its program differs between two samples; changes inside of a wait do not count
  // The functions that it is in differ between two samples, not just their lines: in a tight loop they never do.
  bool travelled = false;
  // A counter of its frames (FrameVariables::numbers) has advanced between two samples, no faster than real work can
  // advance it.
  bool counted = false;
  // It waited for other ranks in one sample, and not, or somewhere else, in the next: that wait has ended.
  bool left_wait = false;
  double cpu_ms = 0;      // CPU time used between the samples, without the cost of the samples themselves
  std::int64_t runs = 0;  // number of times that it was scheduled on a processor between the samples
  // The total time between the samples; 0: not known, nor are cpu_ms and runs, as the samples are dumps of other tools.
  double span_ms = 0;
  // It has Python frames, and their functions were the same in every sample. A loop that polls stays in its functions,
  // whatever calls into native code the samples find it in.
  bool in_one_function = false;
  bool operator==(const Motion&) const = default;
};

// The cause of an exception, if its text is a known one.
enum class ExceptionCause {
  kOwnGpu,   // the GPU work of its own process has failed
  kTimeout,  // a collective did not finish, because of other ranks
  kPeer,     // the other end of a connection has failed
};

struct CxxException {
  std::string type;                 // "std::runtime_error", "c10::DistBackendError"
  std::optional<std::string> what;  // its text, cut at 4,096 bytes; empty if the text cannot be found for its type
  std::optional<ExceptionCause> cause = {};
  bool operator==(const CxxException&) const = default;
};

// A C++ exception that ends nothing: one that a thread is handling (it is in a `catch` block, or in a function called
// from there), or one that is on its way to its handler, while a destructor runs.
struct HandledCxxException {
  CxxException exception;
  // Index into ThreadSnapshot::frames of the function that handles it, or will, as compiled: the `catch` block may be
  // that of one which is inlined there. Empty if it is none of these.
  std::optional<std::size_t> frame = {};
  bool operator==(const HandledCxxException&) const = default;
};

enum class ExceptionLink {
  kCause,    // __cause__: the program raised the other one "from" it
  kContext,  // __context__: the other one was raised while it was handled
};

// A Python exception that led to another one, as the interpreter prints it above the other.
struct ChainedException {
  ExceptionLink link = ExceptionLink::kContext;
  std::string type;                    // as in HandledException
  std::optional<std::string> message;  // as in HandledException
  std::optional<FrameId> raised = {};  // as in HandledException
  bool operator==(const ChainedException&) const = default;
};

// A Python exception that a thread is handling, as sys.exc_info() returns it there: the thread is in an `except` or
// `finally` block, in the __exit__ of a `with` statement, or in a function called by one of these.
struct HandledException {
  std::string type;  // the name of its class, "RuntimeError"; "" if it cannot be read
  // The first 200 characters of str() of it; empty if it has no arguments, or if they cannot be shown.
  std::optional<std::string> message;
  // Index into ThreadSnapshot::frames of the function that handles it; empty if it is none of these.
  std::optional<std::size_t> frame;
  // Both ends of its traceback; empty if it has none, or if they cannot be read.
  std::optional<FrameId> handler;  // the function that handles it, at the line that the exception passed through
  std::optional<FrameId> raised;   // where it was raised
  // All of its traceback, outermost first: `handler` is one of these, and `raised` the last.
  std::vector<FrameId> traceback = {};
  std::optional<OmittedFrames> traceback_omitted = {};  // entries left out of `traceback`
  // What led to it: the nearest first; at most 8.
  std::vector<ChainedException> chain = {};
  // What the first exception of the chain says of its cause, if that is known: other ranks, or the rank's own GPU.
  std::optional<ExceptionCause> cause = {};
  bool operator==(const HandledException&) const = default;
};

enum class PythonLockKind {
  kLock,    // threading.Lock
  kRLock,   // threading.RLock
  kModule,  // importlib's, of a module that is being imported
  // The lock that Condition.wait waits for, and with it Event, Queue, Barrier, Future: no thread holds it; another
  // thread has to notify the condition.
  kCondition,
};

// A Python lock that a thread waits for.
struct PythonLock {
  PythonLockKind kind = PythonLockKind::kLock;
  std::optional<std::string> name;  // kModule: the name of the module
  // The thread that holds it; the waiting thread itself if it already holds it. kRLock, kModule: as the lock itself
  // states. kLock: the only thread that is inside of a `with` statement of this lock. Empty: not known, or no thread.
  std::optional<Tid> owner;
  bool operator==(const PythonLock&) const = default;
};

// What the interpreter says of a thread that runs Python code.
struct PythonThread {
  std::uint64_t id = 0;             // threading.get_ident(): pthread_self()
  std::optional<std::string> name;  // threading's: "MainThread", "Thread-1 (run)"; empty: it has none
  bool operator==(const PythonThread&) const = default;
};

// Where a thread in state D waits in the kernel.
struct KernelPlace {
  std::string wchan;
  std::vector<std::string> stack;  // innermost first; empty without root's rights
  bool operator==(const KernelPlace&) const = default;
};

// In the order of sizes: a job of 131,072 ranks has some four million of them.
struct ThreadSnapshot {
  Tid tid = 0;
  StackEnd stack_end = StackEnd::kComplete;
  std::optional<Gil> gil;
  // The thread of its process that holds the pthread mutex or rwlock that it waits for; its own tid if it already holds
  // it. One that is not among the threads has ended, and left the mutex locked.
  std::optional<Tid> lock_owner;
  // The thread of its process for whose end it waits, in pthread_join or in Python's Thread.join.
  std::optional<Tid> joins;
  std::optional<char> state;  // live only
  // Python's collector is running in it, as the interpreter's state says: also known if its functions have no names.
  bool collecting = false;
  Address thread_pointer = 0;         // fs_base, which is glibc's pthread_self(); 0: not known. Not part of reports
  std::string name;                   // kernel's comm; may be any bytes
  std::optional<double> cpu_ms;       // live only
  Boxed<PythonThread> python_thread;  // empty: the interpreter has no state of it
  Boxed<SyscallInfo> syscall;
  // The C++ exception by which it terminates its process: one that was not caught, or one that it was handling when it
  // called std::terminate.
  Boxed<CxxException> exception;
  // The innermost C++ exception that it is handling; never that of a thread with `exception`.
  Boxed<HandledCxxException> handles_cxx;
  Boxed<HandledCxxException> raises_cxx;  // the one that is on its way
  Boxed<HandledException> handles;        // the innermost Python exception that it is handling
  // The Python exception that it has raised and that is on its way to a handler, or to the end of the process. `frame`
  // and `handler` are those of its traceback's first entry.
  Boxed<HandledException> raises;
  Boxed<PythonLock> python_lock;  // the Python lock that it waits for
  Boxed<OmittedFrames> omitted;
  Boxed<KernelPlace> kernel_place;       // state D only
  SharedList<FrameId> frames;            // innermost first
  SharedList<FrameVariables> variables;  // ascending by frame
  SharedList<FrameLocals> locals;        // ascending by frame; of `dump --locals` alone: no report has them
  Boxed<Motion> motion;                  // live or from dumps, more than one sample
};

// Calls `f` with a reference to each FrameId that the thread holds.
template <class F>
void for_each_frame(ThreadSnapshot& thread, F&& f) {
  if (!thread.frames.empty())
    for (FrameId& id : thread.frames.edit()) f(id);
  for (auto* exception : {&thread.handles, &thread.raises}) {
    if (!*exception) continue;
    for (std::optional<FrameId>* id : {&(*exception)->handler, &(*exception)->raised})
      if (*id) f(**id);
    for (FrameId& id : (*exception)->traceback) f(id);
    for (ChainedException& chained : (*exception)->chain)
      if (chained.raised) f(*chained.raised);
  }
}

struct SignalInfo {
  int number = 0;
  std::string name;  // "SIGSEGV"
  Tid tid = 0;
  std::optional<int> code;                           // si_code
  std::optional<Address> fault_address;              // SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP
  std::optional<FaultPlace> place = {};              // where fault_address lies
  std::optional<FaultInstruction> instruction = {};  // of a fault: what the thread was to execute
  // The process that has sent it (kill, tgkill, sigqueue), perhaps the process itself; 0: one outside of its pid
  // namespace. Empty: the kernel's signal, or not known.
  std::optional<Pid> sender = {};
  std::optional<std::uint32_t> sender_uid = {};  // of a known sender: its real user, in the process's user namespace
};

// Python's faulthandler, which writes the stacks of a process that has got a fatal signal.
struct Faulthandler {
  std::vector<std::string> signals;  // that its handlers are installed for: "SIGSEGV"; empty: it is not enabled
  // Those that it was called for: it then leaves this signal to the handler that was there before.
  std::vector<std::string> called;
  std::optional<int> descriptor;  // that it writes to; empty: not known
};

// The processes that a pid counts: those of one pid namespace of one running kernel.
struct PidSpace {
  std::string boot_id;              // /proc/sys/kernel/random/boot_id: another one after each boot
  std::uint64_t pid_namespace = 0;  // the inode of the namespace
  auto operator<=>(const PidSpace&) const = default;
};

// A pid in a given namespace.
struct NamespacedPid {
  std::uint64_t pid_namespace = 0;
  Pid pid = 0;
  auto operator<=>(const NamespacedPid&) const = default;
};

// A rank's place in the grid of a job that combines several kinds of parallelism, if its command line or environment
// states the sizes of the grid.
struct Coordinates {
  std::string from;  // "Megatron, from the command line"
  // Outermost first, including axes of size 1: {"pp", 1}, {"dp", 0}, {"tp", 0}
  std::vector<std::pair<std::string, int>> axes;
  std::optional<int> operator[](std::string_view axis) const;
  bool operator==(const Coordinates&) const = default;
};
// Sorts the axes into the order pp, dp, dp_replicate, dp_shard, cp, ep, tp; unknown axes come last.
void sort_axes(Coordinates& coordinates);

struct RankSnapshot {
  std::optional<int> rank, world_size, local_rank;
  std::optional<int> local_world_size;  // the number of ranks on its machine, as its launcher states it
  std::optional<Coordinates> coordinates;
  RankKind kind = RankKind::kRank;
  std::optional<Pid> parent;  // of a child: its rank's pid
  std::string host;           // "unknown" if a core does not state it
  Pid pid = 0;
  Source source = Source::kLive;
  std::optional<double> captured_offset_ms;  // live: after JobSnapshot::captured_at
  std::optional<std::string> path;           // the core's, or the dump's
  std::optional<std::string> dumped_by;      // dumps: the tool that has printed it, "py-spy"
  std::optional<std::string> executable;
  std::vector<std::string> command;
  // std::nullopt: no interpreter in the process; "": one that could not be read.
  std::optional<std::string> python_version;
  Status status = Status::kComplete;
  std::vector<Problem> problems;
  std::optional<ReadMethod> method;            // empty: not read, or by another tool
  std::optional<double> stopped_ms;            // live
  std::optional<std::size_t> threads_stopped;  // live
  // Live: what `pid`, `parent` and the pids of other ends count: the tool's own namespace. Two containers may have the
  // same host name and pid. Empty: not known (cores, dumps, reports of earlier builds).
  std::optional<PidSpace> pid_space = {};
  // Live: the process's own namespace, and its number there, if they can be read.
  std::optional<NamespacedPid> own_pid = {};
  // Live: when the process started, in ticks since boot (target::proc::Stat); 0: not known.
  std::uint64_t start_ticks = 0;
  // What distinguishes it from another process of the snapshot that has its host and pid (model/process_key.h), as a
  // part of its name; "": none has.
  std::string name_suffix = {};
  Boxed<SignalInfo> signal;  // cores
  // What the C library said before it aborted the process: a failed assertion, "free(): invalid pointer". Cut at 4,096
  // bytes.
  std::optional<std::string> abort_message;
  Boxed<Faulthandler> faulthandler = {};  // empty: no Python, or not known
  // Live: how many processes of its control group the kernel has killed for lack of memory.
  std::optional<std::uint64_t> oom_kills;
  std::vector<ThreadSnapshot> threads;  // main thread first
  // GPUs that the process uses, by PCI address; empty: none, or nothing is known about them.
  std::vector<GpuSnapshot> gpus;
  Boxed<FlightRecord> flight_record;  // what PyTorch's Flight Recorder has dumped of it; empty: no dump
  // What it has loaded of the libraries that are compared between ranks, by component and path.
  SharedList<LoadedModule> modules;
  Boxed<ProcessEnvironment> environment;        // empty: not read, as in dumps of other tools and older reports
  std::vector<MissingFile> missing_files = {};  // cores; at most kMaxMissingFiles
};

// A running rank of the job that was not requested.
struct UnseenRank {
  int rank = 0;
  std::string host;
  Pid pid = 0;
  std::optional<PidSpace> pid_space = {};  // as in RankSnapshot
  bool operator==(const UnseenRank&) const = default;
};

// NCCL's own view of its communicators, obtained from the RAS threads of the job's processes (NCCL's reliability,
// availability and serviceability subsystem, 2.24 and later). The RAS thread that answers collects the data from all
// processes of the job, on all machines.
struct NcclMember {
  // A captured process, identified as in its RankSnapshot.
  struct Process {
    std::string host;
    Pid pid = 0;
    std::optional<PidSpace> pid_space = {};
    bool operator==(const Process&) const = default;
  };

  int rank = 0;                    // rank in the communicator, not in the job
  std::string host;                // as RAS reports it: an IP address, or "unknown"
  Pid pid = 0;                     // as RAS reports it: in the pid namespace of the job; 0: unknown
  std::optional<Process> process;  // the captured process that it is; empty: none of them
  bool unresponsive = false;       // missing members: its RAS thread did not answer the other ones
  bool dead = false;               // missing members: it has not answered for a minute, and RAS has given it up
  bool aborted = false;            // ncclCommAbort was called
  bool finalized = false;          // ncclCommFinalize or ncclCommDestroy was called
  int async_error = 0;             // ncclResult_t of the communicator; 0: none
  // The number of collectives that the process has launched on the communicator since it was created, by name
  // ("AllReduce"), in the first answer. Send and Recv are not counted.
  std::vector<std::pair<std::string, std::int64_t>> launched;
  // The counts in the second answer, after the last sample, were different; meaningless if there is only one answer.
  bool counts_move = false;
  bool operator==(const NcclMember&) const = default;
};

struct NcclCommunicator {
  std::string hash;                 // the same for all of its members, as RAS writes it: "0xafc520aa7d804bf"
  std::string secondary_hash;       // of the process that created it; hashes may repeat, pairs of both hashes do not
  int size = 0;                     // number of its members, including missing ones
  std::vector<NcclMember> members;  // those that answered, in RAS's order
  std::vector<NcclMember> missing;  // those that did not answer: their counts are not known
  bool operator==(const NcclCommunicator&) const = default;
};

struct NcclStatus {
  std::string version;  // "2.28.9"
  int answers = 1;      // 2: asked before the first sample and after the last, so that counts_move is known
  std::vector<NcclCommunicator> communicators;  // those in which a captured process takes part
  bool operator==(const NcclStatus&) const = default;
};

struct JobSnapshot {
  std::string tool_version;
  std::string captured_at;           // "2026-01-31T12:00:00.123Z"
  std::optional<double> elapsed_ms;  // how long the tool took, capture to report
  FrameTable frames;
  std::vector<RankSnapshot> ranks;
  // Live: running ranks, on the captured machines, that were not requested; ascending.
  std::vector<UnseenRank> not_looked_at;
  // Live, if processes are missing: ends of processes of this name that the kernel's log records, in the order of time.
  std::vector<KernelKill> kernel_log;
  std::optional<NcclStatus> nccl;  // live: empty if no RAS thread of the job answered
  // The nodes that were asked by `rankstacks job`, in the order of the host list; empty: none was.
  std::vector<NodeSnapshot> nodes;
};

// "3" if the rank's number is known, else "host:pid". Always "host:pid" for children. Where two processes have the same
// host and pid, "host:pid@4026532567" (RankSnapshot::name_suffix).
std::string rank_label(const RankSnapshot& rank);

}  // namespace model
}  // namespace rankstacks
