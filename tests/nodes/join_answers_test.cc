#include "nodes/join_answers.h"

#include <chrono>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "nodes/answer_book.h"
#include "report/report.h"

namespace rankstacks::nodes {
namespace {

using std::chrono::seconds;
using std::chrono::system_clock;

// "01 23 x -": a node for each word, which has shown these ranks; x: silent; -: it has none of the job's.
std::string ranks(std::string_view nodes, int world, int block) {
  std::vector<NodeSnapshot> all;
  std::vector<std::vector<int>> seen;
  for (std::size_t at = 0; at < nodes.size();) {
    const std::size_t end = std::min(nodes.find(' ', at), nodes.size());
    const std::string_view word = nodes.substr(at, end - at);
    at = end + 1;
    NodeSnapshot& node = all.emplace_back();
    seen.emplace_back();
    if (word == "x") node.fault = NodeFault::kNoRoute;
    else if (word == "?") node.fault = NodeFault::kNotPermitted;
    else if (word == "-") node.fault = NodeFault::kNoRanks;
    else
      for (const char c : word) seen.back().push_back(c - '0');
  }
  assign_silent_ranks(all, seen, world, block);
  std::string text;
  for (const NodeSnapshot& node : all)
    if (node.fault == NodeFault::kNoRoute || node.fault == NodeFault::kNotPermitted)
      text += fmt::format("{} ", fmt::join(node.ranks, ","));
  return text;
}

TEST_CASE("the ranks of silent nodes") {
  CHECK(ranks("01 x 45 67", 8, 2) == "2,3 ");
  CHECK(ranks("x x 45 x", 8, 2) == "0,1 2,3 6,7 ");
  CHECK(ranks("01 - x 45", 6, 2) == "2,3 ");
  CHECK(ranks("01 23 x", 5, 2) == "4 ");       // a last block that is shorter
  CHECK(ranks("45 x 01", 6, 2) == "2,3 ");     // in whatever order, if one node and one block are left
  CHECK(ranks("67 x x 01", 8, 2) == "  ");     // not in the list's order
  CHECK(ranks("01 x x 45", 6, 2) == "  ");     // one of both is none of the job's
  CHECK(ranks("01 x 67", 8, 2) == " ");        // a block more than there are nodes
  CHECK(ranks("02 x", 4, 2) == " ");           // ranks that are not numbered node by node
  CHECK(ranks("x x", 8, 2) == "  ");           // nothing is known
  CHECK(ranks("01 ? 45", 6, 2) == "2,3 ");     // it did not permit a look
  CHECK(ranks("01 ? x 45", 6, 2) == " 2,3 ");  // or it has none: another user's node
  CHECK(ranks("01 x", 1 << 30, 2) == " ");
  CHECK(ranks("01 x", 4, 0) == " ");
}

std::string fault(const AnswerBook& book, std::size_t page) {
  const NodeSnapshot& node = book.pages()[page].node;
  return fmt::format("{} {}", static_cast<int>(node.fault), node.said);
}
std::string is(NodeFault fault, std::string_view said) { return fmt::format("{} {}", static_cast<int>(fault), said); }

TEST_CASE("refusals are assigned to the nodes that they name") {
  AnswerBook book({"n1", "n2.x", "n3", "n4", "n10"}, "0", "clush");
  const std::vector<std::size_t> all = {0, 1, 2, 3, 4};
  const auto err = [&](std::string_view text) { book.take_line(all, system_clock::now(), true, text); };
  err("n1: ssh: connect to host n1 port 22: No route to host");
  err("clush: n1: exited with exit code 255");
  err("n3: Permission denied (publickey).");
  err("srun: error: Task launch for StepId=1.2 failed on node n10: Communication connection failure");
  book.take_line(all, system_clock::now(), false, "n2: rankstacks-answer 1 0 n2 lacks");
  book.end_call(all, {CallEnd::kExited, 255}, seconds(45));
  CHECK(fault(book, 0) == is(NodeFault::kNoRoute, "ssh: connect to host n1 port 22: No route to host"));
  CHECK(book.pages()[1].lacks_tool);
  CHECK(fault(book, 2) == is(NodeFault::kLogin, "Permission denied (publickey)."));
  CHECK(fault(book, 3) == is(NodeFault::kOther, "it ended with status 255 and no answer"));
  CHECK(book.pages()[4].node.fault == NodeFault::kNoRoute);
}

TEST_CASE("what concerns no node in particular concerns all that are silent") {
  AnswerBook book({"n1", "n2"}, "0", "srun");
  book.take_line({0, 1}, system_clock::now(), true,
                 "srun: error: Unable to contact slurm controller (connect failure)");
  book.end_call({0, 1}, {CallEnd::kExited, 1}, seconds(45));
  for (const std::size_t page : {0u, 1u}) CHECK(book.pages()[page].node.fault == NodeFault::kNoEngine);
}

TEST_CASE("how a call ended says what no line does") {
  const auto after = [](Outcome outcome) {
    AnswerBook book({"n1"}, "0", "ssh");
    book.end_call({0}, outcome, seconds(45));
    return fault(book, 0);
  };
  CHECK(after({CallEnd::kTimeout, 0}) == is(NodeFault::kTimeout, "no answer within 45 s"));
  CHECK(after({CallEnd::kInterrupted, 0}) == is(NodeFault::kInterrupted, ""));
  CHECK(after({CallEnd::kNotStarted, 2}) == is(NodeFault::kNoEngine, "No such file or directory"));
}

TEST_CASE("an answer of a node that was not asked, and an answer under another name") {
  AnswerBook book({"n1", "n2"}, "0", "mpirun");
  book.take_line({0, 1}, system_clock::now(), false, "rankstacks-answer 1 0 n2.cluster lacks");
  book.take_line({0, 1}, system_clock::now(), false, "rankstacks-answer 1 0 other lacks");
  REQUIRE(book.pages().size() == 3);
  CHECK_FALSE(book.pages()[0].lacks_tool);
  CHECK(book.pages()[1].lacks_tool);
  CHECK(book.pages()[2].node.name == "other");
}

TEST_CASE("by how much a node begins after the common start") {
  using std::chrono::milliseconds;
  const auto late_of = [](milliseconds clock_offset, std::optional<milliseconds> start_in) {
    AnswerBook book({"n1"}, "0", "ssh");
    const auto now = system_clock::now();
    book.set_start(start_in ? std::optional(now + *start_in) : std::nullopt);
    const auto clock = std::chrono::duration_cast<milliseconds>((now + clock_offset).time_since_epoch());
    book.take_line({0}, now - milliseconds(20), false, fmt::format("rankstacks-answer 1 0 n1 hello {}", clock.count()));
    return book.pages()[0].node.late_ms;
  };
  CHECK(late_of(milliseconds(0), milliseconds(900)) == 0.0);
  const auto late = late_of(milliseconds(0), milliseconds(-700));
  REQUIRE(late);
  CHECK(*late >= 699.0);
  CHECK(*late <= 701.0);
  CHECK_FALSE(late_of(milliseconds(0), std::nullopt));
  // Another clock.
  CHECK_FALSE(late_of(std::chrono::hours(1), milliseconds(900)));
  CHECK_FALSE(late_of(-std::chrono::hours(1), milliseconds(900)));
}

Answer answer_of(const NodeReply& reply) {
  const auto lines = answer_lines(reply, "0", "n1");
  Answer answer;
  for (std::size_t at = 0; at < lines->size(); at = lines->find('\n', at) + 1)
    answer.add(*parse_answer_line(lines->substr(at, lines->find('\n', at) - at), "0"));
  return answer;
}

// A report of these ranks of a world of 8, two on each node, and of `nodes`.
NodeReply report_of(const std::vector<int>& ranks, std::vector<NodeSnapshot> nodes = {}) {
  JobSnapshot job;
  for (const int number : ranks) {
    RankSnapshot& rank = job.ranks.emplace_back();
    rank.rank = number;
    rank.world_size = 8;
    rank.local_world_size = 2;
    rank.host = fmt::format("n{}", number / 2 + 1);
    rank.pid = 100 + number;
  }
  job.nodes = std::move(nodes);
  return {0, "", report::json_report(job, analyzers::analyze(job))};
}

TEST_CASE("what a gateway says of the nodes behind it") {
  const auto asked = [](const char* name, const char* gateway) {
    NodeAnswer answer;
    answer.node.name = name;
    answer.gateway = gateway;
    return answer;
  };
  const auto answers = [&](NodeReply of_gateway) {
    std::vector<NodeAnswer> all = {asked("n1", ""), asked("n2", "gw"), asked("n3", "gw"), asked("n4", ""),
                                   asked("gw", "")};
    all[0].answer = answer_of(report_of({0, 1}));
    all[3].answer = answer_of(report_of({6, 7}));
    all[4].answer = answer_of(of_gateway);
    all[4].is_gateway = true;
    all[4].node.clock_offset_ms = 20;
    all[4].node.clock_error_ms = 5;
    return all;
  };
  NodeSnapshot seen, silent;
  seen.name = "n2";
  seen.ranks = {2, 3};
  seen.clock_offset_ms = 100;
  seen.clock_error_ms = 1;
  seen.late_ms = 7;
  silent.name = "n3";
  silent.fault = NodeFault::kNoRoute;
  silent.said = "no route to host";
  const NodeReply reply = report_of({2, 3}, {seen, silent});
  const JobSnapshot job = join_answers(answers(reply));
  REQUIRE(job.nodes.size() == 4);
  CHECK(job.ranks.size() == 6);
  CHECK(job.nodes[1].name == "n2");
  CHECK(job.nodes[1].ranks.empty());
  CHECK(job.nodes[1].clock_offset_ms == 120.0);
  CHECK(job.nodes[1].clock_error_ms == 6.0);
  CHECK(job.nodes[1].late_ms == 7.0);
  CHECK(job.nodes[2].fault == NodeFault::kNoRoute);
  CHECK(job.nodes[2].said == "no route to host");
  CHECK(job.nodes[2].ranks == std::vector<int>{4, 5});

  // What it says of others counts for nothing, nor do ranks that the job does not have.
  NodeSnapshot other = silent;
  other.name = "n4";
  NodeSnapshot wrong = seen;
  wrong.ranks = {2, 3, 1 << 30, -7};
  const JobSnapshot claimed = join_answers(answers(report_of({2, 3}, {wrong, silent, other})));
  CHECK(claimed.nodes[3].fault == NodeFault::kNone);
  CHECK(claimed.nodes[2].ranks == std::vector<int>{4, 5});

  // A gateway that is asked itself says which ranks each node has shown, and of silent ones nothing.
  const JobSnapshot of_gateway = join_answers(answers(reply), true);
  CHECK(of_gateway.nodes[0].ranks == std::vector<int>{0, 1});
  CHECK(of_gateway.nodes[1].ranks == std::vector<int>{2, 3});
  CHECK(of_gateway.nodes[2].ranks.empty());

  // One whose answer is damaged, or that leaves out a node.
  for (const NodeReply& bad : {NodeReply{0, "", "{"}, report_of({}, {silent})}) {
    const JobSnapshot without = join_answers(answers(bad));
    REQUIRE(without.nodes.size() == 4);
    CHECK(without.nodes[1].fault == NodeFault::kMalformed);
    if (bad.report == "{") CHECK(without.nodes[1].said.starts_with("its gateway gw: "));
    else CHECK(without.nodes[1].said == "its gateway gw says nothing of it");
    CHECK(without.nodes[1].ranks == std::vector<int>{2, 3});
    CHECK(without.ranks.size() == 4);
  }
}

TEST_CASE("nodes that a gateway has not reached are asked without it") {
  using Hosts = std::vector<std::string>;
  const auto word = [](const char* name, NodeFault fault) {
    NodeSnapshot node;
    node.name = name;
    node.fault = fault;
    node.said = "the gateway's word";
    return node;
  };
  const auto answers = [&] {
    std::vector<NodeAnswer> all(6);
    const char* names[] = {"n1", "n2", "n3", "n4", "n5", "gw"};
    for (std::size_t i = 0; i < all.size(); ++i) all[i].node.name = names[i];
    for (std::size_t i = 0; i < 5; ++i) all[i].gateway = "gw";
    all[5].is_gateway = true;
    // Of n5 it says nothing.
    all[5].answer = answer_of(report_of({0, 1}, {word("n1", NodeFault::kNone), word("n2", NodeFault::kHostKey),
                                                 word("n3", NodeFault::kLogin), word("n4", NodeFault::kNoRoute)}));
    return all;
  };
  Hosts asked;
  const auto ask = [&](const Hosts& hosts) {
    asked = hosts;
    std::vector<NodeAnswer> direct(hosts.size());
    for (std::size_t i = 0; i < hosts.size(); ++i) direct[i].node.name = hosts[i];
    direct[0].node.clock_offset_ms = 0;
    direct[0].answer = answer_of(report_of({2, 3}));
    direct[1].node.fault = NodeFault::kConnectTimeout;  // without a word
    direct[2].node.fault = NodeFault::kCannotRun;
    direct[2].node.clock_offset_ms = 0;
    return direct;
  };
  // They have begun to speak, and were not heard to the end.
  const auto ask_too_late = [&](const Hosts& hosts) {
    std::vector<NodeAnswer> direct = ask(hosts);
    for (NodeAnswer& answer : direct) answer.node.clock_offset_ms = 0;
    direct[0].node.fault = NodeFault::kTimeout;
    direct[1].node.fault = NodeFault::kInterrupted;
    direct[2].node.fault = NodeFault::kConnectionLost;
    for (NodeAnswer& answer : direct) answer.answer.reset();
    return direct;
  };
  const JobSnapshot job = join_answers(answers(), false, ask);
  CHECK(asked == Hosts{"n2", "n3", "n5"});
  REQUIRE(job.nodes.size() == 5);
  CHECK(job.ranks.size() == 4);
  CHECK(job.nodes[1].name == "n2");
  CHECK(job.nodes[1].fault == NodeFault::kNone);
  CHECK(job.nodes[2].fault == NodeFault::kLogin);
  CHECK(job.nodes[2].said == "the gateway's word");
  CHECK(job.nodes[3].fault == NodeFault::kNoRoute);
  CHECK(job.nodes[4].fault == NodeFault::kCannotRun);

  CHECK(join_answers(answers(), true, ask).nodes[1].ranks == std::vector<int>{2, 3});
  CHECK(join_answers(answers(), false, ask_too_late).nodes == join_answers(answers()).nodes);

  // The gateway's answer is damaged.
  std::vector<NodeAnswer> damaged = answers();
  damaged[5].answer = answer_of(NodeReply{0, "", "{"});
  join_answers(std::move(damaged), false, ask);
  CHECK(asked == Hosts{"n1", "n2", "n3", "n4", "n5"});

  // There is no time left, or nobody to ask.
  const JobSnapshot late = join_answers(answers(), false, [](const Hosts&) { return std::vector<NodeAnswer>(); });
  CHECK(late.nodes == join_answers(answers()).nodes);
  CHECK(late.nodes[1].fault == NodeFault::kHostKey);
  CHECK(late.nodes[4].fault == NodeFault::kMalformed);
}

TEST_CASE("a gateway's clock that is not this machine's") {
  std::vector<NodeAnswer> answers(2);
  answers[0].node.name = "n1";
  answers[0].gateway = "gw";
  answers[1].node.name = "gw";
  answers[1].is_gateway = true;
  answers[1].node.clock_offset_ms = 5000;
  answers[1].node.clock_error_ms = 5;
  NodeSnapshot seen;
  seen.name = "n1";
  seen.clock_offset_ms = 1;
  seen.clock_error_ms = 1;
  seen.late_ms = 3;
  answers[1].answer = answer_of(report_of({0, 1}, {seen}));
  const JobSnapshot job = join_answers(std::move(answers));
  CHECK(job.nodes[0].clock_offset_ms == 5001.0);
  CHECK_FALSE(job.nodes[0].late_ms);
}

TEST_CASE("replies that are no report are their node's fault") {
  const auto fault_of = [](NodeReply reply) {
    std::vector<NodeAnswer> answers(1);
    answers[0].node.name = "n1";
    answers[0].answer = answer_of(reply);
    return join_answers(std::move(answers)).nodes.front();
  };
  CHECK(fault_of({kStatusNoRanks, "rankstacks: no process has a rank\nhint: name it\n", ""}).fault ==
        NodeFault::kNoRanks);
  CHECK(fault_of({kStatusSeveralJobs, "", ""}).fault == NodeFault::kSeveralJobs);
  CHECK(fault_of({kStatusHidden, "", ""}).fault == NodeFault::kNotPermitted);
  const NodeSnapshot failed = fault_of({2, "rankstacks: out of memory\nhint: --memory\n", ""});
  CHECK(failed.fault == NodeFault::kTool);
  CHECK(failed.said == "out of memory");
  CHECK(failed.hint == "--memory");
  CHECK(fault_of({0, "", "{"}).fault == NodeFault::kMalformed);
  CHECK(fault_of({0, "", "[[[[[[[["}).fault == NodeFault::kMalformed);
  std::vector<NodeAnswer> broken(1);
  broken[0].answer.emplace();
  CHECK(join_answers(std::move(broken)).nodes.front().fault == NodeFault::kMalformed);
}

}  // namespace
}  // namespace rankstacks::nodes
