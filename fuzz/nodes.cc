// What engines and nodes print, lines of answers among it; lists of hosts, hostfiles, clush's topologies and what
// squeue prints.
#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "input.h"
#include "model/host_set.h"
#include "nodes/answer_book.h"
#include "nodes/choose_engine.h"
#include "nodes/host_list.h"
#include "nodes/topology.h"

using namespace rankstacks;

namespace {

void check_hosts(std::string_view text) {
  for (const auto& hosts : {nodes::parse_host_list(text), nodes::parse_hostfile(text, "hosts")}) {
    if (!hosts) {
      fuzz::require(!hosts.error().what.empty(), "an error says what is wrong");
      continue;
    }
    fuzz::require(!hosts->empty() && hosts->size() <= nodes::kMaxHosts, "hosts are bounded");
    for (const std::string& host : *hosts)
      fuzz::require(host.front() != '-' && host.find_first_of(" '\"$;\\\n") == std::string::npos,
                    "hosts are plain words");
    if (hosts->size() > 200) continue;
    auto folded = nodes::parse_host_list(format_host_set(*hosts, SIZE_MAX));
    auto sorted = *hosts;
    std::sort(sorted.begin(), sorted.end());
    if (folded) std::sort(folded->begin(), folded->end());
    fuzz::require(folded && *folded == sorted, "a folded list expands to the same hosts");
  }
}

void check_topology(std::string_view text) {
  const auto routes = nodes::parse_topology(text, "topology");
  if (!routes) return fuzz::require(!routes.error().what.empty(), "an error says what is wrong");
  std::vector<std::string> hosts = {"n1", "n2", "gw1", "other"};
  const nodes::Tree tree = nodes::tree_from("login", *routes, hosts);
  std::size_t behind = 0;
  for (const nodes::Branch& branch : tree.branches) {
    fuzz::require(!branch.gateways.empty() && !branch.behind.empty(), "a branch has gateways and nodes");
    behind += branch.behind.size();
  }
  fuzz::require(behind <= hosts.size() && tree.levels <= routes->size(), "a node is in one branch");
  fuzz::require((behind == 0) == (tree.levels == 0), "gateways have nodes behind them");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  if (size < 4096) check_hosts(text);
  if (size < 4096) check_topology(text);
  (void)nodes::parse_squeue(text, "1");
  nodes::AnswerBook book({"n1", "n2.x", "n10"}, "0", "clush");
  const std::vector<std::size_t> asked = {0, 1, 2};
  bool is_error = false;
  for (std::size_t at = 0; at < size; is_error = !is_error) {
    const std::size_t end = std::min(text.find('\n', at), size);
    book.take_line(asked, std::chrono::system_clock::time_point(), is_error, text.substr(at, end - at));
    at = end + 1;
  }
  book.end_call(asked, {nodes::CallEnd::kExited, 1}, std::chrono::seconds(1));
  for (nodes::NodePage& page : book.pages()) {
    fuzz::require(page.engine_said.size() <= nodes::AnswerBook::kMaxSaidLines, "messages are bounded");
    fuzz::require(page.node.said.size() <= 512, "a message is bounded");
    if (page.has_fault || page.lacks_tool) continue;
    const auto reply = page.answer.take(page.node.name);
    fuzz::require(reply || !reply.error().what.empty(), "an error says what is wrong");
  }
  return 0;
}
