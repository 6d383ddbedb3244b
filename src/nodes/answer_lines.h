// What a node prints about its ranks: lines of text that engines which prefix, interleave or reorder lines can carry
// (docs/clusters.md, "What travels").
//
//     rankstacks-answer 1 NONCE NODE hello CLOCK_MS
//     rankstacks-answer 1 NONCE NODE lacks
//     rankstacks-answer 1 NONCE NODE fault cannot-run TEXT
//     rankstacks-answer 1 NONCE NODE data 0 BASE64
//     rankstacks-answer 1 NONCE NODE data 1 BASE64
//     rankstacks-answer 1 NONCE NODE end LINES BYTES SHA256
//
// The bytes of all data lines in their order are one zstd frame; unpacked, "rankstacks-node 1 EXIT SAID REPORT\n" with
// SAID bytes of the tool's stderr and REPORT bytes of its stdout behind it, the latter as report/compact_form.h has
// documents, if it is JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rankstacks::nodes {

inline constexpr std::string_view kAnswerWord = "rankstacks-answer";
inline constexpr int kAnswerVersion = 1;
// mpirun passes on what it reads of a node's pipe, with pieces of other nodes in between: up to 4,095 bytes at a time
// (seen of Open MPI 4.1). So that these are whole lines, each takes a multiple of this, its newline included, and is
// written at once. Its first and last bytes are spaces: where pieces are a bit longer, the cuts are among these.
inline constexpr std::size_t kLineBytes = 819;
inline constexpr std::size_t kMinSpaces = 32;        // at each end
inline constexpr std::size_t kMinBytesInLine = 192;  // of the answer, next to a name of any length
inline constexpr std::size_t kMaxAnswerLine = 4096;
// Packed; the report of 64 ranks with 500 threads each takes about 2 MB.
inline constexpr std::size_t kMaxPackedAnswer = std::size_t{256} << 20;

enum class AnswerKind { kHello, kLacks, kFault, kData, kEnd };

struct AnswerLine {
  std::string label;  // what the engine has written before it: "node-1: "
  std::string node;   // how the node names itself
  AnswerKind kind = AnswerKind::kHello;
  std::int64_t clock_ms = 0;  // kHello: since 1970
  std::string fault, text;    // kFault
  std::size_t number = 0;     // kData: of the line; kEnd: of all data lines
  std::string bytes;          // kData
  std::size_t size = 0;       // kEnd: of all bytes
  std::string sha256;         // kEnd: of all bytes, in hex
};

// The line in parts that each begin with kAnswerWord, but for the first: more than one if a cut was among spaces.
std::vector<std::string_view> split_joined_lines(std::string_view line);

// std::nullopt: the line is none, or is damaged, or of another run. `nonce`: that of this run.
std::optional<AnswerLine> parse_answer_line(std::string_view line, std::string_view nonce);

// `text` behind `prefix`, with spaces around it, and its newline.
std::string answer_line(std::string_view prefix, std::string_view text);

// What the tool on a node has printed.
struct NodeReply {
  int exit_status = 0;
  std::string said;    // stderr
  std::string report;  // stdout, or its compact form
};

// All lines of `reply` but hello, each with its newline.
Result<std::string> answer_lines(const NodeReply& reply, std::string_view nonce, std::string_view node);
// "rankstacks-answer 1 NONCE NODE "
std::string answer_prefix(std::string_view nonce, std::string_view node);

// Collects the data lines of one node, in any order.
class Answer {
 public:
  // Lines beyond the bounds are dropped, and make the answer kMalformed. Returns false for a line that contradicts an
  // earlier one.
  bool add(AnswerLine line);
  bool has_ended() const { return end_.has_value() && chunks_.size() >= end_->number; }
  bool is_empty() const { return chunks_.empty() && !end_; }
  // kMalformed: a line is missing, or the sum is another one; kLimit: it is too large, packed or unpacked.
  Result<NodeReply> take(const std::string& subject);

 private:
  std::map<std::size_t, std::string> chunks_;
  std::size_t bytes_ = 0;
  bool contradicts_ = false, too_large_ = false;
  std::optional<AnswerLine> end_;
};

std::string hex_sha256(std::string_view bytes);

}  // namespace rankstacks::nodes
