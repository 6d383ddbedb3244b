#include "nodes/doctor_answers.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "analyzers/node_words.h"
#include "model/host_set.h"
#include "nodes/join_answers.h"
#include "report/compact_form.h"
#include "report/json_node.h"
#include "report/json_nodes.h"
#include "report/json_text.h"
#include "report/sanitize.h"

namespace rankstacks::nodes {
namespace {

constexpr int kMaxDepth = 8;
constexpr std::size_t kMaxFindings = 100'000, kMaxMends = 1000;

SharedFinding read_finding(const report::Node& node) {
  node.require_object();
  SharedFinding finding;
  const auto word = [&](report::JsonKey key, std::string& into) {
    node.required(key, [&](const report::Node& n) { into = n.text(); });
  };
  word("subject", finding.subject);
  word("check", finding.check);
  word("area", finding.area);
  word("status", finding.status);
  word("found", finding.found);
  node.optional("mends", [&](const report::Node& list) {
    list.each(kMaxMends, [&](const report::Node& n) { finding.mends.push_back(n.text()); });
  });
  return finding;
}

std::vector<SharedFinding> read_findings(const std::string& text) {
  const auto document = report::read_text_or_compact_form(text, kMaxDepth, "");
  if (!document) throw report::Defect{document.error().code, "not JSON"};
  const report::Node root(document->root(), nullptr, "");
  root.require_object();
  std::vector<SharedFinding> findings;
  root.required("findings", [&](const report::Node& list) {
    list.each(kMaxFindings, [&](const report::Node& n) { findings.push_back(read_finding(n)); });
  });
  return findings;
}

int order_of(const std::string& status) { return status == "problem" ? 0 : status == "note" ? 1 : 2; }

}  // namespace

bool DoctorAnswers::ok() const {
  return answered == job.nodes.size() &&
         std::none_of(findings.begin(), findings.end(), [](const SharedFinding& f) { return f.status == "problem"; });
}

DoctorAnswers join_doctors(std::vector<NodeAnswer> answers) {
  DoctorAnswers joined;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::size_t> known;
  for (NodeAnswer& answer : answers) {
    const std::optional<NodeReply> reply = take_reply(answer);
    NodeSnapshot& node = joined.job.nodes.emplace_back(std::move(answer.node));
    if (!reply) continue;
    std::vector<SharedFinding> findings;
    try {
      findings = read_findings(reply->report);
    } catch (const report::Defect& defect) {
      node.said = defect.what.substr(0, 512);
    }
    if (!node.said.empty()) {
      node.fault = reply->report.empty() ? NodeFault::kTool : NodeFault::kMalformed;
      if (reply->report.empty()) node.said = reply->said.substr(0, reply->said.find('\n'));
      continue;
    }
    ++joined.answered;
    for (SharedFinding& finding : findings) {
      // Processes with one finding differ by their pids in what mends it: the first node's commands stand for all.
      const auto [it, is_new] =
          known.try_emplace({finding.subject, finding.check, finding.status, finding.found}, joined.findings.size());
      if (is_new) joined.findings.push_back(std::move(finding));
      std::vector<std::string>& nodes = joined.findings[it->second].nodes;
      if (nodes.empty() || nodes.back() != node.name) nodes.push_back(node.name);
    }
  }
  std::stable_sort(joined.findings.begin(), joined.findings.end(), [](const SharedFinding& a, const SharedFinding& b) {
    return std::tuple(order_of(a.status), a.nodes.size()) < std::tuple(order_of(b.status), b.nodes.size());
  });
  return joined;
}

std::string json_of(const DoctorAnswers& answers) {
  report::JsonText json(4096);
  const auto strings = [&](std::string_view key, const std::vector<std::string>& values) {
    json.key(key);
    json.open('[');
    for (const std::string& value : values) json.string(value);
    json.close();
  };
  json.open_document(RANKSTACKS_VERSION);
  json.key("ok"), json.boolean(answers.ok());
  report::write_nodes(json, answers.job);
  json.key("findings");
  json.open('[', true);
  for (const SharedFinding& finding : answers.findings) {
    json.open('{');
    json.field("subject", finding.subject);
    json.field("check", finding.check);
    json.field("area", finding.area);
    json.field("status", finding.status);
    json.field("found", finding.found);
    strings("mends", finding.mends);
    strings("nodes", finding.nodes);
    json.close();
  }
  json.close();
  json.close();
  return json.take() + "\n";
}

std::string text_of(const DoctorAnswers& answers) {
  std::string text = fmt::format("{} of {} nodes have answered\n", answers.answered, answers.job.nodes.size());
  for (const analyzers::NodeGroup& group : analyzers::node_groups(answers.job)) {
    text += fmt::format("silent   {}\n", report::sanitize(analyzers::describe_nodes(answers.job, group)));
    if (!group.first->hint.empty()) text += fmt::format("           hint: {}\n", report::sanitize(group.first->hint));
  }
  std::size_t well = 0;
  for (const SharedFinding& finding : answers.findings) {
    const bool all = finding.nodes.size() == answers.answered;
    if (all && finding.status == "ok") {
      ++well;
      continue;
    }
    text += fmt::format("{:<8} {}: {}: {}\n", report::sanitize(finding.status),
                        all ? std::string("all nodes") : report::sanitize(format_host_set(finding.nodes)),
                        report::sanitize(finding.check), report::sanitize(finding.found));
    for (const std::string& mend : finding.mends) text += fmt::format("           {}\n", report::sanitize(mend));
  }
  return text + fmt::format("{} findings are all well on every node; --format json shows them\n", well);
}

}  // namespace rankstacks::nodes
