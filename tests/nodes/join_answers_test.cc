#include "nodes/join_answers.h"

#include <chrono>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <catch2/catch.hpp>

#include "nodes/answer_book.h"

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

TEST_CASE("replies that are no report are their node's fault") {
  const auto fault_of = [](NodeReply reply) {
    std::vector<NodeAnswer> answers(1);
    answers[0].node.name = "n1";
    const auto lines = answer_lines(reply, "0", "n1");
    Answer answer;
    for (std::size_t at = 0; at < lines->size(); at = lines->find('\n', at) + 1)
      answer.add(*parse_answer_line(lines->substr(at, lines->find('\n', at) - at), "0"));
    answers[0].answer = std::move(answer);
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
