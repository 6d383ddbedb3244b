// Titles that the processes of servers and actors give themselves (setproctitle): what such a process is for, and which
// of its job's ranks it is. The title replaces the command line, and often the initial environment behind it.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rankstacks::known {

enum class TitlePart {
  kWorker,    // a rank: its title has its place on the axes of the layout (TP1, PP0)
  kDirector,  // a part of a server that has no rank: hands out the workers' work, or takes it on
  kActor,     // runs an actor's or a task's method: may be a rank, by its environment or memory
  kSpare,     // waits for an actor or a task, or serves all of them
};

struct TitleRule {
  std::string_view prefix;
  TitlePart part;
  std::string_view source;
};

std::span<const TitleRule> title_rules();

struct Title {
  TitlePart part;
  std::string family;               // "VLLM": processes of one server have the same
  std::map<std::string, int> axes;  // {"TP", 1}, {"DP", 0}
  bool operator==(const Title&) const = default;
};

// std::nullopt if no rule knows this title. `text` is the first word of the command line.
std::optional<Title> title_of(std::string_view text);

}  // namespace rankstacks::known
