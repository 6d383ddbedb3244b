// Programs that are no rank, although they run with a rank's variables: those that start the rank and wait for it, and
// the utilities that a rank, or a script around it, starts.
#pragma once

#include <span>
#include <string_view>

namespace rankstacks::known {

enum class ProgramKind {
  kStarter,  // starts another program and waits for it: a shell, `timeout`, a tracer
  kUtility,  // does a small work for whoever has started it: never a rank
  kOther,    // no rule knows it
};

struct ProgramRule {
  std::string_view name;  // of the file, as in comm: at most 15 characters
  ProgramKind kind;
  std::string_view source;
};

std::span<const ProgramRule> program_rules();

// `name` is the process's name (comm), which a script with `#!` has from itself; `first_word` that of its command line,
// which is the interpreter in this case, and "-bash" in a login shell.
ProgramKind kind_of_program(std::string_view name, std::string_view first_word);

}  // namespace rankstacks::known
