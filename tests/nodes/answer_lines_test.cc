#include "nodes/answer_lines.h"

#include <algorithm>
#include <random>
#include <sstream>

#include <fmt/format.h>
#include <catch2/catch.hpp>

namespace rankstacks::nodes {
namespace {

constexpr const char* kNonce = "0123456789abcdef";

std::vector<std::string> lines_of(const NodeReply& reply) {
  const auto text = answer_lines(reply, kNonce, "node-1");
  REQUIRE(text);
  std::vector<std::string> lines;
  std::istringstream stream(*text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What the lines say; an error's message if they say nothing.
Result<NodeReply> read(const std::vector<std::string>& lines) {
  Answer answer;
  for (const std::string& line : lines)
    if (auto parsed = parse_answer_line(line, kNonce)) answer.add(std::move(*parsed));
  return answer.take("node-1");
}

std::string error_of(const std::vector<std::string>& lines) {
  const auto reply = read(lines);
  return reply ? "none" : reply.error().message();
}

// Bytes that zstd does not make small.
std::string noise(std::size_t size) {
  std::mt19937 random(7);
  std::string bytes;
  while (bytes.size() < size) bytes += static_cast<char>(random());
  return bytes;
}

TEST_CASE("an answer that engines prefix, reorder and repeat") {
  const NodeReply reply{1, "rankstacks: rank 3: ...\n", noise(40000)};
  std::vector<std::string> lines = lines_of(reply);
  CHECK(lines.size() > 40);
  for (std::string& line : lines) {
    CHECK(line.size() == kLineBytes - 1);
    CHECK(line.ends_with(std::string(kMinSpaces, ' ')));
    line = "node-1: " + line + "\r";
  }
  std::shuffle(lines.begin(), lines.end(), std::mt19937(1));
  lines.push_back(lines.front());
  lines.insert(lines.begin(), "node-1: Welcome to node-1!");
  const auto read_back = read(lines);
  REQUIRE(read_back);
  CHECK(read_back->exit_status == 1);
  CHECK(read_back->said == reply.said);
  CHECK(read_back->report == reply.report);
}

// What mpirun prints of two nodes that write at the same time.
std::string in_pieces(std::string_view a, std::string_view b, std::size_t size) {
  std::string text;
  for (std::size_t at = 0; at < std::max(a.size(), b.size()); at += size)
    for (const std::string_view of : {a, b})
      if (at < of.size()) text += of.substr(at, size);
  return text;
}

TEST_CASE("answers of two nodes, in pieces of which each is of one node") {
  const NodeReply replies[] = {{0, "", noise(30000)}, {1, "said", noise(9000)}};
  const std::string names[] = {"node-1", std::string(255, 'n')};
  std::string texts[2];
  for (const int n : {0, 1}) {
    const std::string prefix = answer_prefix(kNonce, names[n]);
    const auto lines = answer_lines(replies[n], kNonce, names[n]);
    REQUIRE(lines);
    texts[n] = answer_line(prefix, "hello 1700000000000") + *lines;
  }
  const std::size_t size = GENERATE(4095, 4096, 4094 + kLineBytes);
  Answer answers[2];
  std::istringstream stream(in_pieces(texts[0], texts[1], size));
  for (std::string line; std::getline(stream, line);)
    for (const std::string_view part : split_joined_lines(line))
      if (auto parsed = parse_answer_line(part, kNonce))
        answers[parsed->node == names[1] ? 1 : 0].add(std::move(*parsed));
  for (const int n : {0, 1}) {
    const auto reply = answers[n].take(names[n]);
    REQUIRE(reply);
    CHECK(reply->report == replies[n].report);
  }
}

TEST_CASE("an empty answer, and short ones of each length") {
  for (std::size_t size = 0; size < 5; ++size) {
    const auto reply = read(lines_of({2, "", std::string(size, 'x')}));
    REQUIRE(reply);
    CHECK(reply->exit_status == 2);
    CHECK(reply->report == std::string(size, 'x'));
  }
}

TEST_CASE("damaged answers") {
  const std::vector<std::string> whole = lines_of({0, "", noise(4000)});
  std::vector<std::string> lines = whole;
  lines.pop_back();
  CHECK(error_of(lines) == "node-1: an answer that breaks off");
  CHECK(error_of({}) == "node-1: an answer that breaks off");
  lines = whole;
  lines.erase(lines.begin() + 3);
  CHECK(error_of(lines) ==
        fmt::format("node-1: an answer of {} lines, of which {} have come", whole.size() - 1, whole.size() - 2));
  lines = whole;
  char& digit = lines[2][lines[2].find("data 2 ") + 20];
  digit = digit == 'A' ? 'B' : 'A';
  CHECK(error_of(lines) == "node-1: an answer whose bytes have changed on their way");
  lines.push_back(whole[2]);
  CHECK(error_of(lines) == "node-1: two answers that differ");
  lines = whole;
  lines.push_back(lines_of({0, "", "another"}).back());
  CHECK(error_of(lines) == "node-1: two answers that differ");
}

TEST_CASE("lines that are none") {
  const auto is_line = [](std::string_view text) { return parse_answer_line(text, kNonce).has_value(); };
  const std::string start = answer_prefix(kNonce, "node-1");
  CHECK(is_line(start + "lacks"));
  CHECK(is_line("a: b: " + start + "hello 1700000000000"));
  CHECK(is_line(start + "fault cannot-run error while loading shared libraries"));
  CHECK(is_line(start + "data 0 QUJD"));
  CHECK(is_line(start + "data 0 QUI="));
  for (const char* rest :
       {"", "lacks more", "hello", "hello x", "hello 99999999999999999999", "fault", "data", "data 0", "data -1 QUJD",
        "data 0 QUJ", "data 0 QU==D", "data 0 ====", "data 0 QU?D", "end", "end 1 1 x", "end 1 1 0123", "other"})
    CHECK_FALSE(is_line(start + rest));
  CHECK_FALSE(is_line("rankstacks-answer"));
  CHECK_FALSE(is_line("rankstacks-answer 2 0123456789abcdef node-1 lacks"));
  CHECK_FALSE(is_line("rankstacks-answer 1 fedcba9876543210 node-1 lacks"));
  CHECK_FALSE(is_line(start + "fault x " + std::string(kMaxAnswerLine, 'x')));
}

TEST_CASE("numbers and sizes of hostile answers are bounded") {
  Answer answer;
  AnswerLine line;
  line.kind = AnswerKind::kData;
  line.number = SIZE_MAX;
  line.bytes = "x";
  answer.add(line);
  CHECK(answer.take("node-1").error().code == ErrorCode::kLimit);
  // A sum that is right, of bytes that are no frame of zstd, or of one without the first line.
  const std::string start = answer_prefix(kNonce, "node-1");
  const auto sum = [](std::string_view bytes) { return hex_sha256(bytes); };
  CHECK(error_of({start + "data 0 QUJD", start + "end 1 3 " + sum("ABC")}) ==
        "node-1: an answer without its first line");
  CHECK(error_of({start + "data 0 KLUv/Q==", start + "end 1 4 " + sum("\x28\xb5\x2f\xfd")}) != "none");
}

}  // namespace
}  // namespace rankstacks::nodes
