// Which engine asks the nodes, and which nodes there are: what the engines on this machine say.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "known/engines.h"
#include "nodes/fan_out.h"

namespace rankstacks::nodes {

struct CommandOutput {
  Outcome outcome;
  std::string out, err;  // at most 16 MiB and 64 KiB
};
CommandOutput output_of(std::vector<std::string> command, std::chrono::seconds limit, const Interrupts& interrupts);

// The engines to try, in this order. `via`: the word of --via; "": those of `usual` that are installed. kNotFound: none
// is installed; kUsage: there is no engine of that name.
Result<std::vector<known::Engine>> engines_to_try(std::string_view via, const std::vector<known::Engine>& usual,
                                                  const Interrupts& interrupts);

// Whether Slurm's srun knows --overlap (20.11 and newer). `version`: what `srun --version` prints.
bool knows_overlap(std::string_view version);

// The minor version of kubectl 1.x. `version`: what `kubectl version --client` prints. std::nullopt: it does not say.
std::optional<int> kubectl_minor(std::string_view version);

struct SlurmStep {
  std::string id;  // for --jobid: of the job, or of a component of a heterogeneous one
  std::vector<std::string> hosts;
};
// What `squeue -h -j JOB -o "%i|%A|%T|%N"` prints. kNotFound: no such job, or it does not run; kUsage: an array of
// which several tasks run.
Result<std::vector<SlurmStep>> parse_squeue(std::string_view text, const std::string& job);
std::vector<std::string> squeue_command(const std::string& job);

// Lists the containers that run: those of a filter ("label=job=4711") of `docker ps`. parse_containers() reads what it
// prints: their names, which are sorted by the numbers in them. kNotFound: none.
std::vector<std::string> containers_command(const known::EngineRule& engine, const std::string& filter);
Result<std::vector<std::string>> parse_containers(std::string_view text, const std::string& filter);

}  // namespace rankstacks::nodes
