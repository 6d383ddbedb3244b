#include "nodes/answer_lines.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "base/sha256.h"
#include "report/packed.h"
#include "report/report_file.h"

namespace rankstacks::nodes {
namespace {

constexpr std::string_view kReplyWord = "rankstacks-node";
constexpr std::size_t kMaxSaid = std::size_t{1} << 20;

// The next word, which it removes.
std::string_view take_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

template <class N>
bool parse(std::string_view word, N& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return !word.empty() && error == std::errc() && end == word.data() + word.size();
}

std::optional<unsigned> value_of_base64(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<unsigned>(c - 'A');
  if (c >= 'a' && c <= 'z') return static_cast<unsigned>(c - 'a') + 26;
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0') + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return std::nullopt;
}

// RFC 4648, with padding.
std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  unsigned bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto value = i < text.size() - padding ? value_of_base64(text[i]) : std::optional(0u);
    if (!value) return std::nullopt;
    bits = bits << 6 | *value;
    if (i % 4 != 3) continue;
    for (const unsigned shift : {16u, 8u, 0u}) bytes += static_cast<char>(bits >> shift & 0xff);
    bits = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

bool is_hex_sum(std::string_view text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// The words behind the kind.
bool parse_rest(std::string_view rest, AnswerLine& line) {
  switch (line.kind) {
    case AnswerKind::kHello: return parse(rest, line.clock_ms);
    case AnswerKind::kLacks: return rest.empty();
    case AnswerKind::kFault:
      line.fault = take_word(rest);
      line.text = rest;
      return !line.fault.empty();
    case AnswerKind::kData: {
      if (!parse(take_word(rest), line.number)) return false;
      auto bytes = from_base64(rest);
      if (!bytes) return false;
      line.bytes = std::move(*bytes);
      return true;
    }
    case AnswerKind::kEnd:
      if (!parse(take_word(rest), line.number) || !parse(take_word(rest), line.size)) return false;
      line.sha256 = rest;
      return is_hex_sum(rest);
  }
  return false;
}

std::optional<AnswerKind> kind_of(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, AnswerKind>, 5> kWords = {{{"hello", AnswerKind::kHello},
                                                                              {"lacks", AnswerKind::kLacks},
                                                                              {"fault", AnswerKind::kFault},
                                                                              {"data", AnswerKind::kData},
                                                                              {"end", AnswerKind::kEnd}}};
  for (const auto& [known, kind] : kWords)
    if (known == word) return kind;
  return std::nullopt;
}

Result<NodeReply> parse_reply(std::string_view text, const std::string& subject) {
  const std::size_t end = text.substr(0, 128).find('\n');
  const auto malformed = [&] {
    return fail({.code = ErrorCode::kMalformed, .subject = subject, .what = "an answer without its first line"});
  };
  if (end == std::string_view::npos) return malformed();
  std::string_view head = text.substr(0, end);
  NodeReply reply;
  int version = 0;
  std::size_t said = 0, report = 0;
  if (take_word(head) != kReplyWord || !parse(take_word(head), version) || version != kAnswerVersion ||
      !parse(take_word(head), reply.exit_status) || !parse(take_word(head), said) || !parse(head, report))
    return malformed();
  text.remove_prefix(end + 1);
  if (said > kMaxSaid || said > text.size() || report != text.size() - said) return malformed();
  reply.said = text.substr(0, said);
  reply.report = text.substr(said);
  return reply;
}

}  // namespace

std::string hex_sha256(std::string_view bytes) {
  std::string hex;
  for (const std::uint8_t byte : sha256(bytes)) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string answer_prefix(std::string_view nonce, std::string_view node) {
  return fmt::format("{} {} {} {} ", kAnswerWord, kAnswerVersion, nonce, node);
}

std::string answer_line(std::string_view prefix, std::string_view text) {
  std::string line = fmt::format("{:{}}{}{}", "", kMinSpaces, prefix, text);
  line.resize(((line.size() + kMinSpaces) / kLineBytes + 1) * kLineBytes, ' ');
  line.back() = '\n';
  return line;
}

std::vector<std::string_view> split_joined_lines(std::string_view line) {
  std::vector<std::string_view> parts;
  for (std::size_t at = line.find(kAnswerWord); at != std::string_view::npos;) {
    at = line.find(kAnswerWord, at + kAnswerWord.size());
    parts.push_back(line.substr(0, at));
    if (at == std::string_view::npos) return parts;
    line.remove_prefix(at);
    at = 0;
  }
  return {line};
}

std::optional<AnswerLine> parse_answer_line(std::string_view text, std::string_view nonce) {
  while (text.ends_with('\r') || text.ends_with('\n') || text.ends_with(' ')) text.remove_suffix(1);
  if (text.size() > kMaxAnswerLine) return std::nullopt;
  const std::size_t at = text.find(kAnswerWord);
  if (at == std::string_view::npos) return std::nullopt;
  AnswerLine line;
  line.label = text.substr(0, at);
  text.remove_prefix(at);
  take_word(text);
  int version = 0;
  if (!parse(take_word(text), version) || version != kAnswerVersion || take_word(text) != nonce) return std::nullopt;
  line.node = take_word(text);
  const auto kind = kind_of(take_word(text));
  if (line.node.empty() || !kind) return std::nullopt;
  line.kind = *kind;
  if (!parse_rest(text, line)) return std::nullopt;
  return line;
}

Result<std::string> answer_lines(const NodeReply& reply, std::string_view nonce, std::string_view node) {
  const std::string_view said = std::string_view(reply.said).substr(0, kMaxSaid);
  std::string text =
      fmt::format("{} {} {} {} {}\n", kReplyWord, kAnswerVersion, reply.exit_status, said.size(), reply.report.size());
  text += said;
  text += reply.report;
  const auto packed = report::pack(text, report::Packing::kZstd, "answer");
  if (!packed) return fail(packed.error());
  const std::string prefix = answer_prefix(nonce, node);
  constexpr std::size_t kRest =
      std::string_view("data  \n").size() + 8 + 2 * kMinSpaces;  // with the number of the line
  const std::size_t room = kLineBytes - std::min(kLineBytes, prefix.size() + kRest);
  const std::size_t bytes_in_line = std::max(kMinBytesInLine, room / 4 * 3);
  std::string lines;
  std::size_t number = 0;
  for (std::size_t at = 0; at < packed->size(); at += bytes_in_line)
    lines += answer_line(
        prefix, fmt::format("data {} {}", number++, base64(std::string_view(*packed).substr(at, bytes_in_line))));
  return lines + answer_line(prefix, fmt::format("end {} {} {}", number, packed->size(), hex_sha256(*packed)));
}

bool Answer::add(AnswerLine line) {
  if (line.kind == AnswerKind::kEnd) {
    const bool same = !end_ || (end_->number == line.number && end_->sha256 == line.sha256);
    contradicts_ |= !same;
    if (!end_) end_ = std::move(line);
    return same;
  }
  if (line.kind != AnswerKind::kData) return true;
  if (line.number > kMaxPackedAnswer / kMinBytesInLine || bytes_ + line.bytes.size() > kMaxPackedAnswer) {
    too_large_ = true;
    return true;
  }
  const auto [it, is_new] = chunks_.try_emplace(line.number, std::move(line.bytes));
  if (is_new) bytes_ += it->second.size();
  // try_emplace leaves the bytes of a line with a known number where they are.
  else if (it->second != line.bytes) return contradicts_ = true, false;
  return true;
}

Result<NodeReply> Answer::take(const std::string& subject) {
  const auto malformed = [&](std::string what) {
    return fail({.code = ErrorCode::kMalformed, .subject = subject, .what = std::move(what)});
  };
  if (too_large_)
    return fail({.code = ErrorCode::kLimit,
                 .subject = subject,
                 .what = fmt::format("an answer of more than {} bytes", kMaxPackedAnswer)});
  if (contradicts_) return malformed("two answers that differ");
  if (!end_) return malformed("an answer that breaks off");
  std::string bytes;
  bytes.reserve(bytes_);
  std::size_t next = 0;
  for (const auto& [number, chunk] : chunks_) {
    if (number != next++) break;
    bytes += chunk;
  }
  if (chunks_.size() != end_->number || next != end_->number)
    return malformed(fmt::format("an answer of {} lines, of which {} have come", end_->number, chunks_.size()));
  chunks_.clear();
  if (bytes.size() != end_->size || hex_sha256(bytes) != end_->sha256)
    return malformed("an answer whose bytes have changed on their way");
  auto text = report::unpack(std::move(bytes), report::kMaxReportBytes, subject);
  if (!text) return fail(text.error());
  return parse_reply(*text, subject);
}

}  // namespace rankstacks::nodes
