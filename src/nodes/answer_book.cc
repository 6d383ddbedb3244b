#include "nodes/answer_book.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "known/engines.h"

namespace rankstacks::nodes {
namespace {

using std::chrono::system_clock;

constexpr std::size_t kNone = SIZE_MAX;
constexpr std::size_t kMaxExtraNodes = 65536;

std::string_view short_name(std::string_view name) { return name.substr(0, name.find('.')); }

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return "";
  text = text.substr(first, text.find_last_not_of(kBlank) - first + 1);
  return std::string(text.substr(0, AnswerBook::kMaxSaid));
}

// The host of a prefix "node-1: ", as clush and pdsh write it.
std::string_view host_of_label(std::string_view label) {
  while (!label.empty() && (label.back() == ' ' || label.back() == ':')) label.remove_suffix(1);
  return label;
}

bool is_part_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.'; }

bool contains_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const bool starts = at == 0 || !is_part_of_name(text[at - 1]);
    const std::size_t end = at + word.size();
    // A full stop or colon behind a name belongs to the sentence.
    const bool ends = end == text.size() || !is_part_of_name(text[end]) ||
                      (text[end] == '.' && (end + 1 == text.size() || !is_part_of_name(text[end + 1])));
    if (starts && ends) return true;
  }
  return false;
}

NodeFault fault_of_word(std::string_view word) {
  if (word == "cannot-copy") return NodeFault::kCannotCopy;
  if (word == "cannot-run") return NodeFault::kCannotRun;
  if (word == "timeout") return NodeFault::kTimeout;
  return NodeFault::kOther;
}

std::string_view hint_for(NodeFault fault) {
  switch (fault) {
    case NodeFault::kCannotRun:
      return "this build needs libraries that the node lacks: one that scripts/package has made needs none";
    case NodeFault::kTimeout: return "--node-timeout and --timeout give it more time";
    default: return "";
  }
}

}  // namespace

AnswerBook::AnswerBook(const std::vector<std::string>& hosts, std::string nonce, std::string engine)
    : nonce_(std::move(nonce)) {
  for (const std::string& host : hosts) {
    by_name_.try_emplace(host, pages_.size());
    const auto [it, is_new] = by_short_name_.try_emplace(std::string(short_name(host)), pages_.size());
    if (!is_new) it->second = kNone;
    NodePage& page = pages_.emplace_back();
    page.node.name = host;
    page.node.engine = engine;
  }
}

// A call for one node can only be answered by that node. Otherwise the engine's label says which it is, then the node's
// own name. A node that is none of the asked ones gets a page of its own.
std::size_t AnswerBook::page_for(const std::vector<std::size_t>& asked, const AnswerLine& line) {
  if (asked.size() == 1) return asked.front();
  for (const std::string_view name : {host_of_label(line.label), std::string_view(line.node)}) {
    if (const auto it = by_name_.find(name); it != by_name_.end()) return it->second;
    const auto it = by_short_name_.find(short_name(name));
    if (it != by_short_name_.end() && it->second != kNone) return it->second;
  }
  if (pages_.size() >= kMaxExtraNodes) return kNone;
  by_name_.try_emplace(line.node, pages_.size());
  NodePage& page = pages_.emplace_back();
  page.node.name = line.node;
  page.node.engine = pages_.front().node.engine;
  return pages_.size() - 1;
}

std::size_t AnswerBook::add_page(const std::string& name) {
  NodePage& page = pages_.emplace_back();
  page.node.name = name;
  page.node.engine = pages_.front().node.engine;
  return pages_.size() - 1;
}

void AnswerBook::take_answer(NodePage& page, AnswerLine line, system_clock::time_point started) {
  switch (line.kind) {
    case AnswerKind::kHello: {
      // Sent at some moment between the start of the call and now.
      const auto ms = [](system_clock::time_point t) {
        return std::chrono::duration<double, std::milli>(t.time_since_epoch()).count();
      };
      const double before = ms(started), now = ms(system_clock::now());
      page.node.clock_offset_ms = static_cast<double>(line.clock_ms) - (before + now) / 2;
      page.node.clock_error_ms = (now - before) / 2;
      // If the clocks differ, what the node's says of the start is not when the others began.
      if (start_ && std::abs(*page.node.clock_offset_ms) <= *page.node.clock_error_ms + kToleratedClockMs)
        page.node.late_ms = std::max(static_cast<double>(line.clock_ms) - ms(*start_), 0.0);
      return;
    }
    case AnswerKind::kLacks: page.lacks_tool = true; return;
    case AnswerKind::kFault:
      page.has_fault = true;
      page.node.fault = fault_of_word(line.fault);
      page.node.said = trimmed(line.text);
      page.node.hint = hint_for(page.node.fault);
      return;
    case AnswerKind::kData:
    case AnswerKind::kEnd: page.answer.add(std::move(line)); return;
  }
}

void AnswerBook::take_refusal(const std::vector<std::size_t>& asked, std::string_view text) {
  const auto add = [&](std::vector<std::string>& lines) {
    if (lines.size() < kMaxSaidLines) lines.push_back(trimmed(text));
  };
  if (asked.size() == 1) return add(pages_[asked.front()].engine_said);
  // "node-1: ssh: connect to host ...", or a sentence that names nodes.
  const std::size_t colon = text.find(": ");
  const auto labelled = by_name_.find(text.substr(0, colon));
  if (colon != std::string_view::npos && labelled != by_name_.end()) {
    text.remove_prefix(colon + 2);
    return add(pages_[labelled->second].engine_said);
  }
  bool names_some = false;
  for (const std::size_t page : asked)
    if (contains_word(text, pages_[page].node.name)) names_some = true, add(pages_[page].engine_said);
  if (!names_some) add(said_of_all_[asked.front()]);
}

void AnswerBook::take_line(const std::vector<std::size_t>& asked, system_clock::time_point started, bool is_error,
                           std::string_view text) {
  bool is_answer = false;
  for (const std::string_view part : split_joined_lines(text)) {
    auto line = parse_answer_line(part, nonce_);
    if (!line) continue;
    is_answer = true;
    const std::size_t page = page_for(asked, *line);
    if (page != kNone) take_answer(pages_[page], std::move(*line), started);
  }
  if (is_answer) return;
  // A line of this run that is damaged is no message. What a node prints when somebody logs in is one on stdout only.
  if (is_error && !contains(text, kAnswerWord) && !trimmed(text).empty()) take_refusal(asked, text);
}

bool AnswerBook::is_answered(std::size_t page) const {
  const NodePage& p = pages_[page];
  return p.has_fault || p.lacks_tool || p.answer.has_ended();
}

bool AnswerBook::is_refused(std::size_t page) const {
  const std::vector<std::string>& lines = pages_[page].engine_said;
  return std::any_of(lines.begin(), lines.end(),
                     [](const std::string& line) { return known::refusal_in(line) != nullptr; });
}

void AnswerBook::forget(std::size_t page) {
  NodePage& p = pages_[page];
  NodePage fresh;
  fresh.node.name = p.node.name;
  fresh.node.engine = p.node.engine;
  p = std::move(fresh);
}

void AnswerBook::end_call(const std::vector<std::size_t>& asked, const Outcome& outcome, std::chrono::seconds limit) {
  const std::vector<std::string> of_all = std::exchange(said_of_all_[asked.front()], {});
  for (const std::size_t number : asked) {
    NodePage& page = pages_[number];
    if (is_answered(number)) continue;
    NodeSnapshot& node = page.node;
    const known::RefusalRule* rule = nullptr;
    const std::vector<std::string>& of_page = page.engine_said;
    for (const std::vector<std::string>* lines : {&of_page, &of_all})
      for (const std::string& line : *lines)
        if (rule == nullptr && (rule = known::refusal_in(line)) != nullptr) node.said = line;
    page.has_fault = true;
    if (rule != nullptr) {
      node.fault = rule->fault;
      node.hint = rule->hint.empty() ? hint_for(rule->fault) : rule->hint;
      continue;
    }
    const std::vector<std::string>& lines = page.engine_said.empty() ? of_all : page.engine_said;
    node.said = lines.empty() ? "" : lines.back();
    switch (outcome.end) {
      case CallEnd::kTimeout:
        node.fault = NodeFault::kTimeout;
        if (node.said.empty()) node.said = fmt::format("no answer within {} s", limit.count());
        break;
      case CallEnd::kInterrupted: node.fault = NodeFault::kInterrupted; break;
      case CallEnd::kNotStarted:
        node.fault = NodeFault::kNoEngine;
        node.said = std::strerror(outcome.status);
        break;
      case CallEnd::kDone:
      case CallEnd::kExited:
        node.fault = page.answer.is_empty() ? NodeFault::kOther : NodeFault::kMalformed;
        if (node.said.empty()) node.said = fmt::format("it ended with status {} and no answer", outcome.status);
        break;
    }
    node.hint = hint_for(node.fault);
  }
}

}  // namespace rankstacks::nodes
