#include "nodes/ask_directly.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "nodes/gateways.h"

namespace rankstacks::nodes {

using std::chrono::milliseconds;
using std::chrono::system_clock;

namespace {

void count_from(system_clock::time_point first_start, system_clock::time_point start,
                std::vector<NodeAnswer>& answers) {
  const double later = std::chrono::duration<double, std::milli>(start - first_start).count();
  for (NodeAnswer& answer : answers)
    if (answer.node.late_ms) *answer.node.late_ms += std::max(later, 0.0);
}

}  // namespace

std::vector<NodeAnswer> ask_directly(NodeQuestion question, std::optional<system_clock::time_point> first_start,
                                     const ToolFile& tool, const Deadline& deadline, const Interrupts& interrupts) {
  constexpr milliseconds kOfOneNode{1000};
  question.engine.options.clear();
  if (question.start_in.count() == 0 && first_start) question.start_in = kOfOneNode;
  const std::vector<std::string> hosts = std::exchange(question.hosts, {});
  const auto wave =
      static_cast<std::ptrdiff_t>(std::min(hosts.size(), std::max<std::size_t>(question.engine.fanout, 1)));
  std::vector<NodeAnswer> all;
  for (auto from = hosts.begin(), to = from + wave; from != hosts.end(); from = std::exchange(to, hosts.end())) {
    if (interrupts.have_come() || !has_time_to_ask_again(question.engine, question.start_in, deadline)) break;
    question.hosts.assign(from, to);
    const auto start = system_clock::now() + question.start_in;
    std::vector<NodeAnswer> answers = ask_nodes(question, tool, deadline, interrupts);
    if (first_start && !question.start_at) count_from(*first_start, start, answers);
    const bool none = std::none_of(answers.begin(), answers.end(), has_spoken);
    std::move(answers.begin(), answers.end(), std::back_inserter(all));
    if (none) break;
  }
  return all;
}

}  // namespace rankstacks::nodes
