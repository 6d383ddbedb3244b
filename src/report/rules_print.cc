#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "report/rules_file.h"
#include "report/rules_words.h"
#include "report/sanitize.h"
#include "report/text_style.h"

namespace rankstacks::report {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(std::string_view text) { return std::string(text); }

template <class Rule, class Table>
Json json_of_match(const Rule& rule, const Table& table) {
  const auto& match = match_word_of(table, rule.match);
  Json json;
  json["match"] = text_of(match.word);
  if (!rule.what.empty()) json[text_of(match.what_key)] = text_of(rule.what);
  if (!rule.file.empty()) json[text_of(match.file_key)] = text_of(rule.file);
  return json;
}

Json json_of(const known::NamedOperation& operation) {
  Json json = Json::object();
  if (!operation.call.empty()) json["call"] = text_of(operation.call);
  if (!operation.name.empty()) json["name"] = text_of(operation.name);
  if (operation.collective != known::Collective::kUnknown)
    json["collective"] = text_of(known::to_string(operation.collective));
  if (operation.kind != known::OperationKind::kNone)
    json["kind"] = text_of(word_of(known::kOperationKindWords, operation.kind));
  if (operation.generic) json["generic"] = true;
  return json;
}

Json json_of(const known::ActivityRule& rule) {
  Json json = json_of_match(rule, kActivityMatchWords);
  json["activity"] = text_of(word_of(known::kActivityWords, rule.activity));
  if (const Json operation = json_of(rule.operation); !operation.empty()) json["operation"] = operation;
  if (known::waits_for_ranks(rule.activity)) json["over_transport"] = rule.over_transport;
  json["source"] = text_of(rule.source);
  return json;
}

Json json_of(const known::RoleRule& rule, bool of_child) {
  Json json = json_of_match(rule, kRoleMatchWords);
  if (of_child) json["of"] = text_of(word_of(kRoleOfWords, kOfChild));
  json["role"] = known::to_string(rule.role);
  json["source"] = text_of(rule.source);
  return json;
}

Json json_of(const known::NameRule& rule) {
  return {{"prefix", text_of(rule.prefix)}, {"role", known::to_string(rule.role)}, {"source", text_of(rule.source)}};
}

Json json_of(const known::IdleRule& rule) {
  Json json = json_of_match(rule, kIdleMatchWords);
  json["role"] = known::to_string(rule.role);
  json["wait"] = text_of(word_of(kWaitWords, rule.wait));
  json["source"] = text_of(rule.source);
  return json;
}

Json json_of(const known::FileRule& rule) {
  return {{text_of(word_of(kFileMatchKeys, rule.match)), text_of(rule.file)}, {"source", text_of(rule.source)}};
}

Json json_of(const known::PlaceRule& rule) {
  Json json = {{"place", text_of(word_of(kPlaceWords, rule.place))}};
  if (!rule.what.empty()) json["function"] = text_of(rule.what);
  json[text_of(word_of(kFileMatchKeys, rule.match))] = text_of(rule.file);
  json["source"] = text_of(rule.source);
  return json;
}

Json json_of(const known::ModuleRule& rule) {
  return {{"prefix", text_of(rule.prefix)},
          {"kind", text_of(word_of(kModuleKindWords, rule.kind))},
          {"source", text_of(rule.source)}};
}

// ,\n "activities": [ one rule a line ]
void append_list(std::string& text, std::string_view key, const std::vector<Json>& rules) {
  text += fmt::format(",\n  \"{}\": [", key);
  // The name of a file, which is the source of rules that have none, may not be valid UTF-8.
  for (std::size_t i = 0; i < rules.size(); ++i)
    text += (i == 0 ? "\n    " : ",\n    ") + rules[i].dump(-1, ' ', false, Json::error_handler_t::replace);
  text += rules.empty() ? "]" : "\n  ]";
}

template <class Rules>
std::vector<Json> list_of(const Rules& rules) {
  std::vector<Json> list;
  for (const auto& rule : rules) list.push_back(json_of(rule));
  return list;
}

// A rule's conclusion and its condition: "collective", "python all_reduce in torch/distributed/".
struct Line {
  std::string says, match, source;
};

template <class Rule, class Table>
std::string match_text(const Rule& rule, const Table& table) {
  std::string text = text_of(match_word_of(table, rule.match).word);
  if (!rule.what.empty()) text += ' ' + text_of(rule.what);
  if (!rule.file.empty()) text += (rule.what.empty() ? " " : " in ") + text_of(rule.file);
  return text;
}

std::vector<Line> lines_of(const std::vector<known::ActivityRule>& rules) {
  std::vector<Line> lines;
  for (const known::ActivityRule& rule : rules) {
    std::string match = match_text(rule, kActivityMatchWords);
    const std::string_view name = rule.operation.name.empty() ? rule.operation.call : rule.operation.name;
    if (!name.empty()) match += fmt::format(" as \"{}\"", name);
    lines.push_back({text_of(word_of(known::kActivityWords, rule.activity)), std::move(match), text_of(rule.source)});
  }
  return lines;
}

std::vector<Line> lines_of(const std::vector<known::RoleRule>& rules) {
  std::vector<Line> lines;
  for (const known::RoleRule& rule : rules)
    lines.push_back({known::to_string(rule.role), match_text(rule, kRoleMatchWords), text_of(rule.source)});
  return lines;
}

std::vector<Line> lines_of(const std::vector<known::NameRule>& rules) {
  std::vector<Line> lines;
  for (const known::NameRule& rule : rules)
    lines.push_back({known::to_string(rule.role), text_of(rule.prefix), text_of(rule.source)});
  return lines;
}

std::vector<Line> lines_of(const std::vector<known::IdleRule>& rules) {
  std::vector<Line> lines;
  for (const known::IdleRule& rule : rules)
    lines.push_back({known::to_string(rule.role),
                     match_text(rule, kIdleMatchWords) + ", waits: " + text_of(word_of(kWaitWords, rule.wait)),
                     text_of(rule.source)});
  return lines;
}

std::vector<Line> lines_of(const std::vector<known::FileRule>& rules) {
  std::vector<Line> lines;
  for (const known::FileRule& rule : rules)
    lines.push_back({rule.library ? "library" : "user",
                     text_of(word_of(kFileMatchKeys, rule.match)) + ' ' + text_of(rule.file), text_of(rule.source)});
  return lines;
}

std::vector<Line> lines_of(const std::vector<known::PlaceRule>& rules) {
  std::vector<Line> lines;
  for (const known::PlaceRule& rule : rules) {
    const std::string file = text_of(word_of(kFileMatchKeys, rule.match)) + ' ' + text_of(rule.file);
    lines.push_back({text_of(word_of(kPlaceWords, rule.place)),
                     rule.what.empty() ? file : text_of(rule.what) + ", " + file, text_of(rule.source)});
  }
  return lines;
}

std::vector<Line> lines_of(const std::vector<known::ModuleRule>& rules) {
  std::vector<Line> lines;
  for (const known::ModuleRule& rule : rules)
    lines.push_back({text_of(word_of(kModuleKindWords, rule.kind)), text_of(rule.prefix), text_of(rule.source)});
  return lines;
}

void append_section(std::string& text, const TextStyle& style, std::string_view title, const std::vector<Line>& added,
                    const std::vector<Line>& built_in) {
  constexpr std::size_t kSays = 18, kMatch = 72;
  const auto padded = [](const std::string& word, std::size_t columns) {
    const std::size_t has = columns_of(word);
    return has < columns ? word + std::string(columns - has, ' ') : word;
  };
  const auto append = [&](char mark, const Line& line) {
    text += fmt::format("{} {} {}  {}\n", mark, padded(line.says, kSays), padded(sanitize(line.match), kMatch),
                        style.faint(sanitize(line.source)));
  };
  text += style.strong(title) + '\n';
  for (const Line& line : added) append('+', line);
  for (const Line& line : built_in) append(' ', line);
  text += '\n';
}

}  // namespace

std::string json_of_rules(const known::KnownPrograms& rules) {
  std::string text = fmt::format("{{\n  \"rules\": {}", kRulesVersion);
  append_list(text, "activities", list_of(rules.activities));
  std::vector<Json> roles;
  for (const known::RoleRule& rule : rules.thread_roles) roles.push_back(json_of(rule, false));
  for (const known::RoleRule& rule : rules.child_roles) roles.push_back(json_of(rule, true));
  append_list(text, "roles", roles);
  append_list(text, "thread_names", list_of(rules.thread_names));
  append_list(text, "idle", list_of(rules.idle));
  for (const bool library : {false, true}) {
    std::vector<known::FileRule> files;
    std::copy_if(rules.files.begin(), rules.files.end(), std::back_inserter(files),
                 [&](const known::FileRule& r) { return r.library == library; });
    append_list(text, library ? "library_files" : "user_files", list_of(files));
  }
  append_list(text, "places", list_of(rules.places));
  append_list(text, "modules", list_of(rules.modules));
  return escape_in_json(text + "\n}\n");
}

std::string text_of_rules(const known::KnownPrograms& added, const known::KnownPrograms& built_in,
                          const RulesTextOptions& options) {
  const TextStyle style(options.color);
  std::string text = fmt::format(
      "{} rules built in, {} added (+). The first rule that matches decides about a frame, thread or file; for idle "
      "threads and places, any rule that matches.\n\n",
      built_in.size(), added.size());
  append_section(text, style, "Activities: what a frame says of its thread", lines_of(added.activities),
                 lines_of(built_in.activities));
  append_section(text, style, "Roles of threads, by their frames", lines_of(added.thread_roles),
                 lines_of(built_in.thread_roles));
  append_section(text, style, "Roles of child processes, by the frames of their main thread",
                 lines_of(added.child_roles), lines_of(built_in.child_roles));
  append_section(text, style, "Roles of threads, by the beginning of their names, if no frame identifies the role",
                 lines_of(added.thread_names), lines_of(built_in.thread_names));
  append_section(text, style, "Idle: the stacks of threads, by role, that have nothing to do", lines_of(added.idle),
                 lines_of(built_in.idle));
  append_section(text, style, "Python files: a library's or the user's", lines_of(added.files),
                 lines_of(built_in.files));
  append_section(text, style, "Places: Python functions that the analysis asks for by their purpose",
                 lines_of(added.places), lines_of(built_in.places));
  append_section(text, style, "Modules whose innermost frames do not show what a program is doing",
                 lines_of(added.modules), lines_of(built_in.modules));
  text.pop_back();
  return text;
}

}  // namespace rankstacks::report
