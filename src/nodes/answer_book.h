// What is known of each node while it is asked: lines of answers and of refusals, distinguished and assigned to nodes.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/node.h"
#include "nodes/answer_lines.h"
#include "nodes/fan_out.h"

namespace rankstacks::nodes {

inline constexpr double kToleratedClockMs = 50;  // between the clocks of two nodes

// Everything that one node and its engine have said.
struct NodePage {
  NodeSnapshot node;
  Answer answer;
  bool lacks_tool = false;
  bool has_fault = false;                // of the node's own words: `node.fault`, `node.said`
  std::vector<std::string> engine_said;  // lines about it, at most kMaxSaidLines
};

class AnswerBook {
 public:
  static constexpr std::size_t kMaxSaidLines = 64;
  static constexpr std::size_t kMaxSaid = 512;  // bytes of NodeSnapshot::said

  AnswerBook(const std::vector<std::string>& hosts, std::string nonce, std::string engine);

  std::vector<NodePage>& pages() { return pages_; }  // the hosts first; then nodes that are none of them
  const std::vector<NodePage>& pages() const { return pages_; }
  std::size_t page_of_host(const std::string& host) const { return by_name_.at(host); }
  // A page for a call of its own, which no line finds by its name.
  std::size_t add_page(const std::string& name);

  // When the nodes that are asked from now on are to begin, by their clocks; std::nullopt: when they are ready.
  void set_start(std::optional<std::chrono::system_clock::time_point> start) { start_ = start; }

  // `asked`: the pages that the call asks; `started`: when.
  void take_line(const std::vector<std::size_t>& asked, std::chrono::system_clock::time_point started, bool is_error,
                 std::string_view text);
  bool is_answered(std::size_t page) const;
  // Whether its engine has said why it cannot be asked.
  bool is_refused(std::size_t page) const;

  // A call has ended: what it says of those that it asked and that have not answered.
  void end_call(const std::vector<std::size_t>& asked, const Outcome& outcome, std::chrono::seconds limit);

  // Before a page is asked again.
  void forget(std::size_t page);

 private:
  std::size_t page_for(const std::vector<std::size_t>& asked, const AnswerLine& line);
  void take_answer(NodePage& page, AnswerLine line, std::chrono::system_clock::time_point started);
  void take_refusal(const std::vector<std::size_t>& asked, std::string_view text);

  std::vector<NodePage> pages_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::size_t, std::less<>> by_short_name_;  // names until their first dot, if they differ
  std::string nonce_;
  std::optional<std::chrono::system_clock::time_point> start_;
  std::map<std::size_t, std::vector<std::string>> said_of_all_;  // by the first page that a call asks
};

}  // namespace rankstacks::nodes
