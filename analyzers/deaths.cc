#include "analyzers/deaths.h"

#include <algorithm>

#include <fmt/format.h>

namespace rankstacks::analyzers {
namespace {

std::string name_of(const FaultMapping& mapping) { return mapping.name.empty() ? "anonymous memory" : mapping.name; }

std::string describe_mapped(const FaultMapping& mapping) {
  const std::string& may = mapping.permissions;
  const std::string access = may == "---"                         ? "allows no access"
                             : may.find('w') == std::string::npos ? "is read-only"
                                                                  : "is " + may;
  return fmt::format("in {} (+{:#x}), which {}", name_of(mapping), mapping.distance, access);
}

std::string describe_unmapped(const FaultPlace& place) {
  std::string text = "where nothing is mapped";
  if (place.below) text += fmt::format(", {:#x} bytes behind {}", place.below->distance, name_of(*place.below));
  if (place.above) text += fmt::format(", {:#x} bytes before {}", place.above->distance, name_of(*place.above));
  return text;
}

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
    case FaultRegion::kUnmapped: return describe_unmapped(place);
  }
  return "in a mapping";
}

// A core without the process's own number is known by the number of one of its threads.
bool is_of(const RankSnapshot& rank, Pid pid) {
  return pid == rank.pid || std::any_of(rank.threads.begin(), rank.threads.end(),
                                        [&](const ThreadSnapshot& thread) { return thread.tid == pid; });
}

}  // namespace

bool is_sent_by_another(const RankSnapshot& rank) {
  constexpr int kSentByUser = 0;  // SI_USER: kill(2)
  if (!rank.signal) return false;
  return rank.signal->sender ? !is_of(rank, *rank.signal->sender) : rank.signal->code == kSentByUser;
}

bool reports_others(const ThreadSnapshot& thread) {
  if (!thread.exception) return false;
  return thread.exception->cause == ExceptionCause::kTimeout || thread.exception->cause == ExceptionCause::kPeer;
}

std::string describe_fault(const SignalInfo& signal) {
  if (!signal.fault_address) return "";
  const std::string text = fmt::format("at {:#x}", *signal.fault_address);
  if (!signal.place) return text;
  return fmt::format("{}, {}{}", text, describe_region(*signal.place, signal),
                     signal.place->executed ? ", executed as code" : "");
}

std::string describe_sender(const RankSnapshot& rank) {
  if (!rank.signal || !rank.signal->sender || !is_sent_by_another(rank)) return "";
  if (*rank.signal->sender == 0) return "sent by a process of another pid namespace";
  return fmt::format("sent by pid {}", *rank.signal->sender);
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
