// The commands by which other tools run a command on many nodes: how each is called, how to find out that it is there,
// and what its messages of refusal mean. They are called as the commands that they are; nothing of them is linked.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "model/node.h"

namespace rankstacks::known {

enum class Engine : std::uint8_t {
  kSsh,
  kClush,
  kPdsh,
  kSrun,
  kMpirun,
  kMpich,
  kFlux,
  kKubectl,
  kKubectlDebug,
  kDocker,
  kPodman
};

// How many calls ask all nodes.
enum class Calls : std::uint8_t { kOneForEach, kOneForAll };

struct EngineRule {
  Engine engine;
  std::string_view name;     // of reports: "ssh"
  std::string_view command;  // the first word of its calls
  Calls calls;
  // Whether it gives its standard input to every node, and the option that it gets if there is none to give.
  bool gives_input;
  std::string_view without_input;
  // It hands the words to a shell on the node, joined by blanks, instead of executing them.
  bool through_shell;
  // Its arguments before the words that are to run there, separated by blanks. In braces: {host}, {hosts} (folded:
  // node-[1-3]), {list} (comma-separated), {slots} (Open MPI's: a:1,b:1), {count}, {fanout}, {limit} and {connect} in
  // seconds, {job}, {namespace}, {container}, {target}, {image}; {overlap} and {root}: where they are needed;
  // {options}: the user's own.
  std::string_view arguments;
  // Prints something and succeeds where the engine is installed. `shows`: what is then printed, if another program has
  // the same name; "": anything.
  std::string_view probe, shows;
  std::string_view source;
};

std::span<const EngineRule> engine_rules();
const EngineRule& rule_of(Engine engine);
// Whether it goes on to wait for nodes that could not be reached, as MPICH's hydra 4.0 does for its proxies.
constexpr bool outlives_refusals(Engine engine) { return engine == Engine::kMpich; }
// Whether each call leaves something behind on the node, as an ephemeral container in a pod: one call has to do.
constexpr bool asks_once(Engine engine) { return engine == Engine::kKubectlDebug; }

// A message by which an engine, or what it calls, refuses a node. The first line that contains `text` decides, with the
// rules in their order.
struct RefusalRule {
  std::string_view text;
  NodeFault fault;
  std::string_view hint;
  std::string_view source;
};

std::span<const RefusalRule> refusal_rules();
// The rule for a line that an engine has printed; nullptr: none.
const RefusalRule* refusal_in(std::string_view line);

}  // namespace rankstacks::known
