// What one look at a job found: the one thing that analyzers and reports see.
//
// Nothing here knows of ptrace, files or libraries. A JobSnapshot can be saved as JSON and read back, and every report can be made from it.
//
//     JobSnapshot
//       frames: FrameTable      each distinct frame once; threads refer to it by FrameId
//       ranks:  RankSnapshot[]
//                 threads: ThreadSnapshot[]
//                            frames: FrameId[]   innermost first
//       nccl:   NcclStatus      NCCL's own view of its communicators
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/types.h"
#include "model/gpu.h"
#include "model/problem.h"

namespace rankstacks {

using FrameId = std::uint32_t;

enum class FrameKind { kNative, kPython, kGpu };

// How a frame's pc was found, when not by unwind information.
enum class FrameOrigin {
  kNormal,         // registers or unwind information
  kFramePointer,   // no unwind information there: the rbp chain was followed
  kReturnSlot,     // pc was no code: the return address on top of the stack was taken; or no unwind information there: the one that the code is about to return to
  kSeparate,       // a Python frame whose place in the native stack could not be told: shown beside it
};

struct Frame {
  FrameKind kind = FrameKind::kNative;
  std::optional<std::string> function;   // native, gpu: demangled; python: co_name. Nothing: no symbol covers it
  std::optional<std::string> qualname;   // python from 3.11
  std::string module;                    // native: path as the target names it; "" : in no module
  std::optional<std::string> file;       // source file; python: raw co_filename
  std::optional<int> line;
  Address address = 0;                   // native: pc or return address, as gdb shows it; gpu: the virtual pc on the device
  std::optional<Vaddr> offset;           // native: inside the module's file view; gpu: from the function's start
  bool inlined = false;                  // native: inlined into the next frame
  FrameOrigin origin = FrameOrigin::kNormal;

  bool operator==(const Frame&) const = default;
};

// Interns frames. Ids are dense and start at 0.
class FrameTable {
 public:
  FrameId intern(Frame frame);
  const Frame& operator[](FrameId id) const { return frames_[id]; }
  std::size_t size() const { return frames_.size(); }

 private:
  std::vector<Frame> frames_;
  std::unordered_multimap<std::size_t, FrameId> by_hash_;
};

enum class StackEnd { kComplete, kNoUnwindInfo, kMemoryUnavailable, kRepeatedFrame, kDepthLimit };
enum class Gil { kHolds, kWaits };
enum class Source { kLive, kCore };
enum class RankKind { kRank, kChild };
enum class Status { kComplete, kPartial, kFailed };

// How a process has to do with what a thread is blocked on.
enum class EndKind {
  kPipe,     // it has the other end of the pipe or FIFO open
  kSocket,   // it has the other socket of the connection open, or listens for the connection
  kLock,     // it holds the file lock that is in the way
  kChild,    // it is the process whose end is waited for
  kDatabase, // it holds the lock of the SQLite database that is tried for
};

struct OtherEnd {
  Pid pid = 0;
  EndKind kind = EndKind::kPipe;
  std::string command;                     // "python3 prepare.py": of a process that is none of the snapshot's; else ""
  bool operator==(const OtherEnd&) const = default;
};

struct SyscallInfo {
  std::string name;                        // "futex"; "syscall_999" for a number without a name
  int number = -1;
  std::optional<int> fd;
  std::optional<std::string> fd_target;    // "/data/x", "pipe:[123]", "tcp 10.0.0.1:4 -> 10.0.0.2:5"
  // Live: the processes that it waits for, by pid; at most kMaxOthers of them. The thread's own process is among them only where it is the only one. Empty: not known.
  static constexpr std::size_t kMaxOthers = 8;
  std::vector<OtherEnd> others;
  bool own_end = false;                    // its own process has the other end (holds the lock) as well, beside the others or whoever cannot be seen
  std::optional<std::string> database;     // of an end of kind kDatabase: the database's path, as the descriptor of the waiting process has it; nothing: one of several
  std::optional<std::string> other_host;   // the other end of the connection is at this address, which is none of this machine's
};

// Frames left out in the middle of a very deep stack: `count` of them stood before frames[at].
struct OmittedFrames {
  std::size_t at = 0;
  std::size_t count = 0;
};

// A process group of PyTorch as its process knows it (torch/distributed/distributed_c10d.py: _pg_names, _pg_group_ranks).
struct ProcessGroup {
  std::string name;                        // the same on all of its ranks; "" where it has none
  std::vector<int> ranks;                  // its members, as ranks of the job, in the group's order; empty: unknown
  bool operator==(const ProcessGroup&) const = default;
};

// What the variables of one Python frame tell. Not part of the frame: ranks at the same place have different ones.
struct FrameVariables {
  std::size_t frame = 0;                   // index into ThreadSnapshot::frames
  std::vector<std::pair<std::string, std::int64_t>> numbers;   // loop counters (step, epoch, i); of c10d's functions src, dst, tag. By name
  std::optional<ProcessGroup> group;       // of c10d's functions: the group they work on
  int loops = 0;                           // how many `for` loops it stands in: iterators lie first on its value stack. 0: in none, or that cannot be told
  bool operator==(const FrameVariables&) const = default;
};

// What several samples saw of a thread. Nothing: it was looked at once.
struct Motion {
  int samples = 0;                           // that found it, the first included
  int places = 0;                          // different stacks among them, compared as clusters are
  bool moved = false;                      // its place in its program differs between two samples: what a wait does inside of itself is no motion
  bool travelled = false;                  // the functions that it is in differ between two samples, not their lines alone: a tight loop never does
  bool counted = false;                    // a counter of its frames (FrameVariables::numbers) has gone on between two samples, no faster than work can
  bool left_wait = false;                  // at one look it waited for other ranks, at the next it did not, or elsewhere: that wait has ended
  double cpu_ms = 0;                       // it ran for so long between the samples; what the samples cost is left out
  std::int64_t runs = 0;                   // times it was given a processor between the samples
  double span_ms = 0;                      // time between the samples, in all
  bool operator==(const Motion&) const = default;
};

// What an exception speaks of, where its text is one that is known.
enum class ExceptionCause {
  kOwnGpu,   // the GPU work of its own process has failed
  kTimeout,  // a collective has not ended: other ranks
  kPeer,     // the other end of a connection
};

// A C++ exception that ends its process: that nobody caught, or that a thread handled when it called std::terminate.
struct CxxException {
  std::string type;                        // "std::runtime_error", "c10::DistBackendError"
  std::optional<std::string> what;         // its text, cut at 4,096 bytes; nothing: its type is not one whose text can be found
  std::optional<ExceptionCause> cause = {};
  bool operator==(const CxxException&) const = default;
};

// A Python exception that a thread handles, as sys.exc_info() tells it there: the thread stands in an `except` or `finally` block, in the __exit__ of a `with`
// statement, or in what one of these calls.
struct HandledException {
  std::string type;                        // its class's name, "RuntimeError"; "" where that cannot be read
  std::optional<std::string> message;      // its only argument, where that is a str: the first 200 characters
  std::optional<std::size_t> frame;        // index into ThreadSnapshot::frames: the function that handles it; nothing: none of these
  // Its traceback's ends; nothing: it has none, or that cannot be read.
  std::optional<FrameId> handler;          // the function that handles it, at the line at which it came there
  std::optional<FrameId> raised;           // where it was raised
  bool operator==(const HandledException&) const = default;
};

enum class PythonLockKind {
  kLock,        // threading.Lock
  kRLock,       // threading.RLock
  kModule,      // importlib's, of a module that is being imported
  kCondition,   // what Condition.wait waits for, and with it Event, Queue, Barrier, Future: nobody holds it, another thread has to come
};

// A Python lock that a thread waits for.
struct PythonLock {
  PythonLockKind kind = PythonLockKind::kLock;
  std::optional<std::string> name;         // kModule: the module's
  // The thread that holds it (itself: it holds it already). kRLock, kModule: as the lock itself says. kLock: the only thread that is inside of a `with` statement of
  // this lock. Nothing: not known, or nobody.
  std::optional<Tid> owner;
  bool operator==(const PythonLock&) const = default;
};

struct ThreadSnapshot {
  Tid tid = 0;
  std::string name;                        // kernel's comm; may be any bytes
  std::optional<char> state;               // live only
  std::optional<double> cpu_ms;            // live only
  std::optional<Gil> gil;
  bool collecting = false;                 // Python's collector runs in it, as the interpreter states: also where its functions have no names
  std::optional<SyscallInfo> syscall;
  std::optional<CxxException> exception;   // only of a thread that terminates its process
  std::optional<HandledException> handles; // Python's; the innermost of those that it handles
  std::optional<Tid> lock_owner;           // it waits for a pthread mutex or rwlock that this thread of its process holds (itself: it holds it already)
  std::optional<PythonLock> python_lock;   // it waits for this lock of Python's
  std::optional<Tid> joins;                // it waits in pthread_join, or in Python's Thread.join, for the end of this thread of its process
  StackEnd stack_end = StackEnd::kComplete;
  std::optional<OmittedFrames> omitted;
  std::string wchan;                       // state D only
  std::vector<std::string> kernel_stack;   // state D only
  std::vector<FrameId> frames;             // innermost first
  std::vector<FrameVariables> variables;   // ascending by frame
  std::optional<Motion> motion;            // live, more than one look
};

// Calls `f` with a reference to each FrameId that the thread holds.
template <class F>
void for_each_frame(ThreadSnapshot& thread, F&& f) {
  for (FrameId& id : thread.frames) f(id);
  if (!thread.handles) return;
  for (std::optional<FrameId>* id : {&thread.handles->handler, &thread.handles->raised})
    if (*id) f(**id);
}

struct SignalInfo {
  int number = 0;
  std::string name;                        // "SIGSEGV"
  Tid tid = 0;
  std::optional<int> code;                 // si_code
  std::optional<Address> fault_address;    // SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP
};

// A rank's place in the grid of a job that is parallel in several ways, where its command line or environment tells the grid's sizes.
struct Coordinates {
  std::string from;                                  // "Megatron, from the command line"
  std::vector<std::pair<std::string, int>> axes;     // outermost first, those of size 1 too: {"pp", 1}, {"dp", 0}, {"tp", 0}
  std::optional<int> operator[](std::string_view axis) const;
  bool operator==(const Coordinates&) const = default;
};
// pp, dp, dp_replicate, dp_shard, cp, ep, tp; others behind them.
void sort_axes(Coordinates& coordinates);

struct RankSnapshot {
  std::optional<int> rank, world_size, local_rank;
  std::optional<Coordinates> coordinates;
  RankKind kind = RankKind::kRank;
  std::optional<Pid> parent;               // of a child: its rank's pid
  std::string host;                        // "unknown" where a core does not tell
  Pid pid = 0;
  Source source = Source::kLive;
  std::optional<double> captured_offset_ms;   // live: after JobSnapshot::captured_at
  std::optional<std::string> path;         // the core's
  std::optional<std::string> executable;
  std::vector<std::string> command;
  std::optional<std::string> python_version;   // nothing: no interpreter in it; empty: one that could not be read
  Status status = Status::kComplete;
  std::vector<Problem> problems;
  std::optional<double> stopped_ms;        // live
  std::uint64_t start_ticks = 0;           // live: with the pid, who it was when it was looked at (proc::Stat); in no report
  std::optional<SignalInfo> signal;        // cores
  std::vector<ThreadSnapshot> threads;     // main thread first
  std::vector<GpuSnapshot> gpus;           // that the process uses, by PCI address; empty: none, or nothing told of them
};

// A rank of the job that runs, and that nobody asked to look at.
struct UnseenRank {
  int rank = 0;
  std::string host;
  Pid pid = 0;
  bool operator==(const UnseenRank&) const = default;
};

// What NCCL itself says of its communicators, asked of the RAS threads of the job's processes (NCCL's reliability, availability and serviceability
// subsystem, 2.24 and later): whichever answers collects it from all processes of the job, on all machines.
struct NcclMember {
  // A process that was looked at, as its RankSnapshot is named.
  struct Process {
    std::string host;
    Pid pid = 0;
    bool operator==(const Process&) const = default;
  };

  int rank = 0;                            // in the communicator: not the job's rank
  std::string host;                        // as RAS has it: an IP address, or "unknown"
  Pid pid = 0;                             // as RAS has it: in the pid namespace of the job; 0: unknown
  std::optional<Process> process;          // which of the ranks it is; nothing: none that was looked at
  bool unresponsive = false;               // of the missing: its RAS thread did not answer the others
  bool dead = false;                       // of the missing: it has not answered for a minute and is given up
  bool aborted = false;                    // ncclCommAbort was called
  bool finalized = false;                  // ncclCommFinalize or ncclCommDestroy was called
  int async_error = 0;                     // ncclResult_t of the communicator; 0: none
  // Collectives that the process has launched on it since it was made, by name ("AllReduce"), in the first answer. Send and Recv are not counted.
  std::vector<std::pair<std::string, std::int64_t>> launched;
  bool counts_move = false;                // the second answer, after the last look, had other counts; meaningless with one answer
  bool operator==(const NcclMember&) const = default;
};

struct NcclCommunicator {
  std::string hash;                        // the same at all of its members, as RAS writes it: "0xafc520aa7d804bf"
  std::string secondary_hash;              // of the process that made it; hash may repeat, both together do not
  int size = 0;                            // its members in all, those missing included
  std::vector<NcclMember> members;         // that answered, in RAS's order
  std::vector<NcclMember> missing;         // that did not: nothing is known of their counts
  bool operator==(const NcclCommunicator&) const = default;
};

struct NcclStatus {
  std::string version;                     // "2.28.9"
  int answers = 1;                         // 2: asked before the first look and after the last, so that counts_move tells
  std::vector<NcclCommunicator> communicators;   // those in which a process that was looked at takes part
  bool operator==(const NcclStatus&) const = default;
};

struct JobSnapshot {
  std::string tool_version;
  std::string captured_at;                 // "2026-01-31T12:00:00.123Z"
  std::optional<double> elapsed_ms;        // how long the tool took, capture to report
  FrameTable frames;
  std::vector<RankSnapshot> ranks;
  std::vector<UnseenRank> not_looked_at;   // live: on the machines that were looked at; ascending
  std::optional<NcclStatus> nccl;          // live: nothing where no RAS thread of the job answered
};

// "3" where the rank's number is known, else "host:pid". Children are always "host:pid".
std::string rank_label(const RankSnapshot& rank);

}  // namespace rankstacks
