// Gateways, which are asked for the nodes behind them: they run `rankstacks job` for these and merge their answers.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "nodes/engine_call.h"

namespace rankstacks::nodes {

struct Relay {
  std::string host;                 // the gateway
  std::size_t branch = 0;           // of the tree
  std::vector<std::size_t> behind;  // pages of AnswerBook
};

// Shares nodes among the gateways of their branch, in runs, which stay short when they are written as a host list.
std::vector<Relay> share(std::size_t branch, const std::vector<std::string>& gateways,
                         const std::vector<std::size_t>& pages);

// How much longer than `rankstacks job` on it its own process may take.
inline constexpr std::chrono::seconds kMarginOfGateway{5};

// How long a gateway may take for the nodes behind it: as long as these may, but it has to answer before this tool
// ends, by an eighth of the time that is left.
std::chrono::seconds limit_of_gateway(const EngineSettings& engine, const Deadline& deadline);

// Whether enough time is left to ask nodes once more, through another gateway or none: with less they would be asked
// too late to answer, and taken for silent. `start_in`: as of NodeQuestion.
bool has_time_to_ask_again(const EngineSettings& engine, std::chrono::milliseconds start_in, const Deadline& deadline);

// The tool's arguments on a gateway. `words`: those of `rankstacks job` that do not depend on it. `start`: when the
// nodes begin.
std::vector<std::string> words_of_gateway(const std::vector<std::string>& words, const std::vector<std::string>& behind,
                                          std::chrono::seconds limit,
                                          std::optional<std::chrono::system_clock::time_point> start);

}  // namespace rankstacks::nodes
