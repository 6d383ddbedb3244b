#include "capture/preparer.h"

#include <fmt/format.h>
#include <algorithm>
#include <memory>
#include <set>

#include "base/text.h"
#include "base/unattended.h"
#include "target/proc.h"

namespace rankstacks::capture {
namespace {

// Where /proc has what depends on a process's memory, which a main thread that has ended does not have any more, while
// the other threads live on.
std::string place_of_memory(Pid pid) {
  constexpr std::size_t kMaxTasks = 256;
  std::string place = fmt::format("/proc/{}", pid);
  const auto leader = target::proc::stat_of(pid);
  if (!leader || !leader->ends() || leader->kernel_thread()) return place;
  std::size_t asked = 0;
  for (const Tid tid : target::proc::tasks_of(pid)) {
    if (++asked > kMaxTasks) break;
    if (const auto stat = target::proc::stat_of(pid, tid); stat && !stat->ends())
      return fmt::format("{}/task/{}", place, tid);
  }
  return place;
}

bool is_python(Pid pid) {
  const auto exe = target::proc::read_link(place_of_memory(pid) + "/exe");
  return exe && exe->substr(exe->rfind('/') + 1).starts_with("python");
}

// Reading the current environment is only worth it for a program that sets its own environment: in practice, Python's
// multiprocessing.
bool may_differ(Pid pid) { return is_python(pid); }

}  // namespace

Preparer::Initial Preparer::read_initial(Pid pid) {
  Initial initial;
  const std::string place = place_of_memory(pid);
  if (const auto text = target::proc::read_file(place + "/environ"))
    initial.environment = target::proc::parse_environment(target::proc::split_nul(*text));
  constexpr std::size_t kLongestTitle = 4096;
  if (const auto command = target::proc::read_file(place + "/cmdline", kLongestTitle))
    initial.title = command->substr(0, command->find('\0'));
  return initial;
}

void Preparer::read_ahead(const std::vector<Pid>& pids) {
  std::vector<Pid> fresh;
  for (const Pid pid : pids)
    if (!initial_.contains(pid) && !silent_.contains(pid)) fresh.push_back(pid);
  if (fresh.empty()) return;
  struct Asked {
    std::vector<Pid> pids;
    std::vector<Initial> read;
  };
  const auto work = std::make_shared<Asked>(Asked{fresh, std::vector<Initial>(fresh.size())});
  const auto outcomes =
      Unattended{[work](std::size_t i) { work->read[i] = read_initial(work->pids[i]); }, limit_, {}, silence_}.run(
          fresh.size());
  std::vector<Pid> deeper;
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    if (outcomes[i].came_back) initial_.emplace(fresh[i], std::move(work->read[i]));
    else
      silent_.emplace(
          fresh[i], silent_process(fresh[i], "reading its environment", outcomes[i].file, std::min(limit_, silence_)));
    if (outcomes[i].came_back && may_differ(fresh[i])) deeper.push_back(fresh[i]);
  }
  prepare(deeper);
}

std::map<std::string, std::string> Preparer::environment(Pid pid) {
  read_ahead({pid});
  const auto initial = initial_.find(pid);
  if (initial == initial_.end()) return {};
  const auto now = prepared_.find(pid);
  if (now == prepared_.end()) return initial->second.environment;
  auto all = initial->second.environment;
  for (const auto* later : {&now->second.environment, &now->second.rank_values})
    for (const auto& [name, value] : *later) all[name] = value;
  return all;
}

std::string Preparer::title(Pid pid) {
  read_ahead({pid});
  const auto initial = initial_.find(pid);
  return initial == initial_.end() ? std::string() : initial->second.title;
}

ProcessFacts Preparer::facts() {
  return {[this](Pid pid) { return environment(pid); },
          [this](Pid pid) { return is_wrapper(pid); },
          [this](Pid pid) { return can_train(pid); },
          [this](Pid pid) { return title(pid); },
          [this](const std::vector<Pid>& pids) { read_ahead(pids); },
          [this](Pid pid) { return place(pid); }};
}

bool Preparer::is_wrapper(Pid pid) const {
  const ProcessEntry* entry = table_.find(pid);
  if (entry == nullptr || entry->threads != 1 || table_.children(pid).size() != 1 || is_python(pid)) return false;
  const auto call = read(fmt::format("/proc/{}/syscall", pid));
  // wait4, waitid, rt_sigsuspend: shells and wrappers wait for their child in these.
  return call && (call->starts_with("61 ") || call->starts_with("247 ") || call->starts_with("130 "));
}

// Whether it has loaded a library with which ranks communicate.
bool Preparer::can_train(Pid pid) const {
  const auto maps = read(place_of_memory(pid) + "/maps");
  return maps && (contains(*maps, "/libtorch") || contains(*maps, "/libmpi") || contains(*maps, "/libnccl") ||
                  contains(*maps, "/jaxlib/") || contains(*maps, "/libtensorflow") || contains(*maps, "/libpaddle") ||
                  contains(*maps, "/libcuda.so"));
}

void Preparer::prepare(const std::vector<Pid>& pids) {
  std::vector<Pid> fresh;
  for (const Pid pid : pids) {
    if (prepared_.contains(pid)) continue;
    PreparedTarget& p = prepared_[pid];
    if (const auto silent = silent_.find(pid); silent != silent_.end()) p.error = silent->second;
    else if (!(p.error = target::not_a_target(pid))) fresh.push_back(pid);
  }
  auto prepared = prepare_targets(fresh, images_, Preparing::kEverything, limit_, silence_);
  for (std::size_t i = 0; i < fresh.size(); ++i) prepared_[fresh[i]] = std::move(prepared[i]);
}

PreparedTarget& Preparer::prepared(Pid pid) {
  prepare({pid});
  return prepared_.at(pid);
}

std::vector<std::vector<std::string>> Preparer::commands(const std::vector<Pid>& pids) const {
  constexpr std::size_t kLongest = 4096;  // of a command; it is shown in a line
  struct Commands {
    std::vector<Pid> pids;
    std::vector<std::vector<std::string>> read;
  };
  const auto work = std::make_shared<Commands>(Commands{pids, std::vector<std::vector<std::string>>(pids.size())});
  const auto outcomes = Unattended{[work](std::size_t i) {
                                     const auto text =
                                         target::proc::read_file(place_of_memory(work->pids[i]) + "/cmdline", kLongest);
                                     if (text) work->read[i] = target::proc::split_nul(*text);
                                   },
                                   kMinTimeout,
                                   {},
                                   silence_}
                            .run(pids.size());
  std::vector<std::vector<std::string>> commands(pids.size());
  for (std::size_t i = 0; i < pids.size(); ++i)
    if (outcomes[i].came_back) commands[i] = std::move(work->read[i]);
  return commands;
}

const ProcessPlace& Preparer::place(Pid pid) {
  const auto [it, fresh] = places_.try_emplace(pid);
  if (!fresh) return it->second;
  it->second.user = target::proc::status_number(pid, "Uid");
  it->second.network = target::proc::read_link(fmt::format("/proc/{}/ns/net", pid)).value_or("");
  it->second.cgroups = target::proc::read_file(fmt::format("/proc/{}/cgroup", pid)).value_or("");
  it->second.adopts = target::proc::own_pid_of(pid) == 1;
  return it->second;
}

std::vector<PlannedTarget> Preparer::silent_ranks(const std::vector<PlannedTarget>& plan) const {
  std::set<std::string> names;
  std::set<Pid> planned;
  for (const PlannedTarget& target : plan) {
    planned.insert(target.pid);
    const ProcessEntry* entry = table_.find(target.pid);
    if (entry != nullptr && target.kind == RankKind::kRank) names.insert(entry->name);
  }
  std::vector<PlannedTarget> silent;
  for (const auto& [pid, why] : silent_) {
    const ProcessEntry* entry = table_.find(pid);
    if (entry != nullptr && names.contains(entry->name) && !planned.contains(pid))
      silent.push_back({pid, RankKind::kRank, std::nullopt, {}});
  }
  return silent;
}

std::optional<std::string> Preparer::read(const std::string& path) const {
  auto text = unattended<Result<std::string>>([path] { return target::proc::read_file(path); }, limit_, silence_);
  return text && *text ? std::optional(std::move(**text)) : std::nullopt;
}

}  // namespace rankstacks::capture
