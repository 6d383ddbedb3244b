#include "capture/dying_process.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/unattended.h"
#include "capture/other_ends.h"
#include "target/proc.h"
#include "target/socket_tables.h"

namespace rankstacks::capture {
namespace {

constexpr std::size_t kMaxThreads = 16384, kMaxDescriptors = 4096;

// The thread's number in the innermost of its pid namespaces: the last one of "NSpid:\t4711\t7" (proc(5)).
Tid own_number_of(Pid pid, Tid tid) {
  constexpr std::string_view kKey = "\nNSpid:";
  const auto text = target::proc::read_file(fmt::format("/proc/{}/task/{}/status", pid, tid));
  const std::size_t at = text ? text->find(kKey) : std::string::npos;
  if (at == std::string::npos) return tid;
  std::string_view line = std::string_view(*text).substr(at + kKey.size());
  line = line.substr(0, line.find('\n'));
  const std::size_t last = line.find_last_of("\t ");
  if (last != std::string_view::npos) line.remove_prefix(last + 1);
  Tid number = tid;
  std::from_chars(line.data(), line.data() + line.size(), number);
  return number;
}

std::optional<std::map<int, std::string>> describe(Pid pid, const std::vector<int>& descriptors,
                                                   const std::shared_ptr<target::SocketTables>& sockets) {
  return unattended<std::map<int, std::string>>(
      [pid, descriptors, sockets] {
        std::map<int, std::string> found;
        for (const int fd : descriptors)
          if (auto text = target::describe_descriptor(pid, fd, *sockets)) found.emplace(fd, std::move(*text));
        return found;
      },
      kMinTimeout);
}

}  // namespace

DyingThreads read_dying_threads(Pid pid) {
  return unattended<DyingThreads>(
             [pid] {
               DyingThreads threads;
               for (const Tid tid : target::proc::tasks_of(pid)) {
                 if (threads.size() == kMaxThreads) break;
                 if (auto stat = target::proc::stat_of(pid, tid))
                   threads.emplace(own_number_of(pid, tid), DyingThread{std::move(stat->name), stat->cpu_ms});
               }
               return threads;
             },
             kMinTimeout)
      .value_or(DyingThreads());
}

void describe_dying_calls(std::vector<RankStacks>& ranks, Pid pid) {
  const auto sockets = std::make_shared<target::SocketTables>();
  for (RankStacks& rank : ranks) {
    std::vector<int> descriptors;
    for (const auto& call : rank.syscalls)
      if (call && call->fd) descriptors.push_back(*call->fd);
    std::sort(descriptors.begin(), descriptors.end());
    descriptors.erase(std::unique(descriptors.begin(), descriptors.end()), descriptors.end());
    const auto targets = describe(pid, descriptors, sockets);
    if (!targets) return;
    for (auto& call : rank.syscalls)
      if (const auto found = call && call->fd ? targets->find(*call->fd) : targets->end(); found != targets->end())
        call->fd_target = found->second;
  }
  const bool same_numbers =
      std::all_of(ranks.begin(), ranks.end(), [&](const RankStacks& rank) { return rank.snapshot.pid == pid; });
  if (same_numbers) OtherEndsSearch(ranks, sockets).fill_in(ranks);
}

std::map<int, std::string> read_dying_descriptors(Pid pid) {
  std::vector<int> descriptors = target::proc::descriptors_of(pid);
  descriptors.resize(std::min(descriptors.size(), kMaxDescriptors));
  return describe(pid, descriptors, std::make_shared<target::SocketTables>()).value_or(std::map<int, std::string>());
}

void add_dying_descriptors(RankSnapshot& rank, const std::map<int, std::string>& descriptors) {
  for (ThreadSnapshot& thread : rank.threads) {
    if (!thread.syscall || !thread.syscall->fd || thread.syscall->fd_target) continue;
    if (const auto found = descriptors.find(*thread.syscall->fd); found != descriptors.end())
      thread.syscall->fd_target = found->second;
  }
}

void add_dying_threads(RankSnapshot& rank, const DyingThreads& threads) {
  for (ThreadSnapshot& thread : rank.threads) {
    const auto found = threads.find(thread.tid);
    if (found == threads.end()) continue;
    thread.name = found->second.name;
    thread.cpu_ms = found->second.cpu_ms;
  }
}

}  // namespace rankstacks::capture
