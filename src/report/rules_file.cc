#include "report/rules_file.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "report/lined_json.h"
#include "report/rules_words.h"
#include "report/sanitize.h"

namespace rankstacks::report {
namespace {

constexpr int kMaxDepth = 8;  // the form's own depth is 4
constexpr std::size_t kMaxValues = 400000;
constexpr std::size_t kThreadNameBytes = 15;  // TASK_COMM_LEN, minus the terminator

// Thrown by Value only, caught in read_rules.
struct Defect {
  ErrorCode code;
  std::string what;
};

template <class Table>
std::vector<std::string_view> words_of(const Table& table) {
  std::vector<std::string_view> words;
  for (const auto& [value, word] : table) words.push_back(word);
  return words;
}

template <class E, std::size_t N>
std::vector<std::string_view> words_of(const MatchWord<E> (&table)[N]) {
  std::vector<std::string_view> words;
  for (const MatchWord<E>& entry : table) words.push_back(entry.word);
  return words;
}

// A value with its place in the document, such as line 12, /activities/3/file.
class Value {
 public:
  Value(const LinedJson& json, std::string pointer) : json_(json), pointer_(std::move(pointer)) {}

  [[noreturn]] void fail_with(std::string_view what, ErrorCode code = ErrorCode::kMalformed) const {
    throw Defect{code, fmt::format("line {}: {}: {}", json_.line, pointer_.empty() ? "the document" : pointer_, what)};
  }
  [[noreturn]] void expected(std::string_view what) const {
    fail_with(fmt::format("found {}, expected {}", found(), what));
  }

  void require_object(const std::vector<std::string_view>& allowed) const {
    if (json_.kind != LinedJson::Kind::kObject) expected("an object");
    for (std::size_t i = 0; i < json_.names.size(); ++i)
      if (const std::string& name = json_.names[i]; std::find(allowed.begin(), allowed.end(), name) == allowed.end())
        Value(json_.items[i], pointer_)
            .fail_with(fmt::format("found the key {}, expected no other than {}", in_quotes(name), joined(allowed)));
  }
  std::optional<Value> find(std::string_view key) const {
    for (std::size_t i = 0; i < json_.names.size(); ++i)
      if (json_.names[i] == key) return Value(json_.items[i], pointer_ + '/' + json_.names[i]);
    return std::nullopt;
  }
  Value get(std::string_view key) const {
    if (json_.kind != LinedJson::Kind::kObject) expected("an object");
    const auto value = find(key);
    if (!value) fail_with(fmt::format("found no key \"{}\", expected one", key));
    return *value;
  }
  template <class F>
  void each(F&& f) const {
    if (json_.kind != LinedJson::Kind::kArray) expected("an array");
    for (std::size_t i = 0; i < json_.items.size(); ++i) f(Value(json_.items[i], fmt::format("{}/{}", pointer_, i)));
  }

  const std::string& text() const {
    if (json_.kind != LinedJson::Kind::kString) expected("a string");
    if (json_.text.empty()) expected("a text that is not empty");
    return json_.text;
  }
  bool boolean() const {
    if (json_.kind != LinedJson::Kind::kBoolean) expected("true or false");
    return json_.boolean;
  }
  void require_number(int number) const {
    if (json_.kind != LinedJson::Kind::kNumber || json_.number != number) expected(fmt::format("{}", number));
  }
  template <class E, std::size_t N>
  E word(const WordTable<E, N>& table) const {
    if (json_.kind == LinedJson::Kind::kString)
      if (const auto value = value_of(table, json_.text)) return *value;
    expected("one of " + joined(words_of(table)));
  }
  template <class E, std::size_t N>
  const MatchWord<E>& match(const MatchWord<E> (&table)[N]) const {
    for (const MatchWord<E>& entry : table)
      if (json_.kind == LinedJson::Kind::kString && json_.text == entry.word) return entry;
    expected("one of " + joined(words_of(table)));
  }
  // A role that a rule can give to a thread: a main thread always has the role main.
  known::Role role() const {
    const auto role = json_.kind == LinedJson::Kind::kString ? known::role_of_word(json_.text) : std::nullopt;
    if (role && *role != known::Role::kMain) return *role;
    std::vector<std::string_view> words;
    for (int i = 0; i <= static_cast<int>(known::Role::kNative); ++i)
      if (static_cast<known::Role>(i) != known::Role::kMain)
        words.emplace_back(known::to_string(static_cast<known::Role>(i)));
    expected("one of " + joined(words));
  }

 private:
  std::string found() const {
    switch (json_.kind) {
      case LinedJson::Kind::kNull: return "null";
      case LinedJson::Kind::kBoolean: return json_.boolean ? "true" : "false";
      case LinedJson::Kind::kNumber: return fmt::format("{}", json_.number);
      case LinedJson::Kind::kString: return in_quotes(json_.text);
      case LinedJson::Kind::kArray: return "an array";
      case LinedJson::Kind::kObject: return "an object";
    }
    return "";
  }

  const LinedJson& json_;
  std::string pointer_;
};

class RulesReader {
 public:
  explicit RulesReader(const std::string& subject) : source_(added_.keep(subject)) {}

  known::AddedPrograms read(const Value& document) {
    document.require_object({"$schema", "rules", "source", "activities", "roles", "thread_names", "idle", "user_files",
                             "library_files", "places", "modules"});
    document.get("rules").require_number(kRulesVersion);
    if (const auto schema = document.find("$schema")) schema->text();
    if (const auto source = document.find("source")) source_ = added_.keep(source->text());
    known::KnownPrograms& rules = added_.rules;
    each(document, "activities", [&](const Value& v) { rules.activities.push_back(activity(v)); });
    each(document, "roles", [&](const Value& v) { role(v); });
    each(document, "thread_names", [&](const Value& v) { rules.thread_names.push_back(thread_name(v)); });
    each(document, "idle", [&](const Value& v) { rules.idle.push_back(idle(v)); });
    each(document, "user_files", [&](const Value& v) { rules.files.push_back(file(v, false)); });
    each(document, "library_files", [&](const Value& v) { rules.files.push_back(file(v, true)); });
    each(document, "places", [&](const Value& v) { rules.places.push_back(place(v)); });
    each(document, "modules", [&](const Value& v) { rules.modules.push_back(module(v)); });
    return std::move(added_);
  }

 private:
  template <class F>
  void each(const Value& document, std::string_view key, F&& f) {
    const auto list = document.find(key);
    if (!list) return;
    list->each([&](const Value& v) {
      if (added_.rules.size() >= kMaxRules)
        v.fail_with(fmt::format("found another rule, expected at most {} in one file", kMaxRules), ErrorCode::kLimit);
      f(v);
    });
  }

  std::string_view text_of(const Value& rule, std::string_view key, bool required) {
    if (key.empty()) return "";
    if (required) return added_.keep(rule.get(key).text());
    const auto value = rule.find(key);
    return value ? added_.keep(value->text()) : std::string_view();
  }
  std::string_view source_of(const Value& rule) {
    const auto own = rule.find("source");
    return own ? added_.keep(own->text()) : source_;
  }

  // The match kind of a rule; it determines which keys the rule may have.
  template <class E, std::size_t N>
  const MatchWord<E>& match_of(const Value& rule, const MatchWord<E> (&table)[N],
                               std::initializer_list<std::string_view> others) {
    const MatchWord<E>& match = rule.get("match").match(table);
    std::vector<std::string_view> allowed = {"match"};
    for (const std::string_view key : {match.what_key, match.file_key})
      if (!key.empty()) allowed.push_back(key);
    allowed.insert(allowed.end(), others);
    allowed.push_back("source");
    rule.require_object(allowed);
    return match;
  }

  known::ActivityRule activity(const Value& v) {
    const auto& match = match_of(v, kActivityMatchWords, {"activity", "operation", "over_transport"});
    known::ActivityRule rule{match.match, text_of(v, match.what_key, match.needs_what),
                             text_of(v, match.file_key, match.needs_file),
                             v.get("activity").word(known::kActivityWords), source_of(v)};
    if (const auto operation = v.find("operation")) rule.operation = operation_of(*operation);
    // For a wait for another process's answer the decisions need no more than the fact that it is one.
    if (rule.activity == known::Activity::kPeerWait && rule.operation.kind == known::OperationKind::kNone)
      rule.operation.kind = known::OperationKind::kRemoteCall;
    rule.over_transport = known::waits_for_ranks(rule.activity);
    if (const auto over_transport = v.find("over_transport")) {
      if (!rule.over_transport)
        over_transport->fail_with(
            "found it with an activity that waits for no other rank, expected it with collective, point-to-point, "
            "store-wait or peer-wait alone");
      rule.over_transport = over_transport->boolean();
    }
    return rule;
  }

  known::NamedOperation operation_of(const Value& v) {
    v.require_object({"call", "name", "collective", "kind", "generic"});
    known::NamedOperation operation;
    operation.call = text_of(v, "call", false);
    operation.name = text_of(v, "name", false);
    if (const auto collective = v.find("collective")) operation.collective = collective->word(known::kCollectiveWords);
    if (const auto kind = v.find("kind")) operation.kind = kind->word(known::kOperationKindWords);
    if (const auto generic = v.find("generic")) operation.generic = generic->boolean();
    return operation;
  }

  void role(const Value& v) {
    const auto& match = match_of(v, kRoleMatchWords, {"of", "role"});
    const auto of = v.find("of");
    known::RoleRule rule{match.match, text_of(v, match.what_key, match.needs_what),
                         text_of(v, match.file_key, match.needs_file), v.get("role").role(), source_of(v)};
    const bool of_child = of && of->word(kRoleOfWords) == kOfChild;
    (of_child ? added_.rules.child_roles : added_.rules.thread_roles).push_back(rule);
  }

  known::NameRule thread_name(const Value& v) {
    v.require_object({"prefix", "role", "source"});
    const Value prefix = v.get("prefix");
    if (prefix.text().size() > kThreadNameBytes)
      prefix.expected(fmt::format("at most {} bytes: the kernel keeps no more of a thread's name", kThreadNameBytes));
    return {added_.keep(prefix.text()), v.get("role").role(), source_of(v)};
  }

  known::IdleRule idle(const Value& v) {
    const auto& match = match_of(v, kIdleMatchWords, {"role", "wait"});
    return {v.get("role").role(),
            match.match,
            text_of(v, match.what_key, match.needs_what),
            text_of(v, match.file_key, match.needs_file),
            v.get("wait").word(kWaitWords),
            source_of(v)};
  }

  known::FileMatch file_match_of(const Value& v) {
    if (v.find("contains").has_value() == v.find("suffix").has_value())
      v.fail_with("expected one of the keys contains, suffix");
    return v.find("suffix") ? known::FileMatch::kSuffix : known::FileMatch::kContains;
  }

  known::FileRule file(const Value& v, bool library) {
    v.require_object({"contains", "suffix", "source"});
    const known::FileMatch match = file_match_of(v);
    return {match, text_of(v, word_of(kFileMatchKeys, match), true), library, source_of(v)};
  }

  known::PlaceRule place(const Value& v) {
    v.require_object({"place", "function", "contains", "suffix", "source"});
    const known::FileMatch match = file_match_of(v);
    return {v.get("place").word(kPlaceWords), text_of(v, "function", false), match,
            text_of(v, word_of(kFileMatchKeys, match), true), source_of(v)};
  }

  known::ModuleRule module(const Value& v) {
    v.require_object({"prefix", "kind", "source"});
    return {text_of(v, "prefix", true), v.get("kind").word(kModuleKindWords), source_of(v)};
  }

  known::AddedPrograms added_;
  std::string_view source_;  // source of the rules that have none of their own
};

}  // namespace

Result<known::AddedPrograms> read_rules(std::string_view text, const std::string& subject) {
  const std::string hint =
      "docs/rules.md describes the form; `rankstacks rules --format json` prints the built-in rules in it";
  if (text.size() > kMaxRulesBytes)
    return fail({.code = ErrorCode::kLimit,
                 .subject = subject,
                 .what = fmt::format("found {} bytes, expected at most {}", text.size(), kMaxRulesBytes),
                 .hint = hint});
  auto document = read_lined_json(text, subject, kMaxDepth, kMaxValues);
  if (!document) {
    document.error().hint = hint;
    return fail(document.error());
  }
  try {
    return RulesReader(subject).read(Value(*document, ""));
  } catch (const Defect& defect) {
    return fail({.code = defect.code, .subject = subject, .what = defect.what, .hint = hint});
  }
}

}  // namespace rankstacks::report
