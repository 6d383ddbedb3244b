// The command line by which an engine runs something on nodes (known/engines.h has the templates).
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "known/engines.h"

namespace rankstacks::nodes {

// What the user has said about the engine, and where the nodes are.
struct EngineSettings {
  known::Engine engine = known::Engine::kSsh;
  std::vector<std::string> options;     // --engine-option
  std::string job;                      // srun: the job's number
  std::string space;                    // kubectl: the namespace
  std::string container;                // kubectl: "" for the pod's first
  std::string image;                    // kubectl debug: of the container that it starts in a pod
  bool overlaps = true;                 // srun knows --overlap (Slurm 20.11)
  bool as_root = false;                 // mpirun asks for an option then
  std::size_t fanout = 64;              // how many nodes are asked at the same time
  std::chrono::seconds connect{10};     // until the node has to have taken the connection
  std::chrono::seconds node_limit{45};  // until it has to have answered
};

// `words`: the command that is to run on each of `hosts`. `with_input`: the call's standard input is for the nodes.
std::vector<std::string> engine_call(const EngineSettings& settings, const std::vector<std::string>& hosts,
                                     const std::vector<std::string>& words, bool with_input);

// For a person's shell, as --print shows it; for the POSIX shell of a node.
std::string shown_call(const std::vector<std::string>& words);
std::string posix_line(const std::vector<std::string>& words);

}  // namespace rankstacks::nodes
