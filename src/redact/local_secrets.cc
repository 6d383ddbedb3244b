#include "redact/local_secrets.h"

#include <algorithm>

#include "redact/secret_shapes.h"
#include "redact/secret_values.h"
#include "redact/secrets.h"

namespace rankstacks::redact {
namespace {

using Kind = PythonValue::Kind;

// A shorter one would be found within words that have nothing to do with it.
constexpr std::size_t kShortestAnywhere = 4;

// Bytes at the end of a str that was cut: the beginning of a secret there is not recognised.
constexpr std::size_t kUncertainEnd = 256;

bool is_object(const PythonValue& value) { return value.text.starts_with('<'); }

// "API_KEY", "X-Api-Key": what may be the name of the value next to it.
bool may_be_name(const PythonValue& value) {
  constexpr std::size_t kLongest = 64;
  return value.kind == Kind::kString && !value.text.empty() && value.text.size() <= kLongest &&
         std::all_of(value.text.begin(), value.text.end(),
                     [](char c) { return is_alnum(c) || c == '_' || c == '-' || c == '.'; });
}

// What is hidden of a value where its name stands before it, as in a header ("Cookie: sid=x") or a setting.
std::string without_secrets_of(const std::string& name, const std::string& value) {
  for (const std::string_view between : {": ", "="}) {
    const std::string before = name + std::string(between);
    const std::string shown = without_secrets(before + value, Text::kWords);
    if (shown.starts_with(before) && shown.size() != before.size() && shown.substr(before.size()) != value)
      return shown.substr(before.size());
  }
  return value;
}

// '{"a": "say \\"x\\""}' -> '{"a": "say "x""}'
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escapes = text[i] == '\\' && i + 1 < text.size();
    if (!escapes) plain += text[i];
    else plain += text[++i] == 'n' ? '\n' : text[i];
  }
  return plain;
}

// The texts within quotes of any depth, without the quotes in the middle of words: of JSON within JSON, which has the
// text `say -p"x"`, one of them is `say -px`.
std::vector<std::string> texts_in_quotes(const std::string& text) {
  constexpr std::string_view kBefore = " \t\n[{(,:";
  std::vector<std::string> texts(1);
  char before = ' ';
  for (const char c : text) {
    if (c == '\\') continue;
    if (c != '"' && c != '\'') texts.back() += c;
    else if (kBefore.find(before) != std::string_view::npos) texts.emplace_back();
    before = c;
  }
  return texts;
}

void replace_all(std::string& text, const std::string& secret) {
  for (std::size_t at = text.find(secret); at != std::string::npos; at = text.find(secret, at + kSecret.size()))
    text.replace(at, secret.size(), kSecret);
}

}  // namespace

LocalSecrets::LocalSecrets(FieldRedaction& fields, std::vector<std::string> known)
    : fields_(fields), secrets_(known.begin(), known.end()) {}

void LocalSecrets::take_out(std::vector<ThreadSnapshot>& threads) {
  const auto each = [&](auto visit) {
    for (ThreadSnapshot& thread : threads) {
      if (thread.locals.empty()) continue;
      for (FrameLocals& frame : thread.locals.edit()) visit(frame.variables);
    }
  };
  each([&](std::vector<LocalVariable>& variables) {
    // `for name, value in os.environ.items()`: one variable names the other.
    std::vector<PythonValue*> values;
    for (LocalVariable& variable : variables) values.push_back(&variable.value);
    hide_in_sequence(values);
    for (LocalVariable& variable : variables) {
      hide_in(variable.value, variable.name);
      fields_.name(variable.name);
    }
  });
  longest_first_.assign(secrets_.begin(), secrets_.end());
  std::erase_if(longest_first_, [](const std::string& secret) { return secret.size() < kShortestAnywhere; });
  std::stable_sort(longest_first_.begin(), longest_first_.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  each([&](std::vector<LocalVariable>& variables) {
    for (LocalVariable& variable : variables) hide_known(variable.value);
  });
}

void LocalSecrets::hide_text(PythonValue& value, std::string shown) {
  if (shown == value.text) return;
  learn(value.text, shown);
  value.text = std::move(shown);
}

void LocalSecrets::learn(const std::string& text, const std::string& shown) {
  std::set<std::string> hidden;
  add_hidden(text, shown, hidden);
  for (const std::string& secret : hidden) {
    // In quotes its lines are separated by escapes.
    constexpr std::size_t kShortestLine = 12;
    for (std::size_t at = 0; secret.find('\n') != std::string::npos && at < secret.size();) {
      const std::size_t end = std::min(secret.find('\n', at), secret.size());
      if (end - at >= kShortestLine) secrets_.insert(secret.substr(at, end - at));
      at = end + 1;
    }
    secrets_.insert(secret);
    // Elsewhere it may be in other quotes.
    constexpr std::string_view kQuotes = "\"'\\";
    const std::size_t begin = secret.find_first_not_of(kQuotes);
    if (begin != std::string::npos) secrets_.insert(secret.substr(begin, secret.find_last_not_of(kQuotes) + 1 - begin));
  }
}

void LocalSecrets::learn_from_quoted(std::string text) {
  if (text.find('\\') != std::string::npos)
    for (const std::string& plain : texts_in_quotes(text)) learn(plain, without_secrets(plain, Text::kWords));
  constexpr int kDeepest = 4;  // quotes within quotes
  for (int depth = 0; depth < kDeepest && text.find('\\') != std::string::npos; ++depth) {
    text = unescaped(text);
    learn(text, without_secrets(text, Text::kWords));
  }
}

void LocalSecrets::hide_in(PythonValue& value, const std::string& name) {
  if (value.kind == Kind::kWord) {
    if (is_object(value)) fields_.name(value.text);
    else if (names_a_secret(name, value.text)) hide_text(value, std::string(kSecret));
    return;
  }
  if (value.kind == Kind::kString) {
    if (names_a_secret(name, value.text)) return hide_all(value, name);
    learn_from_quoted(value.text);
    hide_text(value, without_secrets_of(name, value.text));
    std::string shown = value.text;
    fields_.message(shown);
    hide_text(value, std::move(shown));
    if (value.cut) {
      std::size_t end = value.text.size() - std::min(value.text.size(), kUncertainEnd);
      while (end > 0 && (static_cast<unsigned char>(value.text[end]) & 0xc0) == 0x80) --end;
      value.text.resize(end);
    }
    return;
  }
  // What a name says of a container, it says of the texts in it.
  constexpr std::string_view kAnyText = "any text";
  if (names_a_secret(name, kAnyText)) return hide_all(value, name);
  if (value.kind == Kind::kDict) {
    std::vector<PythonValue*> held;
    for (std::size_t i = 1; i < value.items.size(); i += 2) held.push_back(&value.items[i]);
    hide_in_sequence(held);
    for (std::size_t i = 0; i + 1 < value.items.size(); i += 2) {
      const std::string key = value.items[i].kind == Kind::kString ? value.items[i].text : "";
      hide_in(value.items[i], "");
      hide_in(value.items[i + 1], key);
    }
    return;
  }
  hide_in_words(value.items);
  std::vector<PythonValue*> held;
  for (PythonValue& item : value.items) held.push_back(&item);
  hide_in_sequence(held);
  for (PythonValue& item : value.items) hide_in(item, "");
}

void LocalSecrets::hide_all(PythonValue& value, const std::string& name) {
  if (value.kind == Kind::kString && !value.text.empty()) {
    secrets_.insert(value.text);
    value.text = kSecret;
    value.cut = false;
  } else if (value.kind == Kind::kWord) {
    hide_in(value, name);
  }
  const bool is_dict = value.kind == Kind::kDict;
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    if (is_dict && i % 2 == 0) hide_in(value.items[i], "");
    else hide_all(value.items[i], name);
  }
}

// ["mysql", "-uroot", "-p...", "db"]: as the words of a command.
void LocalSecrets::hide_in_words(std::vector<PythonValue>& items) {
  std::vector<std::string> words;
  words.reserve(items.size());
  for (const PythonValue& item : items) words.push_back(item.items.empty() ? item.text : "");
  const std::vector<std::string> shown = without_secrets(words);
  for (std::size_t i = 0; i < std::min(items.size(), shown.size()); ++i)
    if (items[i].items.empty() && !is_object(items[i])) hide_text(items[i], shown[i]);
}

void LocalSecrets::hide_in_sequence(const std::vector<PythonValue*>& values) {
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    if (!may_be_name(*values[i])) continue;
    PythonValue& next = *values[i + 1];
    const std::string& name = values[i]->text;
    if (next.kind == Kind::kString && names_a_secret(name, next.text)) hide_all(next, name);
    else if (next.kind == Kind::kString) hide_text(next, without_secrets_of(name, next.text));
  }
}

void LocalSecrets::hide_known(PythonValue& value) const {
  if (value.kind == Kind::kString)
    for (const std::string& secret : longest_first_) replace_all(value.text, secret);
  for (PythonValue& item : value.items) hide_known(item);
}

}  // namespace rankstacks::redact
