// Writes the JSON report (docs/json.md). Each distinct frame is rendered once and its text is repeated, because threads
// share most of their frames.
#include <algorithm>
#include <cstdint>
#include <tuple>

#include "report/json_environment.h"
#include "report/json_flight_record.h"
#include "report/json_frame.h"
#include "report/json_gpu.h"
#include "report/json_missing_files.h"
#include "report/json_nodes.h"
#include "report/json_signal.h"
#include "report/json_text.h"
#include "report/json_words.h"
#include "report/report.h"

namespace rankstacks::report {
namespace {

class Writer {
 public:
  Writer(const JobSnapshot& job, const analyzers::Analysis& analysis)
      : job_(job), analysis_(analysis), frame_text_(job.frames.size()), json_(guess_size(job)) {}

  std::string write() {
    json_.open_document(job_.tool_version);
    json_.field("captured_at", job_.captured_at);
    json_.field("elapsed_ms", job_.elapsed_ms);
    json_.key("ranks");
    json_.open('[', true);
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) rank(r);
    json_.close();
    if (!job_.not_looked_at.empty()) not_looked_at();
    if (!job_.kernel_log.empty()) kernel_log();
    write_nodes(json_, job_);
    if (job_.nccl) nccl(*job_.nccl);
    json_.key("clusters");
    json_.open('[', true);
    for (const analyzers::Cluster& c : analysis_.clusters) cluster(c);
    json_.close();
    if (const auto clusters = analyzers::gpu_clusters(job_); !clusters.empty())
      write_gpu_clusters(json_, clusters, [this](std::size_t rank) { label(rank); });
    json_.key("verdict");
    verdict();
    json_.key("waits");
    wait_graph();
    write_differences(json_, job_, analysis_.differences, [this](std::size_t rank) { label(rank); });
    json_.close();
    return json_.take() + "\n";
  }

 private:
  static std::size_t guess_size(const JobSnapshot& job) {
    std::size_t frames = 0;
    for (const RankSnapshot& rank : job.ranks)
      for (const ThreadSnapshot& thread : rank.threads) frames += thread.frames.size() + 3;
    return frames * 256 + 4096;
  }

  const std::string& frame_text(FrameId id) {
    std::string& text = frame_text_[id];
    if (text.empty()) text = json_of_frame(job_.frames[id]);
    return text;
  }

  void frames(const std::vector<FrameId>& ids) {
    json_.key("frames");
    json_.open('[', true);
    for (const FrameId id : ids) json_.raw(frame_text(id));
    json_.close();
  }

  // A rank's number, or "host:pid".
  void label(std::size_t index) {
    const RankSnapshot& rank = job_.ranks[index];
    if (rank.kind == RankKind::kRank && rank.rank) json_.number(*rank.rank);
    else json_.string(rank_label(rank));
  }

  void rank(std::size_t index) {
    const RankSnapshot& rank = job_.ranks[index];
    json_.open('{', true);
    json_.field("rank", rank.rank);
    json_.field("world_size", rank.world_size);
    json_.field("local_rank", rank.local_rank);
    if (rank.local_world_size) json_.field("local_world_size", rank.local_world_size);
    coordinates(rank.coordinates);
    json_.field("kind", std::string(word_of(kRankKindWords, rank.kind)));
    json_.field("parent", rank.parent);
    json_.field("host", rank.host);
    json_.key("pid"), json_.number(rank.pid);
    identity(rank);
    json_.field("source", std::string(word_of(kSourceWords, rank.source)));
    json_.field("captured_offset_ms", rank.captured_offset_ms);
    json_.field("path", rank.path);
    if (rank.dumped_by) json_.field("dumped_by", rank.dumped_by);
    json_.field("executable", rank.executable);
    strings("command", rank.command);
    json_.key("python");
    if (rank.python_version) {
      json_.open('{');
      json_.field("version", rank.python_version->empty() ? std::nullopt : rank.python_version);
      json_.close();
    } else {
      json_.null();
    }
    json_.field("status", std::string(word_of(kStatusWords, rank.status)));
    json_.key("problems");
    json_.open('[', true);
    for (const Problem& problem : rank.problems) {
      json_.open('{');
      json_.field("code", std::string(word_of(kProblemCodeWords, problem.code)));
      json_.field("message", problem.message);
      json_.field("hint", problem.hint);
      json_.close();
    }
    json_.close();
    json_.key("activity");
    activity(analysis_.activities[index]);
    json_.key("method");
    rank.method ? json_.string(word_of(kReadMethodWords, *rank.method)) : json_.null();
    json_.field("stopped_ms", rank.stopped_ms);
    json_.key("threads_stopped");
    rank.threads_stopped ? json_.number(*rank.threads_stopped) : json_.null();
    json_.key("signal");
    rank.signal ? write_signal(json_, *rank.signal) : json_.null();
    if (rank.abort_message) json_.field("abort_message", *rank.abort_message);
    if (rank.faulthandler) write_faulthandler(json_, *rank.faulthandler);
    if (rank.oom_kills) json_.key("oom_kills"), json_.number(*rank.oom_kills);
    json_.key("threads");
    json_.open('[', true);
    for (std::size_t t = 0; t < rank.threads.size(); ++t) thread(index, t);
    json_.close();
    if (!rank.gpus.empty())
      write_gpus(json_, rank.gpus, [this](FrameId id) -> const std::string& { return frame_text(id); });
    if (rank.flight_record) write_flight_record(json_, *rank.flight_record);
    write_environment(json_, rank);
    write_missing_files(json_, rank);
    json_.close();
  }

  void identity(const RankSnapshot& rank) {
    if (!rank.pid_space) return;
    json_.key("identity");
    json_.open('{');
    pid_space(*rank.pid_space);
    if (rank.start_ticks != 0) json_.key("start_ticks"), json_.number(rank.start_ticks);
    if (rank.own_pid) {
      json_.key("own_pid_namespace"), json_.number(rank.own_pid->pid_namespace);
      json_.key("own_pid"), json_.number(rank.own_pid->pid);
    }
    json_.close();
  }

  void pid_space(const PidSpace& space) {
    json_.field("boot_id", space.boot_id);
    json_.key("pid_namespace"), json_.number(space.pid_namespace);
  }

  void identity(const std::optional<PidSpace>& space) {
    if (!space) return;
    json_.key("identity");
    json_.open('{');
    pid_space(*space);
    json_.close();
  }

  void coordinates(const std::optional<Coordinates>& coordinates) {
    json_.key("coordinates");
    if (!coordinates) return json_.null();
    json_.open('{');
    for (const auto& [axis, value] : coordinates->axes) json_.foreign_key(axis), json_.number(value);
    json_.close();
    json_.field("coordinates_from", coordinates->from);
  }

  void activity(const std::optional<analyzers::RankActivity>& activity) {
    if (!activity) return json_.null();
    json_.open('{');
    json_.field("kind", activity->kind);
    json_.field("summary", activity->summary);
    json_.field("operation", activity->operation);
    json_.field("group", activity->group);
    json_.field("peer", activity->peer);
    json_.field("moves", activity->moves);
    json_.key("tid"), json_.number(job_.ranks[activity->evidence.rank].threads[activity->evidence.thread].tid);
    json_.key("frame"), json_.number(activity->evidence.frame);
    json_.close();
  }

  void not_looked_at() {
    json_.key("not_looked_at");
    json_.open('[', true);
    for (const UnseenRank& unseen : job_.not_looked_at) {
      json_.open('{');
      json_.key("rank"), json_.number(unseen.rank);
      json_.field("host", unseen.host);
      json_.key("pid"), json_.number(unseen.pid);
      identity(unseen.pid_space);
      json_.close();
    }
    json_.close();
  }

  void kernel_log() {
    json_.key("kernel_log");
    json_.open('[', true);
    for (const KernelKill& kill : job_.kernel_log) {
      json_.open('{');
      json_.field("host", kill.host);
      json_.key("pid"), json_.number(kill.pid);
      json_.field("name", kill.name);
      json_.field("cause", std::string(word_of(kKernelKillWords, kill.cause)));
      json_.field("at", kill.at);
      json_.field("text", kill.text);
      json_.close();
    }
    json_.close();
  }

  void nccl(const NcclStatus& status) {
    json_.key("nccl");
    json_.open('{', true);
    json_.field("version", status.version);
    json_.key("answers"), json_.number(status.answers);
    json_.key("communicators");
    json_.open('[', true);
    for (const NcclCommunicator& communicator : status.communicators) {
      json_.open('{', true);
      json_.field("hash", communicator.hash);
      json_.field("secondary_hash", communicator.secondary_hash);
      json_.key("size"), json_.number(communicator.size);
      json_.key("members");
      json_.open('[', true);
      for (const NcclMember& member : communicator.members) nccl_member(member, true);
      json_.close();
      json_.key("missing");
      json_.open('[', true);
      for (const NcclMember& member : communicator.missing) nccl_member(member, false);
      json_.close();
      json_.close();
    }
    json_.close();
    json_.close();
  }

  void nccl_member(const NcclMember& member, bool answered) {
    json_.open('{');
    json_.key("rank"), json_.number(member.rank);
    json_.field("host", member.host);
    json_.key("pid"), json_.number(member.pid);
    json_.key("process");
    if (member.process) {
      json_.open('{');
      json_.field("host", member.process->host);
      json_.key("pid"), json_.number(member.process->pid);
      identity(member.process->pid_space);
      json_.close();
    } else {
      json_.null();
    }
    if (answered) {
      json_.key("aborted"), json_.boolean(member.aborted);
      json_.key("finalized"), json_.boolean(member.finalized);
      json_.key("async_error"), json_.number(member.async_error);
      json_.key("launched");
      json_.open('{');
      for (const auto& [name, count] : member.launched) json_.foreign_key(name), json_.number(count);
      json_.close();
      json_.key("counts_move"), json_.boolean(member.counts_move);
    } else {
      json_.key("unresponsive"), json_.boolean(member.unresponsive);
      json_.key("dead"), json_.boolean(member.dead);
    }
    json_.close();
  }

  void strings(std::string_view name, const std::vector<std::string>& values) {
    json_.key(name);
    json_.open('[');
    for (const std::string& value : values) json_.string(value);
    json_.close();
  }

  void thread(std::size_t rank_index, std::size_t index) {
    const ThreadSnapshot& thread = job_.ranks[rank_index].threads[index];
    json_.open('{', true);
    json_.key("tid"), json_.number(thread.tid);
    json_.field("name", thread.name);
    json_.field("state", thread.state ? std::optional<std::string>(std::string(1, *thread.state)) : std::nullopt);
    json_.field("cpu_ms", thread.cpu_ms);
    json_.field("role", known::to_string(analysis_.roles[rank_index][index]));
    json_.key("cluster"), json_.number(analysis_.cluster_of[rank_index][index]);
    if (thread.python_thread) {
      json_.key("python_thread");
      json_.open('{');
      json_.key("id"), json_.hex(thread.python_thread->id);
      json_.field("name", thread.python_thread->name);
      json_.close();
    }
    json_.key("gil");
    thread.gil ? json_.string(word_of(kGilWords, *thread.gil)) : json_.null();
    if (thread.collecting) json_.key("collecting"), json_.boolean(true);
    json_.key("syscall");
    if (thread.syscall) {
      json_.open('{');
      json_.field("name", thread.syscall->name);
      json_.key("number"), json_.number(thread.syscall->number);
      json_.field("fd", thread.syscall->fd);
      json_.field("fd_target", thread.syscall->fd_target);
      other_ends(*thread.syscall);
      json_.close();
    } else {
      json_.null();
    }
    if (thread.exception) {
      json_.key("exception");
      json_.open('{');
      cxx_exception(*thread.exception);
      json_.close();
    }
    if (thread.handles_cxx) handled_cxx("handles_cxx", *thread.handles_cxx);
    if (thread.raises_cxx) handled_cxx("raises_cxx", *thread.raises_cxx);
    if (thread.handles) python_exception("handles", *thread.handles);
    if (thread.raises) python_exception("raises", *thread.raises);
    if (thread.lock_owner) json_.key("lock_owner"), json_.number(*thread.lock_owner);
    if (thread.python_lock) python_lock(*thread.python_lock);
    if (thread.joins) json_.key("joins"), json_.number(*thread.joins);
    if (thread.kernel_place) {
      if (!thread.kernel_place->wchan.empty()) json_.field("wchan", thread.kernel_place->wchan);
      if (!thread.kernel_place->stack.empty()) strings("kernel_stack", thread.kernel_place->stack);
    }
    json_.field("stack_end", std::string(word_of(kStackEndWords, thread.stack_end)));
    if (thread.omitted) omitted("omitted_frames", *thread.omitted);
    if (!thread.variables.empty()) variables(thread.variables);
    if (thread.motion) motion(*thread.motion);
    frames(thread.frames);
    json_.close();
  }

  void python_lock(const PythonLock& lock) {
    json_.key("python_lock");
    json_.open('{');
    json_.field("type", std::string(word_of(kPythonLockWords, lock.kind)));
    if (lock.name) json_.field("name", *lock.name);
    if (lock.owner) json_.key("owner"), json_.number(*lock.owner);
    json_.close();
  }

  void cxx_exception(const CxxException& exception) {
    json_.field("type", exception.type);
    json_.field("what", exception.what);
    if (exception.cause) json_.field("cause", std::string(word_of(kExceptionCauseWords, *exception.cause)));
  }

  void handled_cxx(std::string_view key, const HandledCxxException& handled) {
    json_.key(key);
    json_.open('{');
    cxx_exception(handled.exception);
    json_.field("frame", handled.frame);
    json_.close();
  }

  void python_exception(std::string_view key, const HandledException& handled) {
    json_.key(key);
    json_.open('{');
    json_.field("type", handled.type);
    json_.field("message", handled.message);
    json_.key("frame");
    handled.frame ? json_.number(*handled.frame) : json_.null();
    for (const auto& [name, frame] : {std::pair{"handler", handled.handler}, {"raised", handled.raised}}) {
      json_.key(name);
      frame ? json_.raw(frame_text(*frame)) : json_.null();
    }
    if (!handled.traceback.empty()) traceback(handled.traceback);
    if (handled.traceback_omitted) omitted("traceback_omitted", *handled.traceback_omitted);
    if (!handled.chain.empty()) chain(handled.chain);
    if (handled.cause) json_.field("cause", std::string(word_of(kExceptionCauseWords, *handled.cause)));
    json_.close();
  }

  void chain(const std::vector<ChainedException>& exceptions) {
    json_.key("chain");
    json_.open('[');
    for (const ChainedException& one : exceptions) {
      json_.open('{');
      json_.field("link", std::string(word_of(kExceptionLinkWords, one.link)));
      json_.field("type", one.type);
      json_.field("message", one.message);
      json_.key("raised");
      one.raised ? json_.raw(frame_text(*one.raised)) : json_.null();
      json_.close();
    }
    json_.close();
  }

  void traceback(const std::vector<FrameId>& ids) {
    json_.key("traceback");
    json_.open('[');
    for (const FrameId id : ids) json_.raw(frame_text(id));
    json_.close();
  }

  void omitted(std::string_view key, const OmittedFrames& frames) {
    json_.key(key);
    json_.open('{');
    json_.key("at"), json_.number(frames.at);
    json_.key("count"), json_.number(frames.count);
    json_.close();
  }

  void other_ends(const SyscallInfo& call) {
    if (!call.others.empty()) {
      json_.key("other_ends");
      json_.open('[');
      for (const OtherEnd& end : call.others) {
        json_.open('{');
        json_.key("pid"), json_.number(end.pid);
        json_.field("command", end.command.empty() ? std::nullopt : std::optional(end.command));
        json_.field("kind", std::string(word_of(kEndKindWords, end.kind)));
        json_.close();
      }
      json_.close();
    }
    if (call.database) json_.field("database", *call.database);
    if (call.own_end) json_.key("own_end"), json_.boolean(true);
    if (call.other_host) json_.field("other_host", *call.other_host);
    if (call.listens) json_.key("listens"), json_.boolean(true);
  }

  void variables(const std::vector<FrameVariables>& all) {
    json_.key("variables");
    json_.open('[');
    for (const FrameVariables& v : all) {
      json_.open('{');
      json_.key("frame"), json_.number(v.frame);
      json_.key("numbers");
      json_.open('{');
      for (const auto& [name, value] : v.numbers) json_.foreign_key(name), json_.number(value);
      json_.close();
      if (v.loops > 0) json_.key("in_loop"), json_.boolean(true);
      if (v.loops > 1) json_.key("loops"), json_.number(v.loops);
      if (v.group) {
        json_.key("group");
        json_.open('{');
        json_.field("name", v.group->name);
        if (!v.group->description.empty()) json_.field("description", v.group->description);
        json_.key("ranks");
        json_.open('[');
        for (const int rank : v.group->ranks) json_.number(rank);
        json_.close();
        json_.close();
      }
      json_.close();
    }
    json_.close();
  }

  void motion(const Motion& motion) {
    json_.key("motion");
    json_.open('{');
    json_.key("looks"), json_.number(motion.samples);
    json_.key("places"), json_.number(motion.places);
    json_.key("moved"), json_.boolean(motion.moved);
    json_.key("travelled"), json_.boolean(motion.travelled);
    if (motion.in_one_function) json_.key("in_one_function"), json_.boolean(true);
    json_.key("counted"), json_.boolean(motion.counted);
    json_.key("left_wait"), json_.boolean(motion.left_wait);
    if (motion.span_ms > 0) {
      json_.key("cpu_ms"), json_.number(motion.cpu_ms);
      json_.key("runs"), json_.number(motion.runs);
      json_.key("span_ms"), json_.number(motion.span_ms);
    }
    json_.close();
  }

  void cluster(const analyzers::Cluster& cluster) {
    json_.open('{', true);
    json_.key("id"), json_.number(cluster.id);
    json_.field("role", known::to_string(cluster.role));
    json_.key("ranks");
    json_.open('[');
    // Numbers ascending, then processes without a number by host and pid (in the order of the job, children come after
    // their ranks).
    std::vector<std::size_t> ranks = cluster.ranks;
    std::stable_sort(ranks.begin(), ranks.end(), [&](std::size_t a, std::size_t b) {
      const RankSnapshot &x = job_.ranks[a], &y = job_.ranks[b];
      const bool x_numbered = x.rank && x.kind == RankKind::kRank, y_numbered = y.rank && y.kind == RankKind::kRank;
      if (x_numbered != y_numbered) return x_numbered;
      return x_numbered ? *x.rank < *y.rank : std::tie(x.host, x.pid) < std::tie(y.host, y.pid);
    });
    for (const std::size_t r : ranks) label(r);
    json_.close();
    json_.key("threads"), json_.number(cluster.members.size());
    json_.key("odd"), json_.boolean(cluster.odd);
    frames(cluster.frames);
    json_.close();
  }

  void verdict() {
    const analyzers::Verdict& verdict = analysis_.verdict;
    json_.open('{', true);
    json_.field("status", std::string(analyzers::to_string(verdict.status)));
    json_.field("summary", verdict.summary);
    json_.key("reference");
    verdict.reference.empty() ? json_.null() : json_.string(verdict.reference);
    json_.key("suspects");
    json_.open('[', true);
    for (const analyzers::Suspect& suspect : verdict.suspects) {
      json_.open('{', true);
      json_.key("rank");
      suspect_rank(suspect);
      json_.field("reason", std::string(analyzers::to_string(suspect.reason)));
      json_.key("confidence"), json_.number(suspect.confidence);
      json_.field("summary", suspect.summary);
      json_.field("advice", suspect.advice);
      json_.key("evidence");
      json_.open('[', true);
      for (const analyzers::Evidence& evidence : suspect.evidence) {
        json_.open('{');
        json_.key("rank"), label(evidence.rank);
        json_.key("tid"), json_.number(job_.ranks[evidence.rank].threads[evidence.thread].tid);
        json_.key("frame"), json_.number(evidence.frame);
        json_.close();
      }
      json_.close();
      json_.close();
    }
    json_.close();
    chains(verdict);
    candidates(verdict);
    if (!verdict.differences.empty()) {
      json_.key("differences");
      json_.open('[');
      for (const std::size_t index : verdict.differences) json_.number(index);
      json_.close();
    }
    json_.close();
  }

  void suspect_rank(const analyzers::Suspect& suspect) {
    suspect.rank == SIZE_MAX ? json_.number(suspect.missing_rank) : label(suspect.rank);
  }

  // The members that describe a node of the graph, both in a chain's link and in the graph itself.
  void node(const analyzers::WaitNode& node) {
    json_.key("rank");
    if (node.rank) label(*node.rank);
    else if (node.kind == analyzers::NodeKind::kMissingRank) json_.number(node.missing_rank);
    else json_.null();
    json_.key("tid");
    if (node.rank && node.thread) json_.number(job_.ranks[*node.rank].threads[*node.thread].tid);
    else json_.null();
    json_.field("text", node.text);
  }

  void chains(const analyzers::Verdict& verdict) {
    json_.key("chains");
    json_.open('[', true);
    for (const analyzers::WaitChain& chain : verdict.chains) {
      json_.open('{', true);
      json_.key("suspect");
      suspect_rank(verdict.suspects[chain.suspect]);
      json_.key("from");
      chain.from ? label(*chain.from) : json_.null();
      json_.key("links");
      json_.open('[', true);
      for (const analyzers::WaitChain::Link& link : chain.links) {
        const analyzers::WaitNode& of = analysis_.waits.nodes()[link.node];
        json_.open('{');
        json_.field("node", std::string(analyzers::to_string(of.kind)));
        node(of);
        json_.key("evidence");
        link.evidence ? json_.string(std::string(analyzers::to_string(*link.evidence))) : json_.null();
        json_.close();
      }
      json_.close();
      json_.close();
    }
    json_.close();
  }

  void candidates(const analyzers::Verdict& verdict) {
    json_.key("candidates");
    json_.open('[', true);
    for (const analyzers::Candidate& candidate : verdict.candidates) {
      json_.open('{');
      json_.key("rank"), label(candidate.rank);
      json_.key("reason");
      candidate.reason == analyzers::Reason::kNone ? json_.null()
                                                   : json_.string(std::string(analyzers::to_string(candidate.reason)));
      json_.field("would_decide", candidate.would_decide);
      json_.field("summary", candidate.summary);
      json_.close();
    }
    json_.close();
  }

  void wait_graph() {
    json_.open('{', true);
    json_.key("nodes");
    json_.open('[', true);
    for (const analyzers::WaitNode& one : analysis_.waits.nodes()) {
      json_.open('{');
      json_.field("kind", std::string(analyzers::to_string(one.kind)));
      node(one);
      json_.close();
    }
    json_.close();
    json_.key("edges");
    json_.open('[', true);
    for (const analyzers::WaitEdge& edge : analysis_.waits.edges()) {
      json_.open('{');
      json_.key("from"), json_.number(edge.from);
      json_.key("to"), json_.number(edge.to);
      json_.field("evidence", std::string(analyzers::to_string(edge.evidence)));
      json_.field("certainty", std::string(analyzers::to_string(edge.certainty)));
      json_.close();
    }
    json_.close();
    json_.close();
  }

  const JobSnapshot& job_;
  const analyzers::Analysis& analysis_;
  std::vector<std::string> frame_text_;  // by FrameId; empty: not yet rendered
  JsonText json_;
};

}  // namespace

std::string json_report(const JobSnapshot& job, const analyzers::Analysis& analysis) {
  return Writer(job, analysis).write();
}

std::string json_part(const JobSnapshot& job, analyzers::Analysis analysis) {
  analysis.clusters.clear();
  analysis.verdict = {};
  analysis.waits = {};
  analysis.differences.clear();
  return json_report(job, analysis);
}

}  // namespace rankstacks::report
