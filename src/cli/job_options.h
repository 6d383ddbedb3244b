// The command line of `rankstacks job`: which nodes are asked, by which engine, and for what.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace rankstacks::cli {

enum class NodeAction { kAttach, kCore, kDoctor };

struct JobOptions {
  std::string hosts, hostfile, slurm, selector, docker, podman;  // one of them is given
  std::string space;                                             // -n, of --kubectl
  std::string container;
  std::string debug_image;  // of --kubectl; "": the tool runs in the pods' own containers
  std::string via;          // "": the first that is there and works
  std::vector<std::string> engine_options;
  std::size_t fanout = 64;
  std::chrono::seconds node_limit{45}, connect{10};
  bool print = false, copies = true;
  std::optional<std::chrono::milliseconds> start_in;  // by default it depends on the number of nodes
  bool for_gateway = false;                           // --for-gateway: it is `rankstacks job` that reads the answer
  std::optional<std::chrono::system_clock::time_point> start_at;  // --start-at, of a gateway
  NodeAction action = NodeAction::kAttach;
  std::vector<std::string> node_words;  // the tool's arguments on each node, without those of the report
};

// Describes the command's own options on the command line, and those of its actions.
class JobCommand {
 public:
  // Called once, before the command line is parsed.
  void add_to(CLI::App& command);
  // After it was parsed. Throws CLI::ParseError for options that do not fit together.
  JobOptions take();

 private:
  void add_attach();
  void add_core();
  void add_doctor();

  CLI::App *job_ = nullptr, *attach_ = nullptr, *core_ = nullptr, *doctor_ = nullptr;
  JobOptions options_;
  int node_limit_ = 45, connect_ = 10, fanout_ = 64;
  bool no_copy_ = false;
  double start_in_ = 0;
  long long start_at_ = 0;
  // Of the actions: what was given is passed on as it is.
  std::string job_name_, samples_, interval_, max_wait_, stop_, unwinder_, exe_, sysroot_, doctor_job_;
  std::vector<std::string> cores_, search_, records_;
  bool gpu_ = false, no_inlines_ = false, libc_lines_ = false;
};

}  // namespace rankstacks::cli
