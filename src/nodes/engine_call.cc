#include "nodes/engine_call.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"
#include "model/host_set.h"
#include "report/shell_quoted.h"

namespace rankstacks::nodes {
namespace {

// The value of a word in braces: no word, one, or several.
std::vector<std::string> value_of(std::string_view name, const EngineSettings& settings,
                                  const std::vector<std::string>& hosts) {
  if (name == "host") return {hosts.front()};
  if (name == "hosts") return {format_host_set(hosts, SIZE_MAX)};
  if (name == "list") return {joined(hosts, ",")};
  if (name == "slots") return {fmt::format("{}:1", fmt::join(hosts, ":1,"))};
  if (name == "count") return {std::to_string(hosts.size())};
  if (name == "fanout") return {std::to_string(settings.fanout)};
  if (name == "limit") return {std::to_string(settings.node_limit.count())};
  if (name == "connect") return {std::to_string(settings.connect.count())};
  if (name == "job") return {settings.job};
  if (name == "namespace") return {settings.space};
  if (name == "container" && !settings.container.empty()) return {"-c", settings.container};
  if (name == "target") return {settings.container};
  if (name == "image") return {settings.image};
  if (name == "overlap" && settings.overlaps) return {"--overlap"};
  if (name == "root" && settings.as_root) return {"--allow-run-as-root"};
  if (name == "options") return settings.options;
  return {};
}

void add_words(std::vector<std::string>& call, std::string_view text, const EngineSettings& settings,
               const std::vector<std::string>& hosts) {
  while (!text.empty()) {
    const std::size_t blank = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, blank);
    text.remove_prefix(std::min(blank + 1, text.size()));
    const std::size_t open = word.find('{'), close = word.find('}');
    if (open == std::string_view::npos || close == std::string_view::npos) {
      if (!word.empty()) call.emplace_back(word);
      continue;
    }
    std::vector<std::string> values = value_of(word.substr(open + 1, close - open - 1), settings, hosts);
    for (std::string& value : values)
      call.push_back(std::string(word.substr(0, open)) + value + std::string(word.substr(close + 1)));
  }
}

}  // namespace

std::string shown_call(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + report::shell_quoted(word);
  return line;
}

// $'...' of report::shell_quoted is not known to every shell that a node may have.
std::string posix_line(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) {
      if (c == '\'') line += "'\\''";
      else line += c;
    }
    line += '\'';
  }
  return line;
}

std::vector<std::string> engine_call(const EngineSettings& settings, const std::vector<std::string>& hosts,
                                     const std::vector<std::string>& words, bool with_input) {
  const known::EngineRule& rule = known::rule_of(settings.engine);
  std::vector<std::string> call = {std::string(rule.command)};
  std::string_view arguments = rule.arguments;
  // The option about its input belongs to the other options: flux has a word of its own before them.
  const std::size_t options = arguments.find("{options}");
  add_words(call, arguments.substr(0, options), settings, hosts);
  if (!with_input) add_words(call, rule.without_input, settings, hosts);
  add_words(call, arguments.substr(options), settings, hosts);
  if (rule.through_shell) call.push_back(posix_line(words));
  else call.insert(call.end(), words.begin(), words.end());
  return call;
}

}  // namespace rankstacks::nodes
