#include "capture/other_ends.h"

#include <asm/unistd_64.h>
#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <numeric>
#include <set>

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

// The calls of captured processes whose other ends are searched for, with what they wait for.
struct Asked {
  std::vector<BlockedThread> threads;
  std::vector<SyscallInfo*> calls;  // parallel
  std::vector<Pid> job;

  void add(RankStacks& rank, std::size_t thread, target::Awaited awaited) {
    if (calls.size() >= kMaxThreads) return;
    threads.push_back({rank.snapshot.pid, rank.target->threads()[thread].tid, awaited});
    calls.push_back(&*rank.syscalls[thread]);
  }
};

void find_and_fill_in(const Asked& asked, const std::shared_ptr<target::SocketTables>& sockets) {
  if (asked.calls.empty()) return;
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
  if (!outcome.front().came_back) return;

  const std::set<Pid> job(work->job.begin(), work->job.end());
  std::set<Pid> outside;
  for (const FoundEnds& found : work->found)
    for (const Pid pid : found.others)
      if (!job.contains(pid) && outside.size() < kMaxNamed) outside.insert(pid);
  const auto commands = commands_of({outside.begin(), outside.end()});
  for (std::size_t i = 0; i < asked.calls.size(); ++i) {
    FoundEnds& found = work->found[i];
    SyscallInfo& call = *asked.calls[i];
    call.others.clear();  // a rank whose second reading failed has them from the first
    for (const Pid pid : found.others) {
      const auto command = commands.find(pid);
      call.others.push_back({pid, found.kind, command == commands.end() ? "" : command->second});
    }
    call.own_end = found.own_end;
    call.other_host = std::move(found.other_host);
    call.listens = found.listens;
    if (!found.database.empty()) call.database = std::move(found.database);
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

void find_other_ends(std::vector<RankStacks>& ranks, const std::shared_ptr<target::SocketTables>& sockets) {
  std::vector<std::size_t> all(ranks.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  find_other_ends(ranks, all, sockets);
}

void find_other_ends(std::vector<RankStacks>& ranks, const std::vector<std::size_t>& which,
                     const std::shared_ptr<target::SocketTables>& sockets) {
  Asked asked;
  for (const RankStacks& rank : ranks) asked.job.push_back(rank.snapshot.pid);
  for (const std::size_t n : which) {
    RankStacks& rank = ranks[n];
    if (!rank.target) continue;
    for (std::size_t i = 0; i < std::min(rank.target->threads().size(), rank.awaited.size()); ++i)
      if (rank.awaited[i]) asked.add(rank, i, *rank.awaited[i]);
  }
  find_and_fill_in(asked, sockets);
}

void find_database_holders(std::vector<RankStacks>& ranks) {
  Asked asked;
  for (RankStacks& rank : ranks) {
    asked.job.push_back(rank.snapshot.pid);
    if (!rank.target) continue;
    const auto threads = rank.target->threads();
    for (std::size_t i = 0; i < std::min({threads.size(), rank.syscalls.size(), rank.stacks.size()}); ++i) {
      const auto& call = rank.syscalls[i];
      if (!call || !is_sleep(*call) || !threads[i].registers || !sleeps_in_sqlite(*rank.target, rank.stacks[i]))
        continue;
      asked.add(rank, i,
                {.what = target::Awaited::What::kDatabase, .number = call->number, .sp = threads[i].registers->sp()});
    }
  }
  find_and_fill_in(asked, std::make_shared<target::SocketTables>());
}

}  // namespace rankstacks::capture
