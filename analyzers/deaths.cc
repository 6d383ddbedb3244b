#include "analyzers/deaths.h"

#include <algorithm>

#include <fmt/format.h>

#include "analyzers/names.h"
#include "base/text.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

std::string name_of(const FaultMapping& mapping) { return mapping.name.empty() ? "anonymous memory" : mapping.name; }

std::string describe_mapped(const FaultMapping& mapping) {
  const std::string& may = mapping.permissions;
  const std::string access = may == "---" ? "allows no access" : !contains(may, 'w') ? "is read-only" : "is " + may;
  return fmt::format("in {} (+{:#x}), which {}", name_of(mapping), mapping.distance, access);
}

std::string describe_unmapped(const FaultPlace& place) {
  std::string text = "where nothing is mapped";
  if (place.below) text += fmt::format(", {:#x} bytes behind {}", place.below->distance, name_of(*place.below));
  if (place.above) text += fmt::format(", {:#x} bytes before {}", place.above->distance, name_of(*place.above));
  return text;
}

// Whether the upper bits repeat bit 47, as the processor demands.
bool is_canonical(Address address) { return address >> 47 == 0 || address >> 47 == (Address{1} << 17) - 1; }

std::string describe_region(const FaultPlace& place, const SignalInfo& signal) {
  switch (place.region) {
    case FaultRegion::kFirstPage:
      return *signal.fault_address == 0
                 ? "a null pointer"
                 : fmt::format("in the first page: a null pointer with offset {}", *signal.fault_address);
    case FaultRegion::kBelowStack:
      return fmt::format("below the stack of thread {}: the stack has overflowed", signal.tid);
    case FaultRegion::kMapped:
      if (place.mapping) return describe_mapped(*place.mapping);
      break;
    case FaultRegion::kUnmapped:
      if (!is_canonical(*signal.fault_address)) return "which is no address: not in the canonical form";
      return describe_unmapped(place);
  }
  return "in a mapping";
}

// A core without the process's own number is known by the number of one of its threads.
bool is_of(const RankSnapshot& rank, Pid pid) {
  return pid == rank.pid || std::any_of(rank.threads.begin(), rank.threads.end(),
                                        [&](const ThreadSnapshot& thread) { return thread.tid == pid; });
}

// Of the C++ exception that ends the process, or of an exception that is raised or handled while it ends.
bool has_cause(const ThreadSnapshot& thread, ExceptionCause cause) {
  return (thread.exception && thread.exception->cause == cause) || (thread.raises && thread.raises->cause == cause) ||
         (thread.handles && thread.handles->cause == cause) ||
         (thread.handles_cxx && thread.handles_cxx->exception.cause == cause) ||
         (thread.raises_cxx && thread.raises_cxx->exception.cause == cause);
}

// "rank 3", "torchrun"; "" if the process that has sent the signal is none of the job's, or may be several.
std::string name_of_sender(const JobSnapshot& job, const RankSnapshot& rank) {
  const RankSnapshot* sender = nullptr;
  for (const RankSnapshot& other : job.ranks) {
    if (&other == &rank || other.host != rank.host || !is_of(other, *rank.signal->sender)) continue;
    if (sender != nullptr) return "";
    sender = &other;
  }
  if (sender == nullptr) return "";
  if (sender->kind == RankKind::kRank && sender->rank) return fmt::format("rank {}", *sender->rank);
  if (!sender->command.empty()) return std::string(base_name(sender->command.front()));
  return sender->executable ? std::string(base_name(*sender->executable)) : "";
}

std::string describe_kill(const KernelKill& kill) {
  const std::string what = kill.cause == KernelKill::Cause::kOutOfMemory
                               ? "was killed for lack of memory"
                               : "ended by a fault (" + first_line(kill.text) + ")";
  return fmt::format("pid {} ({}) {} at {}", kill.pid, kill.name, what, kill.at);
}

// Of those of the ranks that say so; "": none does. A count since the group was made: it says what may have happened,
// and not to which process.
std::string describe_oom_kills(const JobSnapshot& job, const std::vector<std::size_t>& ranks) {
  std::uint64_t most = 0;
  std::vector<std::size_t> with;
  for (const std::size_t r : ranks) {
    const std::uint64_t kills = job.ranks[r].oom_kills.value_or(0);
    if (kills > 0) with.push_back(r);
    most = std::max(most, kills);
  }
  if (with.empty()) return "";
  return fmt::format(", and the kernel has killed {} of the control group of {} for lack of memory",
                     counted(most, "process", "es"), name_ranks(job, with));
}

}  // namespace

bool is_sent_by_another(const RankSnapshot& rank) {
  constexpr int kSentByUser = 0;  // SI_USER: kill(2)
  if (!rank.signal) return false;
  return rank.signal->sender ? !is_of(rank, *rank.signal->sender) : rank.signal->code == kSentByUser;
}

bool is_reraised(const SignalInfo& signal) { return signal.fault_address && signal.code && *signal.code <= 0; }

std::optional<ExceptionCause> cause_in_others(const ThreadSnapshot& thread) {
  for (const ExceptionCause cause : {ExceptionCause::kPeer, ExceptionCause::kTimeout})
    if (has_cause(thread, cause)) return cause;
  return std::nullopt;
}

bool reports_others(const ThreadSnapshot& thread) { return cause_in_others(thread).has_value(); }

std::string describe_fault(const SignalInfo& signal) {
  if (!signal.fault_address) return "";
  const std::string text = fmt::format("at {:#x}", *signal.fault_address);
  if (!signal.place) return text;
  return fmt::format("{}, {}{}", text, describe_region(*signal.place, signal),
                     signal.place->executed ? ", executed as code" : "");
}

std::string describe_instruction(const SignalInfo& signal) {
  if (!signal.instruction) return "";
  const FaultInstruction& instruction = *signal.instruction;
  std::string text = instruction.text.empty() ? "the instruction " + instruction.bytes : instruction.text;
  for (std::size_t i = 0; i < instruction.registers.size(); ++i)
    text += fmt::format("{}{}={:#x}", i == 0 ? " with " : ", ", instruction.registers[i].first,
                        instruction.registers[i].second);
  return text;
}

std::string describe_sender(const JobSnapshot& job, const RankSnapshot& rank) {
  if (!rank.signal || !rank.signal->sender || !is_sent_by_another(rank)) return "";
  const std::string user = rank.signal->sender_uid ? fmt::format(", uid {}", *rank.signal->sender_uid) : "";
  if (*rank.signal->sender == 0) return "sent by a process of another pid namespace" + user;
  const std::string name = name_of_sender(job, rank);
  return fmt::format("sent by pid {}{}{}", *rank.signal->sender, name.empty() ? "" : " (" + name + ")", user);
}

std::string describe_reraise(const RankSnapshot& rank) {
  if (!rank.signal || !is_reraised(*rank.signal)) return "";
  const bool by_faulthandler = rank.faulthandler && std::count(rank.faulthandler->called.begin(),
                                                               rank.faulthandler->called.end(), rank.signal->name) > 0;
  return by_faulthandler ? "raised again by faulthandler" : "raised again by its handler";
}

std::string describe_faulthandler(const RankSnapshot& rank) {
  if (!rank.faulthandler || rank.faulthandler->signals.empty()) return "";
  const Faulthandler& faulthandler = *rank.faulthandler;
  const std::string where =
      faulthandler.descriptor ? fmt::format(" to descriptor {}", *faulthandler.descriptor) : std::string();
  if (faulthandler.called.empty())
    return fmt::format("Python's faulthandler is enabled{}", where.empty() ? "" : ", and writes" + where);
  return fmt::format("Python's faulthandler has written stacks{} ({})", where, fmt::join(faulthandler.called, ", "));
}

std::string describe_kernel_kills(const JobSnapshot& job) {
  constexpr std::size_t kMaxShown = 3;  // the newest
  const std::size_t count = job.kernel_log.size();
  std::string text;
  for (std::size_t i = count > kMaxShown ? count - kMaxShown : 0; i < count; ++i)
    text += (text.empty() ? ", and by the kernel's log " : ", ") + describe_kill(job.kernel_log[i]);
  if (count > kMaxShown) text += fmt::format(", after {} more", count - kMaxShown);
  if (!text.empty()) return text;
  std::vector<std::size_t> ranks;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    if (job.ranks[r].kind == RankKind::kRank) ranks.push_back(r);
  return describe_oom_kills(job, ranks);
}

std::string describe_kernel_kills(const JobSnapshot& job, const RankSnapshot& process, std::size_t rank) {
  for (const KernelKill& kill : job.kernel_log)
    if (kill.host == process.host && kill.pid == process.pid) return ", and by the kernel's log " + describe_kill(kill);
  return describe_oom_kills(job, {rank});
}

std::string first_line_of_abort(const RankSnapshot& rank) {
  return rank.abort_message ? first_line(*rank.abort_message) : "";
}

std::string first_line(std::string_view text) {
  // In 250 characters NCCL's watchdog names the collective, its size, and for how long it ran.
  constexpr std::size_t kMax = 320;
  text = text.substr(0, text.find_first_of("\r\n"));
  if (text.size() <= kMax) return std::string(text);
  std::size_t end = kMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // between characters
  return std::string(text.substr(0, end)) + "…";
}

}  // namespace rankstacks::analyzers
