#include "report/json_nodes.h"

#include "analyzers/node_words.h"

namespace rankstacks::report {
namespace {

constexpr std::size_t kMaxNodes = 1 << 17, kMaxRanksOfNode = 1 << 16;

constexpr WordTable<NodeFault, 21> kFaultWords = {{{NodeFault::kOther, "other"},
                                                   {NodeFault::kUnknownHost, "unknown-host"},
                                                   {NodeFault::kNoRoute, "no-route"},
                                                   {NodeFault::kConnectTimeout, "connect-timeout"},
                                                   {NodeFault::kRefused, "connection-refused"},
                                                   {NodeFault::kConnectionLost, "connection-lost"},
                                                   {NodeFault::kHostKey, "host-key"},
                                                   {NodeFault::kLogin, "login-denied"},
                                                   {NodeFault::kNotPermitted, "not-permitted"},
                                                   {NodeFault::kNoTarget, "no-target"},
                                                   {NodeFault::kNodeDown, "node-down"},
                                                   {NodeFault::kBusy, "busy"},
                                                   {NodeFault::kNoEngine, "no-engine"},
                                                   {NodeFault::kTimeout, "timeout"},
                                                   {NodeFault::kInterrupted, "interrupted"},
                                                   {NodeFault::kCannotRun, "cannot-run"},
                                                   {NodeFault::kCannotCopy, "cannot-copy"},
                                                   {NodeFault::kMalformed, "malformed"},
                                                   {NodeFault::kNoRanks, "no-ranks"},
                                                   {NodeFault::kSeveralJobs, "several-jobs"},
                                                   {NodeFault::kTool, "tool-failed"}}};

std::optional<std::string> or_null(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

void write_numbers(JsonText& json, const std::vector<int>& numbers) {
  json.open('[');
  for (const int number : numbers) json.number(number);
  json.close();
}

void write_problem(JsonText& json, const JobSnapshot& job, const analyzers::NodeGroup& group) {
  json.open('{');
  json.field("code", std::string(word_of_fault(group.first->fault)));
  json.field("message", analyzers::describe_nodes(job, group));
  json.field("hint", or_null(group.first->hint));
  json.key("nodes");
  json.open('[');
  for (const std::size_t n : group.nodes) json.string(job.nodes[n].name);
  json.close();
  json.key("ranks");
  write_numbers(json, group.ranks);
  json.close();
}

}  // namespace

std::string_view word_of_fault(NodeFault fault) { return word_of(kFaultWords, fault); }

void write_nodes(JsonText& json, const JobSnapshot& job) {
  if (job.nodes.empty()) return;
  json.key("nodes");
  json.open('[', true);
  for (const NodeSnapshot& node : job.nodes) {
    json.open('{');
    json.field("name", node.name);
    json.field("status", node.fault == NodeFault::kNone ? "answered" : "silent");
    json.field("fault", or_null(std::string(word_of_fault(node.fault))));
    json.field("engine", node.engine);
    json.field("message", or_null(node.said));
    json.field("hint", or_null(node.hint));
    json.key("ranks");
    write_numbers(json, node.ranks);
    json.field("clock_offset_ms", node.clock_offset_ms);
    json.field("clock_error_ms", node.clock_error_ms);
    json.field("late_ms", node.late_ms);
    json.close();
  }
  json.close();
  json.key("problems");
  json.open('[', true);
  for (const analyzers::NodeGroup& group : analyzers::node_groups(job)) write_problem(json, job, group);
  json.close();
}

void read_nodes(const Node& root, JobSnapshot& job) {
  root.optional("nodes", [&](const Node& list) {
    list.each(kMaxNodes, [&](const Node& n) {
      n.require_object();
      NodeSnapshot& node = job.nodes.emplace_back();
      n.required("name", [&](const Node& v) { node.name = v.text(); });
      n.optional("fault", [&](const Node& v) { node.fault = v.word(kFaultWords); });
      n.optional("engine", [&](const Node& v) { node.engine = v.text(); });
      n.optional("message", [&](const Node& v) { node.said = v.text(); });
      n.optional("hint", [&](const Node& v) { node.hint = v.text(); });
      n.optional("ranks", [&](const Node& ranks) {
        ranks.each(kMaxRanksOfNode, [&](const Node& v) { node.ranks.push_back(v.int32(0)); });
      });
      n.optional("clock_offset_ms", [&](const Node& v) { node.clock_offset_ms = v.real(); });
      n.optional("clock_error_ms", [&](const Node& v) { node.clock_error_ms = v.real(); });
      n.optional("late_ms", [&](const Node& v) { node.late_ms = v.real(); });
    });
  });
}

}  // namespace rankstacks::report
