#include "nodes/gateways.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "model/host_set.h"

namespace rankstacks::nodes {

using std::chrono::seconds;

std::vector<Relay> share(std::size_t branch, const std::vector<std::string>& gateways,
                         const std::vector<std::size_t>& pages) {
  std::vector<Relay> relays;
  for (std::size_t g = 0; g < gateways.size(); ++g) {
    const auto first = static_cast<std::ptrdiff_t>(pages.size() * g / gateways.size()),
               end = static_cast<std::ptrdiff_t>(pages.size() * (g + 1) / gateways.size());
    if (first < end) relays.push_back({gateways[g], branch, {pages.begin() + first, pages.begin() + end}});
  }
  return relays;
}

seconds limit_of_gateway(const EngineSettings& engine, const Deadline& deadline) {
  const seconds needed = engine.node_limit + engine.connect + kMarginOfGateway;
  const auto left = deadline.left();
  const auto margin = std::max<Deadline::Clock::duration>(kMarginOfGateway, left / 8);
  if (left - margin > Deadline::Clock::duration(needed)) return needed;
  return std::max(std::chrono::duration_cast<seconds>(left - margin), seconds(1));
}

bool has_time_to_ask_again(const EngineSettings& engine, std::chrono::milliseconds start_in, const Deadline& deadline) {
  const seconds to_begin = std::min(engine.connect, seconds(5));
  return deadline.left() > Deadline::Clock::duration(to_begin + start_in + 2 * kMarginOfGateway);
}

std::vector<std::string> words_of_gateway(const std::vector<std::string>& words, const std::vector<std::string>& behind,
                                          seconds limit, std::optional<std::chrono::system_clock::time_point> start) {
  std::vector<std::string> all = {"job", "--hosts=" + format_host_set(behind, SIZE_MAX),
                                  fmt::format("--timeout={}", limit.count())};
  if (start) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(start->time_since_epoch());
    all.push_back(fmt::format("--start-at={}", ms.count()));
  }
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

}  // namespace rankstacks::nodes
