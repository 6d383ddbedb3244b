#include "capture/other_ends.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <set>

#include "base/unattended.h"
#include "capture/find_ends.h"
#include "target/proc.h"

namespace rankstacks {
namespace {

constexpr std::size_t kMostThreads = 4096;   // blocked in calls whose other end is looked for
constexpr std::size_t kMostNamed = 64;       // processes outside of the job of which the command is read

// By the number of a process: "python3 prepare.py". A process whose memory does not answer has its name alone, and so have those that come after it.
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
    constexpr std::size_t kMostBytes = 4096;
    if (work->some_is_silent) return;
    const auto text = proc::read_file(fmt::format("/proc/{}/cmdline", work->pids[i]), kMostBytes);
    if (text) work->read[i] = proc::split_nul(*text);
  };
  const auto outcomes = Unattended{read, kLeastPatience, [work](std::size_t, const Outcome&) { work->some_is_silent = true; }}.run(pids.size());
  std::map<Pid, std::string> commands;
  for (std::size_t i = 0; i < pids.size(); ++i) {
    std::string command = outcomes[i].came_back ? short_command(work->read[i]) : "";
    if (command.empty())
      if (const auto stat = proc::stat_of(pids[i])) command = stat->name;
    commands.emplace(pids[i], std::move(command));
  }
  return commands;
}

}  // namespace

std::string short_command(const std::vector<std::string>& arguments) {
  constexpr std::size_t kMostWords = 3, kMostBytes = 80;
  std::string command;
  for (std::size_t i = 0; i < std::min(arguments.size(), kMostWords); ++i) {
    const std::string& word = arguments[i];
    if (i > 0) command += ' ';
    command += word.starts_with('/') ? word.substr(word.rfind('/') + 1) : word;
    if (i > 0 && !word.starts_with('-')) break;
  }
  if (command.size() > kMostBytes) {
    std::size_t end = kMostBytes;
    while (end > 0 && (static_cast<unsigned char>(command[end]) & 0xc0) == 0x80) --end;   // not amid a character
    command.resize(end);
  }
  return command;
}

void find_other_ends(std::vector<RankStacks>& ranks) {
  struct Work {
    std::vector<BlockedThread> threads;
    std::vector<Pid> job;
    std::vector<FoundEnds> found;
  };
  const auto work = std::make_shared<Work>();
  std::vector<SyscallInfo*> calls;
  for (RankStacks& rank : ranks) {
    work->job.push_back(rank.snapshot.pid);
    if (!rank.target) continue;
    const auto threads = rank.target->threads();
    for (std::size_t i = 0; i < std::min(threads.size(), rank.awaited.size()); ++i) {
      if (!rank.awaited[i] || calls.size() >= kMostThreads) continue;
      work->threads.push_back({rank.snapshot.pid, threads[i].tid, *rank.awaited[i]});
      calls.push_back(&*rank.syscalls[i]);
    }
  }
  if (calls.empty()) return;
  const auto outcome = Unattended{[work](std::size_t) { work->found = find_ends(work->threads, work->job); }, kLeastPatience}.run(1);
  if (!outcome.front().came_back) return;

  const std::set<Pid> job(work->job.begin(), work->job.end());
  std::set<Pid> outside;
  for (const FoundEnds& found : work->found)
    for (const Pid pid : found.others)
      if (!job.contains(pid) && outside.size() < kMostNamed) outside.insert(pid);
  const auto commands = commands_of({outside.begin(), outside.end()});
  for (std::size_t i = 0; i < calls.size(); ++i) {
    FoundEnds& found = work->found[i];
    for (const Pid pid : found.others) {
      const auto command = commands.find(pid);
      calls[i]->others.push_back({pid, found.kind, command == commands.end() ? "" : command->second});
    }
    calls[i]->own_end = found.own_end;
    calls[i]->other_host = std::move(found.other_host);
  }
}

}  // namespace rankstacks
