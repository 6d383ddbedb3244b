#include "report/markdown_text.h"

#include <algorithm>

#include "base/text.h"
#include "report/sanitize.h"

namespace rankstacks::report {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }

// "16.7" milliseconds, version "2.28.9": dots between digits mean nothing.
bool is_decimal(std::string_view word) {
  constexpr std::size_t kLongest = 16;
  return word.size() <= kLongest && contains(word, '.') && is_digit(word.front()) && is_digit(word.back()) &&
         !contains(word, "..") && std::all_of(word.begin(), word.end(), [](char c) { return is_digit(c) || c == '.'; });
}

// Letters, digits, hyphens, commas and apostrophes mean nothing inside of a word, with two exceptions: "GH-1" is an
// issue (and so is "PROJ-1" where a tracker is connected), seven hex digits are a commit.
bool is_plain(std::string_view word) {
  if (is_decimal(word)) return true;
  std::size_t hex = 0;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char c = word[i];
    if (!is_letter(c) && !is_digit(c) && c != '-' && c != ',' && c != '\'') return false;
    if (c == '-' && i > 0 && is_letter(word[i - 1]) && i + 1 < word.size() && is_digit(word[i + 1])) return false;
    if (c == '-' && i > 0 && is_digit(word[i - 1]) && i + 1 < word.size() && is_digit(word[i + 1]) &&
        std::any_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(i), is_letter))
      return false;
    hex = is_hex(c) ? hex + 1 : 0;
    constexpr std::size_t kShortestCommit = 7;
    if (hex >= kShortestCommit) return false;
  }
  const bool rule_or_item = !word.empty() && (word.front() == '-' || word.back() == '-');
  return !rule_or_item;
}

std::size_t longest_run(std::string_view text, char of) {
  std::size_t longest = 0, run = 0;
  for (const char c : text) longest = std::max(longest, run = c == of ? run + 1 : 0);
  return longest;
}

// Whether it begins with a parenthesis of the sentence, "(rank 1)" or "(at", and not with one of its own,
// "(%rdi),%rax".
bool opens_aside(std::string_view word) {
  if (word.front() != '(') return false;
  std::size_t open = 0;
  for (std::size_t i = 0; i < word.size(); ++i) {
    open += word[i] == '(';
    if (word[i] == ')' && --open == 0) return word.find_first_not_of(").,;:", i) == std::string_view::npos;
  }
  return true;
}

// One word with the punctuation of the sentence around it.
std::string word_in_markdown(std::string_view word) {
  if (word == "->") return "→";
  std::string before, after;
  while (word.size() > 1 && opens_aside(word)) before += '(', word.remove_prefix(1);
  while (word.size() > 1 && (word.back() == ',' || word.back() == ';' || word.back() == '.' || word.back() == ':')) {
    after.insert(after.begin(), word.back());
    word.remove_suffix(1);
  }
  while (word.size() > 1 && word.back() == ')' &&
         std::count(word.begin(), word.end(), '(') < std::count(word.begin(), word.end(), ')')) {
    after.insert(after.begin(), ')');
    word.remove_suffix(1);
  }
  return before + (is_plain(word) ? std::string(word) : markdown_code(word)) + after;
}

struct LookAlike {
  char from;
  std::string_view to;
};
// Mermaid gives these a meaning in labels: entities (#35;), HTML, Markdown (`...`), directives (%%{...}%%).
constexpr LookAlike kLookAlikes[] = {{'"', "'"},  {'`', "'"}, {'<', "‹"}, {'>', "›"}, {'&', "+"},  {'#', "♯"},
                                     {'@', "＠"}, {';', ","}, {'{', "("}, {'}', ")"}, {'%', "％"}, {'|', "¦"},
                                     {'\\', "/"}, {'*', "∗"}, {'~', "∼"}, {'$', "?"}, {'!', "?"},  {'^', "?"}};

// The end of the word at the start of the text. A call with arguments is one: "read(fd 1 -> /a)".
std::size_t end_of_word(std::string_view text) {
  constexpr std::size_t kLongestCall = 120;
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::size_t open = text.substr(0, end).find('(');
  if (open == 0 || open == std::string_view::npos || contains(text.substr(0, end), ')')) return end;
  const std::size_t close = text.substr(0, kLongestCall).find(')', end);
  const bool nested = close != std::string_view::npos && contains(text.substr(end, close - end), '(');
  if (close == std::string_view::npos || nested) return end;
  return std::min(text.find(' ', close), text.size());
}

// Where a word ends that is part of a command: not at the punctuation of the sentence.
std::size_t end_in_command(std::string_view word) {
  const std::size_t last = word.find_last_not_of(",;.:)");
  return last == std::string_view::npos ? 0 : last + 1;
}

// "--threads"
bool is_option(std::string_view word) {
  return word.size() > 3 && word.starts_with("--") && is_letter(word[2]) &&
         std::all_of(word.begin() + 3, word.end(), [](char c) { return is_letter(c) || is_digit(c) || c == '-'; });
}

// What may stand behind an option: a number ("40", "0-3"), a name for what is to be put there ("N", "PID"), or one of
// the words that options of this tool take. Other words continue the sentence.
bool is_option_value(std::string_view word) {
  constexpr std::string_view kWords[] = {"all", "ask", "json", "text", "markdown", "html", "folded"};
  if (word.empty()) return false;
  return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords) ||
         std::all_of(word.begin(), word.end(), [](char c) { return is_digit(c) || c == '-' || c == ','; }) ||
         std::all_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

// The end of the options at the start of the text, each with its value: "--threads all --rank 3". 0: there is none.
std::size_t end_of_options(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view word = text.substr(at, text.find(' ', at) - at);
    const std::size_t length = end_in_command(word);
    const std::string_view bare = word.substr(0, length);
    const bool belongs = is_option(bare) || (end > 0 && is_option_value(bare));
    if (!belongs) break;
    end = at + length;
    if (length < word.size()) break;  // the sentence goes on
    at += word.size() + 1;
  }
  return end;
}

}  // namespace

std::string markdown_sentence(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = text.front() == '(' ? 1 : 0;
    if (const std::size_t options = end_of_options(text.substr(open)); options > 0) {
      const std::size_t end = std::min(text.find(' ', open + options), text.size());
      out += (out.empty() ? "" : " ") + std::string(text.substr(0, open)) + markdown_code(text.substr(open, options));
      out += text.substr(open + options, end - open - options);  // punctuation
      text.remove_prefix(std::min(end + 1, text.size()));
      continue;
    }
    const std::size_t end = end_of_word(text);
    if (end > 0) out += (out.empty() ? "" : " ") + word_in_markdown(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string markdown_code(std::string_view text) {
  if (text.empty()) return "";
  const std::string fence(longest_run(text, '`') + 1, '`');
  const bool blanks = text.front() == '`' || text.back() == '`' || text.front() == ' ' || text.back() == ' ';
  const std::string_view blank = blanks ? " " : "";
  return fence + std::string(blank) + std::string(text) + std::string(blank) + fence;
}

std::string markdown_block(const std::vector<std::string>& lines) {
  std::size_t longest = 2;
  for (const std::string& line : lines) longest = std::max(longest, longest_run(line, '`'));
  const std::string fence(longest + 1, '`');
  std::string out = fence + "text\n";
  for (const std::string& line : lines) {
    // GitLab searches lines that begin with "/" for quick actions, and finds the ends of blocks of code by "```".
    const bool acts = line.starts_with('/') || line.starts_with('`') || line.starts_with('~');
    out += (acts ? " " : "") + line + '\n';
  }
  return out + fence + '\n';
}

std::string mermaid_label(std::string_view text, std::size_t columns) {
  std::string out;
  for (const char c : cut_end(text, columns)) {
    const auto look_alike =
        std::find_if(std::begin(kLookAlikes), std::end(kLookAlikes), [&](const LookAlike& l) { return l.from == c; });
    if (look_alike != std::end(kLookAlikes)) out += look_alike->to;
    else out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return '"' + out + '"';
}

std::string cut_to_bytes(std::string_view text, std::size_t bytes) {
  constexpr std::string_view kMark = "…";
  if (text.size() <= bytes) return std::string(text);
  std::size_t end = bytes < kMark.size() ? 0 : bytes - kMark.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)) + std::string(kMark);
}

}  // namespace rankstacks::report
