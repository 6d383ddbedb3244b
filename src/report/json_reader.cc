// Reads a saved report. All of it is untrusted: its sender may have written anything.
//
// Fields that this version does not know are ignored; missing optional fields take their defaults.
#include <algorithm>
#include <array>
#include <climits>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "report/compact_form.h"
#include "report/json_document.h"
#include "report/json_environment.h"
#include "report/json_flight_record.h"
#include "report/json_gpu.h"
#include "report/json_missing_files.h"
#include "report/json_node.h"
#include "report/json_nodes.h"
#include "report/json_signal.h"
#include "report/report.h"

namespace rankstacks::report {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{2} << 30;
constexpr std::size_t kMaxRanks = 1 << 17;
constexpr std::size_t kMaxThreads = 1 << 17;        // of one rank
constexpr std::size_t kMaxFrames = 1 << 17;         // of one thread; the unwinder's own limit is lower
constexpr std::size_t kMaxCommunicators = 1 << 20;  // each rank is in several
constexpr std::size_t kMaxStrings = 1 << 16;        // command words, kernel stack lines, problems
constexpr std::size_t kMaxAxes = 16;                // of a rank's coordinates

std::vector<std::string> read_strings(const Node& node) {
  std::vector<std::string> strings;
  node.each(kMaxStrings, [&](const Node& n) { strings.push_back(n.text()); });
  return strings;
}

Frame read_frame(const Node& node, bool of_gpu = false) {
  node.require_object();
  Frame frame;
  node.required("kind", [&](const Node& n) {
    const auto kind = value_of(kFrameKindWords, n.text());
    if (!kind || (*kind == FrameKind::kGpu) != of_gpu)
      n.fail_with(of_gpu ? "expected gpu" : "expected one of native, python");
    frame.kind = *kind;
  });
  node.optional("function", [&](const Node& n) { frame.function = n.text(); });
  node.optional("qualname", [&](const Node& n) { frame.qualname = n.text(); });
  node.optional("module", [&](const Node& n) { frame.module = n.text(); });
  node.optional("file", [&](const Node& n) { frame.file = n.text(); });
  node.optional("line", [&](const Node& n) { frame.line = n.int32(); });
  node.optional("address", [&](const Node& n) { frame.address = n.hex(); });
  node.optional("offset", [&](const Node& n) { frame.offset = n.hex(); });
  node.optional("inlined", [&](const Node& n) { frame.inlined = n.boolean(); });
  node.optional("origin", [&](const Node& n) { frame.origin = n.word(kFrameOriginWords); });
  return frame;
}

SyscallInfo read_syscall(const Node& node) {
  node.require_object();
  SyscallInfo call;
  node.required("name", [&](const Node& n) { call.name = n.text(); });
  node.optional("number", [&](const Node& n) { call.number = n.int32(); });
  node.optional("fd", [&](const Node& n) { call.fd = n.int32(); });
  node.optional("fd_target", [&](const Node& n) { call.fd_target = n.text(); });
  node.optional("other_ends", [&](const Node& list) {
    list.each(SyscallInfo::kMaxOthers, [&](const Node& n) {
      n.require_object();
      OtherEnd& end = call.others.emplace_back();
      n.required("pid", [&](const Node& v) { end.pid = v.int32(1); });
      n.required("kind", [&](const Node& v) { end.kind = v.word(kEndKindWords); });
      n.optional("command", [&](const Node& v) { end.command = v.text(); });
    });
  });
  node.optional("database", [&](const Node& n) { call.database = n.text(); });
  node.optional("own_end", [&](const Node& n) { call.own_end = n.boolean(); });
  node.optional("other_host", [&](const Node& n) { call.other_host = n.text(); });
  node.optional("listens", [&](const Node& n) { call.listens = n.boolean(); });
  return call;
}

// Reads once what many threads have alike. The document has it once, or nearly so.
class PartReader {
 public:
  explicit PartReader(FrameTable& table) : table_(table) {}

  FrameId frame(const Node& node) {
    const auto known = frames_.find(node.identity());
    if (known != frames_.end()) return known->second;
    const FrameId id = table_.intern(read_frame(node));
    return frames_[node.identity()] = id;
  }
  FrameId frame_of_gpu(const Node& node) { return table_.intern(read_frame(node, true)); }

  SharedList<FrameId> stack(const Node& list) {
    auto& [elements, known] = stacks_[slot_of(list.identity_of_list())];
    if (elements != nullptr && elements == list.identity_of_list()) return known;
    std::vector<FrameId> ids;
    ids.reserve(std::min<std::size_t>(list.count(), kMaxFrames));
    list.each(kMaxFrames, [&](const Node& n) { ids.push_back(frame(n)); });
    elements = list.identity_of_list();
    return known = std::move(ids);
  }

  Boxed<SyscallInfo> syscall(const Node& node) {
    auto& [object, known] = syscalls_[slot_of(node.identity())];
    if (object == nullptr || object != node.identity()) {
      known = read_syscall(node);
      object = node.identity();
    }
    return known;
  }

 private:
  static constexpr std::size_t kSlots = 256;
  static std::size_t slot_of(const void* identity) { return reinterpret_cast<std::uintptr_t>(identity) / 16 % kSlots; }

  FrameTable& table_;
  std::unordered_map<const JsonObject*, FrameId> frames_;
  std::array<std::pair<const JsonValue*, SharedList<FrameId>>, kSlots> stacks_{};  // of the last ones
  std::array<std::pair<const JsonObject*, Boxed<SyscallInfo>>, kSlots> syscalls_{};
};

FrameVariables read_variables(const Node& node, std::size_t frames) {
  node.require_object();
  FrameVariables variables;
  node.required("frame", [&](const Node& n) {
    if (frames == 0) n.fail_with("expected none: the thread has no frames");
    variables.frame = static_cast<std::size_t>(n.integer(0, static_cast<std::int64_t>(frames) - 1));
  });
  node.optional("numbers", [&](const Node& list) {
    list.each_member(kMaxStrings, [&](const std::string& name, const Node& n) {
      variables.numbers.emplace_back(name, n.integer(INT64_MIN, INT64_MAX));
    });
  });
  node.optional("in_loop", [&](const Node& n) { variables.loops = n.boolean() ? 1 : 0; });
  node.optional("loops", [&](const Node& n) { variables.loops = n.int32(0); });
  node.optional("group", [&](const Node& n) {
    n.require_object();
    ProcessGroup group;
    n.optional("name", [&](const Node& v) { group.name = v.text(); });
    n.optional("description", [&](const Node& v) { group.description = v.text(); });
    n.optional("ranks", [&](const Node& list) {
      list.each(kMaxRanks, [&](const Node& v) { group.ranks.push_back(v.int32(0)); });
    });
    variables.group = std::move(group);
  });
  return variables;
}

OmittedFrames read_omitted(const Node& node, std::size_t frame_count) {
  node.require_object();
  OmittedFrames omitted;
  node.required("at", [&](const Node& n) {
    omitted.at = static_cast<std::size_t>(n.integer(0, static_cast<std::int64_t>(frame_count)));
  });
  node.required("count", [&](const Node& n) { omitted.count = static_cast<std::size_t>(n.integer(0, INT64_MAX)); });
  return omitted;
}

ChainedException read_chained(const Node& node, PartReader& parts) {
  node.require_object();
  ChainedException chained;
  node.required("link", [&](const Node& n) { chained.link = n.word(kExceptionLinkWords); });
  node.required("type", [&](const Node& n) { chained.type = n.text(); });
  node.optional("message", [&](const Node& n) { chained.message = n.text(); });
  node.optional("raised", [&](const Node& n) { chained.raised = parts.frame(n); });
  return chained;
}

// An index into the thread's frames.
std::size_t read_frame_index(const Node& node, std::size_t frame_count) {
  if (frame_count == 0) node.fail_with("expected none: the thread has no frames");
  return static_cast<std::size_t>(node.integer(0, static_cast<std::int64_t>(frame_count) - 1));
}

HandledException read_handled(const Node& node, std::size_t frame_count, PartReader& parts) {
  node.require_object();
  HandledException handled;
  node.required("type", [&](const Node& n) { handled.type = n.text(); });
  node.optional("message", [&](const Node& n) { handled.message = n.text(); });
  node.optional("frame", [&](const Node& n) { handled.frame = read_frame_index(n, frame_count); });
  node.optional("handler", [&](const Node& n) { handled.handler = parts.frame(n); });
  node.optional("raised", [&](const Node& n) { handled.raised = parts.frame(n); });
  node.optional("traceback", [&](const Node& list) {
    list.each(kMaxFrames, [&](const Node& n) { handled.traceback.push_back(parts.frame(n)); });
  });
  node.optional("traceback_omitted",
                [&](const Node& n) { handled.traceback_omitted = read_omitted(n, handled.traceback.size()); });
  node.optional("chain", [&](const Node& list) {
    list.each(kMaxStrings, [&](const Node& n) { handled.chain.push_back(read_chained(n, parts)); });
  });
  node.optional("cause", [&](const Node& n) { handled.cause = n.word(kExceptionCauseWords); });
  return handled;
}

PythonLock read_python_lock(const Node& node) {
  node.require_object();
  PythonLock lock;
  node.required("type", [&](const Node& n) { lock.kind = n.word(kPythonLockWords); });
  node.optional("name", [&](const Node& n) { lock.name = n.text(); });
  node.optional("owner", [&](const Node& n) { lock.owner = n.int32(0); });
  return lock;
}

Motion read_motion(const Node& node) {
  node.require_object();
  Motion motion;
  node.required("looks", [&](const Node& n) { motion.samples = n.int32(0); });
  node.required("places", [&](const Node& n) { motion.places = n.int32(0); });
  node.required("moved", [&](const Node& n) { motion.moved = n.boolean(); });
  node.optional("travelled", [&](const Node& n) { motion.travelled = n.boolean(); });
  node.optional("in_one_function", [&](const Node& n) { motion.in_one_function = n.boolean(); });
  node.optional("left_wait", [&](const Node& n) { motion.left_wait = n.boolean(); });
  node.optional("counted", [&](const Node& n) { motion.counted = n.boolean(); });
  node.optional("cpu_ms", [&](const Node& n) { motion.cpu_ms = n.real(); });
  node.optional("runs", [&](const Node& n) { motion.runs = n.integer(0, INT64_MAX); });
  node.optional("span_ms", [&](const Node& n) { motion.span_ms = n.real(); });
  return motion;
}

CxxException read_cxx_exception(const Node& node) {
  CxxException exception;
  node.required("type", [&](const Node& v) { exception.type = v.text(); });
  node.optional("what", [&](const Node& v) { exception.what = v.text(); });
  node.optional("cause", [&](const Node& v) { exception.cause = v.word(kExceptionCauseWords); });
  return exception;
}

HandledCxxException read_handled_cxx(const Node& node, std::size_t frame_count) {
  node.require_object();
  HandledCxxException handled{read_cxx_exception(node)};
  node.optional("frame", [&](const Node& v) { handled.frame = read_frame_index(v, frame_count); });
  return handled;
}

ThreadSnapshot read_thread(const Node& node, PartReader& parts) {
  node.require_object();
  ThreadSnapshot thread;
  node.required("tid", [&](const Node& n) { thread.tid = n.int32(0); });
  node.optional("name", [&](const Node& n) { thread.name = n.text(); });
  node.optional("state", [&](const Node& n) {
    const std::string state = n.text();
    if (state.size() != 1) n.fail_with("expected one letter");
    thread.state = state[0];
  });
  node.optional("cpu_ms", [&](const Node& n) { thread.cpu_ms = n.real(); });
  node.optional("python_thread", [&](const Node& n) {
    n.require_object();
    PythonThread python;
    n.required("id", [&](const Node& v) { python.id = v.hex(); });
    n.optional("name", [&](const Node& v) { python.name = v.text(); });
    thread.python_thread = std::move(python);
  });
  node.optional("gil", [&](const Node& n) { thread.gil = n.word(kGilWords); });
  node.optional("syscall", [&](const Node& n) { thread.syscall = parts.syscall(n); });
  node.optional("collecting", [&](const Node& n) { thread.collecting = n.boolean(); });
  node.optional("exception", [&](const Node& n) {
    n.require_object();
    thread.exception = read_cxx_exception(n);
  });
  node.optional("lock_owner", [&](const Node& n) { thread.lock_owner = n.int32(0); });
  node.optional("python_lock", [&](const Node& n) { thread.python_lock = read_python_lock(n); });
  node.optional("joins", [&](const Node& n) { thread.joins = n.int32(0); });
  KernelPlace kernel_place;
  node.optional("wchan", [&](const Node& n) { kernel_place.wchan = n.text(); });
  node.optional("kernel_stack", [&](const Node& n) { kernel_place.stack = read_strings(n); });
  if (kernel_place != KernelPlace()) thread.kernel_place = std::move(kernel_place);
  node.optional("stack_end", [&](const Node& n) { thread.stack_end = n.word(kStackEndWords); });
  node.required("frames", [&](const Node& list) { thread.frames = parts.stack(list); });
  node.optional("omitted_frames", [&](const Node& n) { thread.omitted = read_omitted(n, thread.frames.size()); });
  node.optional("variables", [&](const Node& list) {
    list.each(kMaxFrames, [&](const Node& n) { thread.variables.push_back(read_variables(n, thread.frames.size())); });
  });
  node.optional("handles_cxx", [&](const Node& n) { thread.handles_cxx = read_handled_cxx(n, thread.frames.size()); });
  node.optional("raises_cxx", [&](const Node& n) { thread.raises_cxx = read_handled_cxx(n, thread.frames.size()); });
  node.optional("handles", [&](const Node& n) { thread.handles = read_handled(n, thread.frames.size(), parts); });
  node.optional("raises", [&](const Node& n) { thread.raises = read_handled(n, thread.frames.size(), parts); });
  node.optional("motion", [&](const Node& n) { thread.motion = read_motion(n); });
  return thread;
}

// Reports of earlier builds have no codes. The only code that the analysis depends on is recognised by the words that
// those builds used.
ProblemCode code_by_words(const std::string& message) {
  const bool ended = contains(message, "a zombie") || contains(message, "no such process");
  return ended ? ProblemCode::kEnded : ProblemCode::kOther;
}

Problem read_problem(const Node& node) {
  node.require_object();
  Problem problem;
  std::optional<std::string> code;
  node.required("message", [&](const Node& n) { problem.message = n.text(); });
  node.optional("hint", [&](const Node& n) { problem.hint = n.text(); });
  node.optional("code", [&](const Node& n) { code = n.text(); });
  // kOther for a code of a later version.
  problem.code =
      code ? value_of(kProblemCodeWords, *code).value_or(ProblemCode::kOther) : code_by_words(problem.message);
  return problem;
}

PidSpace read_pid_space(const Node& node) {
  node.require_object();
  PidSpace space;
  node.required("boot_id", [&](const Node& n) { space.boot_id = n.text(); });
  node.required("pid_namespace",
                [&](const Node& n) { space.pid_namespace = static_cast<std::uint64_t>(n.integer(0, INT64_MAX)); });
  return space;
}

void read_identity(const Node& node, RankSnapshot& rank) {
  rank.pid_space = read_pid_space(node);
  node.optional("start_ticks",
                [&](const Node& n) { rank.start_ticks = static_cast<std::uint64_t>(n.integer(0, INT64_MAX)); });
  NamespacedPid own;
  node.optional("own_pid_namespace",
                [&](const Node& n) { own.pid_namespace = static_cast<std::uint64_t>(n.integer(0, INT64_MAX)); });
  node.optional("own_pid", [&](const Node& n) { own.pid = n.int32(0); });
  if (own.pid_namespace != 0 && own.pid != 0) rank.own_pid = own;
}

RankSnapshot read_rank(const Node& node, PartReader& parts) {
  node.require_object();
  RankSnapshot rank;
  node.optional("rank", [&](const Node& n) { rank.rank = n.int32(0); });
  node.optional("world_size", [&](const Node& n) { rank.world_size = n.int32(0); });
  node.optional("local_rank", [&](const Node& n) { rank.local_rank = n.int32(0); });
  node.optional("local_world_size", [&](const Node& n) { rank.local_world_size = n.int32(0); });
  node.optional("coordinates", [&](const Node& axes) {
    Coordinates coordinates;
    axes.each_member(kMaxAxes,
                     [&](const std::string& axis, const Node& n) { coordinates.axes.emplace_back(axis, n.int32(0)); });
    sort_axes(coordinates);
    rank.coordinates = std::move(coordinates);
  });
  node.optional("coordinates_from", [&](const Node& n) {
    if (rank.coordinates) rank.coordinates->from = n.text();
  });
  node.optional("kind", [&](const Node& n) { rank.kind = n.word(kRankKindWords); });
  node.optional("parent", [&](const Node& n) { rank.parent = n.int32(0); });
  node.required("host", [&](const Node& n) { rank.host = n.text(); });
  node.required("pid", [&](const Node& n) { rank.pid = n.int32(0); });
  node.optional("identity", [&](const Node& n) { read_identity(n, rank); });
  node.required("source", [&](const Node& n) { rank.source = n.word(kSourceWords); });
  node.optional("captured_offset_ms", [&](const Node& n) { rank.captured_offset_ms = n.real(); });
  node.optional("path", [&](const Node& n) { rank.path = n.text(); });
  node.optional("dumped_by", [&](const Node& n) { rank.dumped_by = n.text(); });
  node.optional("executable", [&](const Node& n) { rank.executable = n.text(); });
  node.optional("command", [&](const Node& n) { rank.command = read_strings(n); });
  node.optional("python", [&](const Node& n) {
    n.require_object();
    rank.python_version.emplace();
    n.optional("version", [&](const Node& v) { rank.python_version = v.text(); });
  });
  node.required("status", [&](const Node& n) { rank.status = n.word(kStatusWords); });
  node.optional("problems", [&](const Node& list) {
    list.each(kMaxStrings, [&](const Node& n) { rank.problems.push_back(read_problem(n)); });
  });
  node.optional("method", [&](const Node& n) { rank.method = n.word(kReadMethodWords); });
  node.optional("stopped_ms", [&](const Node& n) { rank.stopped_ms = n.real(); });
  node.optional("threads_stopped", [&](const Node& n) {
    rank.threads_stopped = static_cast<std::size_t>(n.integer(0, static_cast<std::int64_t>(kMaxThreads)));
  });
  node.optional("signal", [&](const Node& n) { rank.signal = read_signal(n); });
  node.optional("faulthandler", [&](const Node& n) { rank.faulthandler = read_faulthandler(n); });
  node.optional("oom_kills",
                [&](const Node& n) { rank.oom_kills = static_cast<std::uint64_t>(n.integer(0, INT64_MAX)); });
  node.optional("abort_message", [&](const Node& n) { rank.abort_message = n.text(); });
  node.required("threads", [&](const Node& list) {
    rank.threads.reserve(std::min(list.count(), kMaxThreads));
    list.each(kMaxThreads, [&](const Node& n) { rank.threads.push_back(read_thread(n, parts)); });
  });
  node.optional("gpus", [&](const Node& n) {
    rank.gpus = read_gpus(n, [&](const Node& frame) { return parts.frame_of_gpu(frame); });
  });
  node.optional("flight_recorder", [&](const Node& n) { rank.flight_record = read_flight_record(n); });
  read_environment(node, rank);
  read_missing_files(node, rank);
  return rank;
}

NcclMember read_nccl_member(const Node& node) {
  node.require_object();
  NcclMember member;
  node.required("rank", [&](const Node& n) { member.rank = n.int32(0); });
  node.optional("host", [&](const Node& n) { member.host = n.text(); });
  node.optional("pid", [&](const Node& n) { member.pid = n.int32(0); });
  node.optional("process", [&](const Node& n) {
    n.require_object();
    NcclMember::Process process;
    n.required("host", [&](const Node& v) { process.host = v.text(); });
    n.required("pid", [&](const Node& v) { process.pid = v.int32(0); });
    n.optional("identity", [&](const Node& v) { process.pid_space = read_pid_space(v); });
    member.process = std::move(process);
  });
  node.optional("unresponsive", [&](const Node& n) { member.unresponsive = n.boolean(); });
  node.optional("dead", [&](const Node& n) { member.dead = n.boolean(); });
  node.optional("aborted", [&](const Node& n) { member.aborted = n.boolean(); });
  node.optional("finalized", [&](const Node& n) { member.finalized = n.boolean(); });
  node.optional("async_error", [&](const Node& n) { member.async_error = n.int32(); });
  node.optional("launched", [&](const Node& list) {
    list.each_member(kMaxStrings, [&](const std::string& name, const Node& n) {
      member.launched.emplace_back(name, n.integer(0, INT64_MAX));
    });
  });
  node.optional("counts_move", [&](const Node& n) { member.counts_move = n.boolean(); });
  return member;
}

NcclStatus read_nccl(const Node& node) {
  node.require_object();
  NcclStatus nccl;
  node.optional("version", [&](const Node& n) { nccl.version = n.text(); });
  node.optional("answers", [&](const Node& n) { nccl.answers = n.int32(1); });
  node.required("communicators", [&](const Node& list) {
    list.each(kMaxCommunicators, [&](const Node& n) {
      n.require_object();
      NcclCommunicator& communicator = nccl.communicators.emplace_back();
      n.required("hash", [&](const Node& v) { communicator.hash = v.text(); });
      n.optional("secondary_hash", [&](const Node& v) { communicator.secondary_hash = v.text(); });
      n.optional("size", [&](const Node& v) { communicator.size = v.int32(0); });
      n.required("members", [&](const Node& members) {
        members.each(kMaxRanks, [&](const Node& v) { communicator.members.push_back(read_nccl_member(v)); });
      });
      n.optional("missing", [&](const Node& members) {
        members.each(kMaxRanks, [&](const Node& v) { communicator.missing.push_back(read_nccl_member(v)); });
      });
    });
  });
  return nccl;
}

KernelKill read_kernel_kill(const Node& node) {
  node.require_object();
  KernelKill kill;
  node.optional("host", [&](const Node& n) { kill.host = n.text(); });
  node.optional("pid", [&](const Node& n) { kill.pid = n.int32(0); });
  node.optional("name", [&](const Node& n) { kill.name = n.text(); });
  node.required("cause", [&](const Node& n) { kill.cause = n.word(kKernelKillWords); });
  node.optional("at", [&](const Node& n) { kill.at = n.text(); });
  node.optional("text", [&](const Node& n) { kill.text = n.text(); });
  return kill;
}

JobSnapshot read_job(const JsonValue& document) {
  const Node root(document, nullptr, "");
  root.require_object();
  JobSnapshot job;
  root.required("schema", [&](const Node& n) {
    const std::int64_t schema = n.integer(0, INT_MAX);
    if (schema != 1)
      n.fail_with(fmt::format("version {} of the report format; this program reads version 1", schema),
                  ErrorCode::kUnsupported);
  });
  root.optional("tool", [&](const Node& n) {
    n.require_object();
    n.optional("version", [&](const Node& v) { job.tool_version = v.text(); });
  });
  root.required("captured_at", [&](const Node& n) { job.captured_at = n.text(); });
  root.optional("elapsed_ms", [&](const Node& n) { job.elapsed_ms = n.real(); });
  PartReader parts(job.frames);
  root.required("ranks", [&](const Node& list) {
    list.each(kMaxRanks, [&](const Node& n) { job.ranks.push_back(read_rank(n, parts)); });
  });
  root.optional("not_looked_at", [&](const Node& list) {
    list.each(kMaxRanks, [&](const Node& n) {
      n.require_object();
      UnseenRank unseen;
      n.required("rank", [&](const Node& v) { unseen.rank = v.int32(0); });
      n.optional("host", [&](const Node& v) { unseen.host = v.text(); });
      n.optional("pid", [&](const Node& v) { unseen.pid = v.int32(0); });
      n.optional("identity", [&](const Node& v) { unseen.pid_space = read_pid_space(v); });
      job.not_looked_at.push_back(std::move(unseen));
    });
  });
  root.optional("kernel_log", [&](const Node& list) {
    list.each(kMaxRanks, [&](const Node& n) { job.kernel_log.push_back(read_kernel_kill(n)); });
  });
  read_nodes(root, job);
  root.optional("nccl", [&](const Node& n) { job.nccl = read_nccl(n); });
  return job;
}

tl::unexpected<Error> defect(ErrorCode code, const std::string& subject, std::string what) {
  Error error;
  error.code = code;
  error.subject = subject;
  error.what = std::move(what);
  return fail(std::move(error));
}

Result<JobSnapshot> read_report(const Result<JsonDocument>& document, const std::string& subject) {
  if (!document) {
    const bool malformed = document.error().code == ErrorCode::kMalformed;
    return defect(document.error().code, subject, (malformed ? "not a JSON report: " : "") + document.error().what);
  }
  try {
    return read_job(document->root());
  } catch (const Defect& found) {
    return defect(found.code, subject, found.what);
  }
}

}  // namespace

Result<JobSnapshot> read_json_report(std::string_view text, const std::string& subject) {
  if (text.size() > kMaxBytes)
    return defect(ErrorCode::kLimit, subject, fmt::format("{} bytes, more than {}", text.size(), kMaxBytes));
  return read_report(read_text_or_compact_form(text, kMaxReportDepth, subject), subject);
}

}  // namespace rankstacks::report
