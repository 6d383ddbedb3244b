#include "analyzers/other_ends.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "analyzers/names.h"
#include "base/text.h"
#include "model/process_key.h"

namespace rankstacks::analyzers {
namespace {

// nullptr if the process does not belong to the job, or if merged reports have a process with that number on several
// machines.
const RankSnapshot* member_with(const JobSnapshot& job, Pid pid) {
  const RankSnapshot* member = nullptr;
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.pid != pid) continue;
    if (member != nullptr) return nullptr;
    member = &rank;
  }
  return member;
}

// "rank 2", "a child of rank 2". "" if the process does not belong to the job, or has no number.
std::string member_name(const JobSnapshot& job, const RankSnapshot* member) {
  if (member == nullptr) return "";
  if (member->kind == RankKind::kRank) return member->rank ? fmt::format("rank {}", *member->rank) : "";
  const auto parent = std::find_if(job.ranks.begin(), job.ranks.end(),
                                   [&](const RankSnapshot& rank) { return is_parent(rank, *member); });
  return parent != job.ranks.end() && parent->rank ? fmt::format("a child of rank {}", *parent->rank) : "";
}

std::string before(const SyscallInfo& call) {
  constexpr std::array<std::string_view, 8> kWriting = {"write",    "writev",   "sendto",   "sendmsg",
                                                        "sendmmsg", "vmsplice", "sendfile", "connect"};
  constexpr std::array<std::string_view, 5> kReading = {"read", "readv", "recvfrom", "recvmsg", "recvmmsg"};
  switch (call.others.front().kind) {
    case EndKind::kLock: return ", held by";
    case EndKind::kChild: return " for";
    case EndKind::kDatabase: return fmt::format(" for {}, held by", database_lock_name(call));
    case EndKind::kPipe:
    case EndKind::kSocket: break;
  }
  return is_one_of(call.name, kWriting) ? " to" : is_one_of(call.name, kReading) ? " from" : ", the other end:";
}

}  // namespace

std::string_view held_word(const RankSnapshot& process) {
  if (process.threads.empty()) return "";
  bool frozen = false;
  for (const ThreadSnapshot& thread : process.threads) {
    if (thread.state != 'T' && thread.state != 't' && thread.state != 'F') return "";
    frozen |= thread.state == 'F';
  }
  return frozen ? "frozen" : "stopped";
}

std::optional<std::size_t> held_other_end(const JobSnapshot& job, const RankSnapshot& caller, const SyscallInfo& call) {
  if (call.own_end) return std::nullopt;
  std::optional<std::size_t> held;
  for (const OtherEnd& end : call.others) {
    const auto process = std::find_if(job.ranks.begin(), job.ranks.end(), [&](const RankSnapshot& one) {
      return process_key(one) == process_key(caller, end.pid);
    });
    if (process == job.ranks.end() || held_word(*process).empty()) return std::nullopt;
    held = static_cast<std::size_t>(process - job.ranks.begin());
  }
  return held;
}

std::string database_lock_name(const SyscallInfo& call) {
  return call.database ? fmt::format("a lock of the database {}", base_name(*call.database))
                       : "a lock of an SQLite database";
}

std::string describe_other_ends(const JobSnapshot& job, const SyscallInfo& call) {
  if (call.others.empty()) return "";
  constexpr std::size_t kMax = 2;
  std::string text(before(call));
  // All holders of a lock are waited for.
  const std::string_view joint = call.others.front().kind == EndKind::kLock ? " and " : " or ";
  const std::size_t count = call.others.size();
  const std::size_t shown = count <= kMax + 1 ? count : kMax;
  for (std::size_t i = 0; i < shown; ++i) {
    const OtherEnd& end = call.others[i];
    text += fmt::format("{}pid {}", i == 0 ? " " : joint, end.pid);
    const RankSnapshot* member = member_with(job, end.pid);
    const std::string name = end.command.empty() ? member_name(job, member) : end.command;
    const std::string_view held = member == nullptr ? "" : held_word(*member);
    if (!name.empty() || !held.empty())
      text += fmt::format(" ({}{}{})", name, name.empty() || held.empty() ? "" : ", ", held);
  }
  if (shown < count) text += fmt::format("{}{} more", joint, count - shown);
  if (call.own_end) text += fmt::format("{}its own process", joint);
  return text;
}

}  // namespace rankstacks::analyzers
