#include "redact/redact.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "known/settings.h"
#include "model/process_key.h"
#include "model/rank_set.h"
#include "redact/field_redaction.h"
#include "redact/local_secrets.h"
#include "redact/secret_values.h"

namespace rankstacks::redact {
namespace {

using Change = void (FieldRedaction::*)(std::string&);

// A build-id is as random as a key, and says nothing but which file it is.
bool is_build_id(std::string_view text) {
  const bool is_of_linker = text.size() == 16 || text.size() == 32 || text.size() == 40;
  return is_of_linker &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// Every string of a snapshot, one function for each struct that holds some (model/snapshot.h, model/gpu.h).
class Walk {
 public:
  explicit Walk(FieldRedaction& fields) : fields_(fields) {}

  // Fields that hold hosts come first, so that hosts are numbered by rank.
  void hosts(JobSnapshot& job) {
    for (RankSnapshot& rank : job.ranks) {
      fields_.host(rank.host);
      if (rank.pid_space) fields_.boot(rank.pid_space->boot_id);
    }
    for (UnseenRank& unseen : job.not_looked_at) {
      fields_.host(unseen.host);
      if (unseen.pid_space) fields_.boot(unseen.pid_space->boot_id);
    }
    for (NodeSnapshot& node : job.nodes) fields_.host(node.name);
    for (KernelKill& kill : job.kernel_log) fields_.host(kill.host);
    if (job.nccl)
      for (NcclCommunicator& communicator : job.nccl->communicators)
        for (auto* members : {&communicator.members, &communicator.missing})
          for (NcclMember& member : *members) {
            fields_.host(member.host);
            if (!member.process) continue;
            fields_.host(member.process->host);
            if (member.process->pid_space) fields_.boot(member.process->pid_space->boot_id);
          }
  }

  // `differing`: the variables whose values mean different things. All values that ranks have for another one mean the
  // same, although each may name its own rank (analyzers/own_value.h).
  void variables(JobSnapshot& job, const std::set<std::string>& differing) {
    std::map<std::string, std::string> first;
    for (RankSnapshot& rank : job.ranks) {
      if (!rank.environment) continue;
      for (auto& [name, value] : rank.environment->variables) {
        const bool own =
            rank.kind == RankKind::kChild || differing.contains(name) || known::own_value_rule(name) != nullptr;
        const std::string meaning = own ? value : first.try_emplace(name, value).first->second;
        fields_.variable(name, value, meaning);
        fields_.name(name);
      }
    }
  }

  void rest(JobSnapshot& job) {
    fields_.text(job.tool_version);
    fields_.text(job.captured_at);
    for (RankSnapshot& rank : job.ranks) of_rank(rank);
    for (NodeSnapshot& node : job.nodes) {
      fields_.name(node.engine);
      fields_.text(node.said);
      fields_.text(node.hint);
    }
    for (KernelKill& kill : job.kernel_log) {
      fields_.thread_name(kill.name);
      fields_.text(kill.at);
      fields_.message(kill.text);
    }
    if (job.nccl) of_nccl(*job.nccl);
    of_frames(job);
  }

 private:
  void each(Change change, std::optional<std::string>& value) {
    if (value) (fields_.*change)(*value);
  }
  void each(Change change, std::vector<std::string>& values) {
    for (std::string& value : values) (fields_.*change)(value);
  }

  void of_rank(RankSnapshot& rank) {
    of_locals(rank);
    each(&FieldRedaction::path, rank.path);
    each(&FieldRedaction::name, rank.dumped_by);
    each(&FieldRedaction::path, rank.executable);
    fields_.command(rank.command);
    each(&FieldRedaction::name, rank.python_version);
    for (Problem& problem : rank.problems) {
      fields_.text(problem.message);
      each(&FieldRedaction::text, problem.hint);
      fields_.path(problem.subject);
    }
    if (rank.coordinates) {
      fields_.text(rank.coordinates->from);
      for (auto& [axis, place] : rank.coordinates->axes) fields_.name(axis);
    }
    if (rank.signal) of_signal(*rank.signal);
    if (rank.faulthandler)
      for (auto* signals : {&rank.faulthandler->signals, &rank.faulthandler->called})
        for (std::string& signal : *signals) fields_.name(signal);
    each(&FieldRedaction::message, rank.abort_message);
    for (ThreadSnapshot& thread : rank.threads) of_thread(thread);
    for (GpuSnapshot& gpu : rank.gpus) of_gpu(gpu);
    if (rank.flight_record) of_record(*rank.flight_record);
    for (LoadedModule& module : rank.modules.edit()) {
      fields_.path(module.path);
      fields_.name(module.component);
      fields_.version(module.version);
      fields_.version(module.cuda);
      if (!is_build_id(module.build_id)) fields_.name(module.build_id);
    }
    if (rank.environment) of_environment(*rank.environment);
    for (MissingFile& file : rank.missing_files) {
      fields_.path(file.path);
      fields_.version(file.package);
      if (!is_build_id(file.build_id)) fields_.name(file.build_id);
    }
  }

  // Before the rank's command and environment, whose secrets are known as long as they are there.
  void of_locals(RankSnapshot& rank) {
    if (std::all_of(rank.threads.begin(), rank.threads.end(),
                    [](const ThreadSnapshot& thread) { return thread.locals.empty(); }))
      return;
    std::map<std::string, std::string> variables;
    if (rank.environment) variables.insert(rank.environment->variables.begin(), rank.environment->variables.end());
    LocalSecrets(fields_, secret_values(variables, rank.command)).take_out(rank.threads);
  }

  void of_environment(ProcessEnvironment& environment) {
    for (std::string* value :
         {&environment.kernel, &environment.distribution, &environment.container, &environment.gpu_driver,
          &environment.cpus, &environment.cpu_nodes, &environment.memory_nodes})
      fields_.name(*value);
    for (ResourceLimit& limit : environment.limits) fields_.name(limit.name);
  }

  void of_signal(SignalInfo& signal) {
    fields_.name(signal.name);
    if (signal.sender_uid != 0u) signal.sender_uid.reset();  // a user; root is none
    if (signal.instruction) {
      for (std::string* text : {&signal.instruction->text, &signal.instruction->bytes}) fields_.name(*text);
      for (auto& [name, value] : signal.instruction->registers) fields_.name(name);
    }
    if (!signal.place) return;
    for (auto* mapping : {&signal.place->mapping, &signal.place->below, &signal.place->above}) {
      if (!*mapping) continue;
      fields_.path((*mapping)->name);
      fields_.name((*mapping)->permissions);
    }
  }

  void of_thread(ThreadSnapshot& thread) {
    fields_.thread_name(thread.name);
    if (thread.python_thread) each(&FieldRedaction::name, thread.python_thread->name);
    if (thread.syscall) of_call(*thread.syscall);
    if (thread.exception) of_cxx(*thread.exception);
    for (auto* held : {&thread.handles_cxx, &thread.raises_cxx})
      if (*held) of_cxx((*held)->exception);
    for (auto* exception : {&thread.handles, &thread.raises}) {
      if (!*exception) continue;
      fields_.name((*exception)->type);
      each(&FieldRedaction::message, (*exception)->message);
      for (ChainedException& chained : (*exception)->chain) {
        fields_.name(chained.type);
        each(&FieldRedaction::message, chained.message);
      }
    }
    if (thread.python_lock) each(&FieldRedaction::name, thread.python_lock->name);
    if (thread.kernel_place) {
      fields_.name(thread.kernel_place->wchan);
      each(&FieldRedaction::name, thread.kernel_place->stack);
    }
    if (!thread.variables.empty()) of_variables(thread.variables.edit());
  }

  void of_variables(std::vector<FrameVariables>& all) {
    for (FrameVariables& variables : all) {
      for (auto& [name, value] : variables.numbers) fields_.name(name);
      if (variables.group)
        for (std::string* value : {&variables.group->name, &variables.group->description}) fields_.name(*value);
    }
  }

  void of_cxx(CxxException& exception) {
    fields_.name(exception.type);
    each(&FieldRedaction::message, exception.what);
  }

  void of_call(SyscallInfo& call) {
    fields_.name(call.name);
    each(&FieldRedaction::file, call.fd_target);
    for (OtherEnd& end : call.others) fields_.command_line(end.command);
    each(&FieldRedaction::file, call.database);
    each(&FieldRedaction::host, call.other_host);
  }

  void of_record(FlightRecord& record) {
    fields_.path(record.path);
    fields_.name(record.version);
    for (RecordedGroup& group : record.groups) {
      for (std::string* value : {&group.name, &group.description, &group.library}) fields_.name(*value);
      for (RecordedOperation& operation : group.operations) {
        fields_.name(operation.name);
        each(&FieldRedaction::name, operation.input_types);
        each(&FieldRedaction::name, operation.output_types);
        for (RecordedFrame& frame : operation.frames) {
          fields_.name(frame.function);
          fields_.path(frame.file);
        }
      }
    }
  }

  void of_gpu(GpuSnapshot& gpu) {
    for (std::string* value : {&gpu.pci, &gpu.uuid, &gpu.name}) fields_.name(*value);
    if (gpu.health) {
      each(&FieldRedaction::name, gpu.health->throttle);
      fields_.name(gpu.health->driver);
    }
    if (!gpu.execution) return;
    each(&FieldRedaction::path, gpu.execution->path);
    for (GpuKernel& kernel : gpu.execution->kernels) each(&FieldRedaction::name, kernel.function);
    for (GpuException& exception : gpu.execution->exceptions) {
      fields_.name(exception.kind);
      each(&FieldRedaction::name, exception.kernel);
    }
  }

  void of_nccl(NcclStatus& nccl) {
    fields_.name(nccl.version);
    for (NcclCommunicator& communicator : nccl.communicators) {
      fields_.name(communicator.hash);
      fields_.name(communicator.secondary_hash);
      for (auto* members : {&communicator.members, &communicator.missing})
        for (NcclMember& member : *members)
          for (auto& [operation, count] : member.launched) fields_.name(operation);
    }
  }

  // The table is made anew: frames that differed only in what was hidden are one frame now.
  void of_frames(JobSnapshot& job) {
    FrameTable frames;
    std::vector<FrameId> renumbered;
    renumbered.reserve(job.frames.size());
    for (FrameId id = 0; id < job.frames.size(); ++id) {
      Frame frame = job.frames[id];
      each(&FieldRedaction::name, frame.function);
      each(&FieldRedaction::name, frame.qualname);
      fields_.path(frame.module);
      each(&FieldRedaction::path, frame.file);
      renumbered.push_back(frames.intern(std::move(frame)));
    }
    const auto renumber = [&](FrameId& id) { id = renumbered[id]; };
    for (RankSnapshot& rank : job.ranks) {
      for (ThreadSnapshot& thread : rank.threads) for_each_frame(thread, renumber);
      for (GpuSnapshot& gpu : rank.gpus) for_each_frame(gpu, renumber);
    }
    job.frames = std::move(frames);
  }

  FieldRedaction& fields_;
};

// What must not change by redaction: who is accused of what, and which threads are alike.
bool same_verdict(const analyzers::Analysis& a, const analyzers::Analysis& b) {
  const auto& x = a.verdict.suspects;
  const auto& y = b.verdict.suspects;
  if (a.verdict.status != b.verdict.status || a.cluster_of != b.cluster_of || x.size() != y.size()) return false;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i].rank != y[i].rank || x[i].missing_rank != y[i].missing_rank || x[i].reason != y[i].reason) return false;
  return true;
}

void redact_difference(analyzers::Difference& difference, FieldRedaction& fields) {
  const bool is_variable = difference.kind == analyzers::DifferenceKind::kVariable;
  for (analyzers::DifferenceSide& side : difference.sides) {
    if (!side.value) continue;
    if (is_variable) fields.variable(difference.name, *side.value, std::string(*side.value));
    else if (!is_build_id(*side.value)) fields.version(*side.value);
  }
  fields.version(difference.name);
}

// The analysis as it was, each sentence replaced by the words of its reason or kind; none of them holds a value of the
// job.
void tell_in_words(const JobSnapshot& job, analyzers::Analysis& analysis, FieldRedaction& fields) {
  analyzers::Verdict& verdict = analysis.verdict;
  std::string summary;
  for (analyzers::Suspect& suspect : verdict.suspects) {
    const std::string who =
        suspect.missing_rank >= 0 ? fmt::format("rank {}", suspect.missing_rank) : name_ranks(job, {suspect.rank});
    suspect.summary = analyzers::to_string(suspect.reason);
    summary += fmt::format("{}{}: {}", summary.empty() ? "" : "; ", who, suspect.summary);
    fields.text(suspect.advice);
  }
  verdict.summary = summary.empty() ? "as without redaction, whose sentences cannot be shown" : summary;
  for (analyzers::Candidate& candidate : verdict.candidates) candidate.summary = analyzers::to_string(candidate.reason);
  fields.text(verdict.reference);
  for (auto& activity : analysis.activities) {
    if (!activity) continue;
    activity->summary = activity->kind;
    if (activity->operation) fields.name(*activity->operation);
    if (activity->group) fields.name(*activity->group);
  }
  analyzers::WaitGraph waits;
  verdict.chains.clear();  // of nodes of the graph, whose texts are sentences
  analysis.waits = std::move(waits);
  for (analyzers::Cluster& cluster : analysis.clusters) {
    const auto& [rank, thread] = cluster.members.front();
    cluster.frames = job.ranks[rank].threads[thread].frames;
  }
}

}  // namespace

RedactedReports redact_together(std::vector<Report> reports, const Request& request) {
  RedactedReports result{std::move(reports), {}, {}};
  if (!request.names && !request.secrets) return result;
  FieldRedaction fields(result.names, request.names, request.secrets || request.names);
  Walk walk(fields);
  std::vector<std::set<std::string>> differing(result.reports.size());  // names of variables
  for (std::size_t i = 0; i < result.reports.size(); ++i)
    for (const analyzers::Difference& difference : result.reports[i].analysis.differences)
      if (difference.kind == analyzers::DifferenceKind::kVariable) differing[i].insert(difference.name);
  if (request.names) {
    // A first walk over copies, which meets all hosts and users.
    for (std::size_t i = 0; i < result.reports.size(); ++i) {
      JobSnapshot copy = result.reports[i].job;
      walk.hosts(copy);
      walk.rest(copy);
      walk.variables(copy, differing[i]);
    }
    fields.forget_values();
  }
  for (std::size_t i = 0; i < result.reports.size(); ++i) {
    auto& [job, analysis] = result.reports[i];
    walk.hosts(job);
    walk.rest(job);
    walk.variables(job, differing[i]);
    // What is hidden of two secrets is the same: so what differs is known from the values as they were.
    for (analyzers::Difference& difference : analysis.differences) redact_difference(difference, fields);
  }
  if (!fields.has_changed()) return result;
  result.hidden = fields.take_hidden();
  for (auto& [job, analysis] : result.reports) {
    name_apart(job);  // by what is left of the boots' ids
    analyzers::Analysis again = analyzers::analyze(job, analysis.differences);
    if (same_verdict(analysis, again)) analysis = std::move(again);
    else tell_in_words(job, analysis, fields);
  }
  return result;
}

Redacted redact(JobSnapshot job, analyzers::Analysis analysis, const Request& request) {
  std::vector<Report> one;
  one.push_back({std::move(job), std::move(analysis)});
  RedactedReports redacted = redact_together(std::move(one), request);
  Report& report = redacted.reports.front();
  return {std::move(report.job), std::move(report.analysis), std::move(redacted.names), std::move(redacted.hidden)};
}

}  // namespace rankstacks::redact
