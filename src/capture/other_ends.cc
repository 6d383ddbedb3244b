#include "capture/other_ends.h"

#include <asm/unistd_64.h>
#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/background.h"
#include "base/unattended.h"
#include "capture/find_ends.h"
#include "known/modules.h"
#include "target/holders.h"
#include "target/proc.h"

namespace rankstacks::capture {
namespace {

constexpr std::size_t kMaxThreads = 4096;  // threads blocked in calls whose other end is searched for
constexpr std::size_t kMaxNamed = 64;      // processes outside of the job whose command is read

// Commands by pid: "python3 prepare.py". If a process's memory does not answer, that process and all later ones are
// given by their name alone.
std::map<Pid, std::string> commands_of(const std::vector<Pid>& pids) {
  struct Work {
    std::vector<Pid> pids;
    std::vector<std::vector<std::string>> read;
    std::atomic<bool> some_is_silent = false;
  };
  const auto work = std::make_shared<Work>();
  work->pids = pids;
  work->read.resize(pids.size());
  const auto read = [work](std::size_t i) {
    constexpr std::size_t kMaxBytes = 4096;
    if (work->some_is_silent) return;
    const auto text = target::proc::read_file(fmt::format("/proc/{}/cmdline", work->pids[i]), kMaxBytes);
    if (text) work->read[i] = target::proc::split_nul(*text);
  };
  const auto outcomes =
      Unattended{read, kMinTimeout, [work](std::size_t, const Outcome&) { work->some_is_silent = true; }}.run(
          pids.size());
  std::map<Pid, std::string> commands;
  for (std::size_t i = 0; i < pids.size(); ++i) {
    std::string command = outcomes[i].came_back ? short_command(work->read[i]) : "";
    if (command.empty())
      if (const auto stat = target::proc::stat_of(pids[i])) command = stat->name;
    commands.emplace(pids[i], std::move(command));
  }
  return commands;
}

// A system call of a captured process.
struct PlaceOfCall {
  std::size_t rank = 0, thread = 0;
};

// The calls whose other ends are searched for, with what they wait for.
struct Asked {
  std::vector<BlockedThread> threads;
  std::vector<PlaceOfCall> calls;  // parallel
  std::vector<Pid> job;

  void add(const std::vector<RankStacks>& ranks, PlaceOfCall call, target::Awaited awaited) {
    if (calls.size() >= kMaxThreads) return;
    const RankStacks& rank = ranks[call.rank];
    threads.push_back({rank.snapshot.pid, rank.target->threads()[call.thread].tid, awaited});
    calls.push_back(call);
  }
};

struct Found {
  std::vector<FoundEnds> ends;  // parallel to the calls; empty: the search was given up
  std::map<Pid, std::string> commands;
};

Found search(const Asked& asked, const std::shared_ptr<target::SocketTables>& sockets) {
  if (asked.calls.empty()) return {};
  struct Work {
    std::vector<BlockedThread> threads;
    std::vector<Pid> job;
    std::shared_ptr<target::SocketTables> sockets;
    std::vector<FoundEnds> found;
  };
  const auto work = std::make_shared<Work>(Work{asked.threads, asked.job, sockets, {}});
  const auto outcome =
      Unattended{[work](std::size_t) { work->found = find_ends(work->threads, work->job, *work->sockets); },
                 kMinTimeout}
          .run(1);
  if (!outcome.front().came_back) return {};

  const std::set<Pid> job(work->job.begin(), work->job.end());
  std::set<Pid> outside;
  for (const FoundEnds& found : work->found)
    for (const Pid pid : found.others)
      if (!job.contains(pid) && outside.size() < kMaxNamed) outside.insert(pid);
  return {std::move(work->found), commands_of({outside.begin(), outside.end()})};
}

void fill_in_found(std::vector<RankStacks>& ranks, const Asked& asked, Found found) {
  for (std::size_t i = 0; i < std::min(asked.calls.size(), found.ends.size()); ++i) {
    auto& syscalls = ranks[asked.calls[i].rank].syscalls;
    const std::size_t thread = asked.calls[i].thread;
    if (thread >= syscalls.size() || !syscalls[thread]) continue;  // of a rank that was given up meanwhile
    FoundEnds& ends = found.ends[i];
    SyscallInfo& call = *syscalls[thread];
    call.others.clear();  // a rank whose second reading failed has them from the first
    for (const Pid pid : ends.others) {
      const auto command = found.commands.find(pid);
      call.others.push_back({pid, ends.kind, command == found.commands.end() ? "" : command->second});
    }
    call.own_end = ends.own_end;
    call.other_host = std::move(ends.other_host);
    call.listens = ends.listens;
    if (!ends.database.empty()) call.database = std::move(ends.database);
  }
}

bool is_sleep(const SyscallInfo& call) { return call.number == __NR_nanosleep || call.number == __NR_clock_nanosleep; }

// Whether the innermost function outside of the C library belongs to SQLite.
bool sleeps_in_sqlite(const target::Target& target, const unwind::UnwoundStack& stack) {
  for (const unwind::UnwoundFrame& frame : stack.frames) {
    const target::Module* const module = target.modules().find(frame.lookup_pc());
    if (module == nullptr) return false;
    const std::string_view name = target::name_in(module->path);
    if (known::module_kind(name) != known::ModuleKind::kCLibrary) return known::is_sqlite(name);
  }
  return false;
}

std::vector<std::size_t> all_of(const std::vector<RankStacks>& ranks) {
  std::vector<std::size_t> all(ranks.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

}  // namespace

std::string short_command(const std::vector<std::string>& arguments) {
  constexpr std::size_t kMaxWords = 3, kMaxBytes = 80;
  std::string command;
  for (std::size_t i = 0; i < std::min(arguments.size(), kMaxWords); ++i) {
    const std::string& word = arguments[i];
    if (i > 0) command += ' ';
    command += word.starts_with('/') ? word.substr(word.rfind('/') + 1) : word;
    if (i > 0 && !word.starts_with('-')) break;
  }
  if (command.size() > kMaxBytes) {
    std::size_t end = kMaxBytes;
    while (end > 0 && (static_cast<unsigned char>(command[end]) & 0xc0) == 0x80) --end;  // not within a character
    command.resize(end);
  }
  return command;
}

struct OtherEndsSearch::State {
  Asked asked;
  std::shared_ptr<target::SocketTables> sockets;
  Found found;
  std::optional<Background> under_way;
};

OtherEndsSearch::OtherEndsSearch(const std::vector<RankStacks>& ranks, const std::vector<std::size_t>& which,
                                 std::shared_ptr<target::SocketTables> sockets)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.sockets = std::move(sockets);
  for (const RankStacks& rank : ranks) state.asked.job.push_back(rank.snapshot.pid);
  for (const std::size_t n : which) {
    const RankStacks& rank = ranks[n];
    if (!rank.target) continue;
    for (std::size_t i = 0; i < std::min(rank.target->threads().size(), rank.awaited.size()); ++i)
      if (rank.awaited[i]) state.asked.add(ranks, {n, i}, *rank.awaited[i]);
  }
  state.under_way.emplace([&state] { state.found = search(state.asked, state.sockets); });
}

OtherEndsSearch::OtherEndsSearch(const std::vector<RankStacks>& ranks, std::shared_ptr<target::SocketTables> sockets)
    : OtherEndsSearch(ranks, all_of(ranks), std::move(sockets)) {}

OtherEndsSearch::~OtherEndsSearch() = default;

void OtherEndsSearch::fill_in(std::vector<RankStacks>& ranks) {
  state_->under_way->wait();
  fill_in_found(ranks, state_->asked, std::exchange(state_->found, {}));
}

void find_database_holders(std::vector<RankStacks>& ranks) {
  Asked asked;
  for (std::size_t n = 0; n < ranks.size(); ++n) {
    const RankStacks& rank = ranks[n];
    asked.job.push_back(rank.snapshot.pid);
    if (!rank.target) continue;
    const auto threads = rank.target->threads();
    for (std::size_t i = 0; i < std::min({threads.size(), rank.syscalls.size(), rank.stacks.size()}); ++i) {
      const auto& call = rank.syscalls[i];
      if (!call || !is_sleep(*call) || !threads[i].registers || !sleeps_in_sqlite(*rank.target, rank.stacks[i]))
        continue;
      asked.add(ranks, {n, i},
                {.what = target::Awaited::What::kDatabase, .number = call->number, .sp = threads[i].registers->sp()});
    }
  }
  fill_in_found(ranks, asked, search(asked, std::make_shared<target::SocketTables>()));
}

}  // namespace rankstacks::capture
