#include "redact/field_redaction.h"

#include <algorithm>

#include <fmt/format.h>

#include "analyzers/timed_out_work.h"
#include "analyzers/watchdog_text.h"
#include "base/text.h"
#include "known/settings.h"
#include "redact/secret_shapes.h"
#include "redact/secret_values.h"
#include "redact/secrets.h"

namespace rankstacks::redact {
namespace {

enum Kind { kHost, kBoot, kName, kPath, kFile, kText, kMessage, kCommandLine, kVariable, kThreadName };

// Files that every machine has: they tell what is used, not whose data it is.
bool is_of_system(std::string_view path) {
  for (const std::string_view root : {"/dev/", "/proc/", "/sys/", "/usr/", "/lib/", "/lib64/", "/etc/", "/opt/"})
    if (path.starts_with(root)) return true;
  return contains(path, "/site-packages/") || contains(path, "/dist-packages/");
}

// ".pt" of "/data/step-100.pt (deleted)"; only what looks like the ending of a kind of file.
std::string_view ending_of(std::string_view path) {
  const std::string_view base = path.substr(path.rfind('/') + 1);
  const std::string_view name = base.substr(0, base.find(' '));
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return "";
  const std::string_view ending = name.substr(dot);
  constexpr std::size_t kLongest = 8;
  const bool plain = std::all_of(ending.begin() + 1, ending.end(), [](char c) { return is_lower(c) || is_digit(c); });
  return plain && ending.size() > 1 && ending.size() <= kLongest ? ending : "";
}

bool all_digits(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_digit); }

bool is_digits_and_dots(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || c == '.'; });
}

// "12.4.5.8", "2.28.3-1", if it is known to be a version.
bool is_plain_version(std::string_view value) {
  constexpr std::size_t kLongest = 24;
  return value.size() <= kLongest && std::all_of(value.begin(), value.end(), [](char c) {
           return is_digit(c) || c == '.' || c == '-' || c == '+';
         });
}

// "7", "-0.1", "1e-05", "2.28.9"; four numbers may be a part of an address.
bool is_single_number(std::string_view word) {
  if (word.starts_with('-') || word.starts_with('+')) word.remove_prefix(1);
  const std::size_t exponent = word.find_first_of("eE");
  if (exponent != std::string_view::npos) {
    std::string_view of_ten = word.substr(exponent + 1);
    if (of_ten.starts_with('-') || of_ten.starts_with('+')) of_ten.remove_prefix(1);
    if (!all_digits(of_ten)) return false;
    word = word.substr(0, exponent);
  }
  return std::count(word.begin(), word.end(), '.') < 3 && std::any_of(word.begin(), word.end(), is_digit) &&
         is_digits_and_dots(word);
}

// "0-7", as CPUs and devices are counted, "2.28.3-1", and "2026-01-31"; other groups of digits number people and
// accounts.
bool is_range_or_date(std::string_view word) {
  constexpr std::size_t kLongestInRange = 3;
  const std::size_t dash = word.find('-');
  if (dash == std::string_view::npos) return false;
  const std::string_view first = word.substr(0, dash), rest = word.substr(dash + 1);
  if (rest.size() <= kLongestInRange && contains(first, '.')) return is_single_number(first) && is_single_number(rest);
  if (!all_digits(first)) return false;
  if (all_digits(rest)) return first.size() <= kLongestInRange && rest.size() <= kLongestInRange;
  const auto is_two_digits = [](std::string_view part) { return part.size() == 2 && all_digits(part); };
  return first.size() == 4 && rest.size() == 5 && is_two_digits(rest.substr(0, 2)) && rest[2] == '-' &&
         is_two_digits(rest.substr(3));
}

// A number, or some with commas between them.
bool is_number(std::string_view word) {
  constexpr std::size_t kLongest = 12;
  if (word.empty() || word.size() > kLongest) return false;
  while (true) {
    const std::size_t comma = word.find(',');
    const std::string_view one = word.substr(0, comma);
    if (!is_single_number(one) && !is_range_or_date(one)) return false;
    if (comma == std::string_view::npos) return true;
    word.remove_prefix(comma + 1);
  }
}

// Values of options that say how a job is built, and nothing about whose it is.
bool is_plain_value(std::string_view word) {
  return is_number(word) ||
         is_one_of(word, {"true",  "false",      "True",    "False",   "none",     "None", "auto",  "yes",   "no",
                          "on",    "off",        "nccl",    "gloo",    "mpi",      "ucc",  "cuda",  "cpu",   "gpu",
                          "bf16",  "fp16",       "fp32",    "fp8",     "tf32",     "adam", "adamw", "sgd",   "fork",
                          "spawn", "forkserver", "c10d",    "etcd",    "static",   "ddp",  "fsdp",  "train", "eval",
                          "test",  "bfloat16",   "float16", "float32", "localhost"});
}

}  // namespace

void FieldRedaction::put(int kind, std::string& value, const std::function<std::string(const std::string&)>& redacted) {
  if (value.empty()) return;
  std::string key = static_cast<char>('0' + kind) + value;
  auto found = done_.find(key);
  if (found == done_.end()) {
    found = done_.emplace(std::move(key), redacted(value)).first;
    if (!names_) add_hidden(value, found->second, hidden_);
  }
  if (found->second == value) return;
  changed_ = true;
  value = found->second;
}

void FieldRedaction::host(std::string& value) {
  if (names_) return put(kHost, value, [&](const std::string& v) { return private_.host(v); });
  name(value);
}

void FieldRedaction::boot(std::string& value) {
  if (names_) return put(kBoot, value, [&](const std::string& v) { return pseudonyms_.of("boot", v); });
  name(value);
}

void FieldRedaction::name(std::string& value) {
  if (!secrets_ && !names_) return;
  put(kName, value, [&](const std::string& v) {
    return names_ ? private_.replaced(v, Text::kName) : without_secrets(v, Text::kName);
  });
}

void FieldRedaction::thread_name(std::string& value) {
  if (!secrets_ && !names_) return;
  put(kThreadName, value, [&](const std::string& v) {
    const std::string safe = without_cut_secrets(v);
    return names_ ? private_.replaced(safe, Text::kName) : safe;
  });
}

// "1.14.44.0" is no address here.
void FieldRedaction::version(std::string& value) {
  if (!is_plain_version(value)) name(value);
}

void FieldRedaction::path(std::string& value) {
  if (!secrets_ && !names_) return;
  put(kPath, value, [&](const std::string& v) {
    return names_ ? private_.replaced(v, Text::kPath) : without_secrets(v, Text::kPath);
  });
}

void FieldRedaction::text(std::string& value) {
  if (!secrets_ && !names_) return;
  put(kText, value, [&](const std::string& v) {
    return names_ ? private_.replaced(v, Text::kWords) : without_secrets(v, Text::kWords);
  });
}

void FieldRedaction::file(std::string& value) {
  if (!names_)
    return secrets_ ? put(kFile, value,
                          [](const std::string& v) {
                            return without_secrets(v, v.starts_with('/') ? Text::kPath : Text::kWords);
                          })
                    : void();
  put(kFile, value, [&](const std::string& v) {
    if (v.starts_with('/')) return is_of_system(v) ? private_.replaced(v, Text::kPath) : data_file(v);
    if (v.starts_with("unix ")) return "unix " + data_file(v.substr(5));
    return private_.replaced(v, Text::kWords);  // "pipe:[123]", "tcp 10.0.0.1:4 -> 10.0.0.2:5"
  });
}

// "/data/acme/shard-1.bin" -> "/file-1.bin": it stays a path, which the analysis distinguishes from a pipe.
std::string FieldRedaction::data_file(const std::string& path) {
  return "/" + pseudonyms_.of("file", path, ending_of(path));
}

void FieldRedaction::message(std::string& value) {
  if (names_) return put(kMessage, value, [&](const std::string& v) { return own_words(v); });
  text(value);
}

// What the analysis reads of an exception's text is said again in the same words (timed_out_work.h); all else of it may
// be anything.
std::string FieldRedaction::own_words(const std::string& text) {
  std::string words = pseudonyms_.of("message", text);
  if (analyzers::says_other_size(text)) words += ": message truncated";
  const auto work = analyzers::timed_out_work(text);
  if (!work) return words;
  const bool is_known = std::all_of(work->operation.begin(), work->operation.end(),
                                    [](char c) { return is_upper(c) || is_digit(c) || c == '_'; });
  if (!is_known) return words;
  std::string group(work->group_name()), purpose(work->group_description());
  for (std::string* value : {&group, &purpose}) name(*value);
  if (!purpose.empty()) group += fmt::format("({})", purpose);
  words += fmt::format(": PG GUID {} Rank WorkNCCL(SeqNum={}, OpType={}, NumelIn={}, NumelOut={}, ", group,
                       work->sequence, work->operation, work->elements_in, work->elements_out);
  words += work->timeout_ms ? fmt::format("Timeout(ms)={})", *work->timeout_ms) : "...)";
  if (work->ran_ms) words += fmt::format(" ran for {} milliseconds", *work->ran_ms);
  return words;
}

void FieldRedaction::command(std::vector<std::string>& words) {
  if (!names_ && !secrets_) return;
  std::vector<std::string> shown = names_ ? without_arguments(without_secrets(words)) : without_secrets(words);
  if (shown == words) return;
  for (std::size_t i = 0; !names_ && i < words.size(); ++i) add_hidden(words[i], shown[i], hidden_);
  changed_ = true;
  words = std::move(shown);
}

void FieldRedaction::command_line(std::string& value) {
  if (!names_ && !secrets_) return;
  put(kCommandLine, value, [&](const std::string& line) {
    std::vector<std::string> words(1);
    for (const char c : line) c == ' ' ? words.emplace_back() : words.back() += c;
    command(words);
    std::string shown;
    for (const std::string& word : words) shown += (&word == &words.front() ? "" : " ") + word;
    return shown;
  });
}

// The program, the script or module that an interpreter runs, the names of options, and values such as numbers stay.
std::vector<std::string> FieldRedaction::without_arguments(const std::vector<std::string>& words) {
  std::vector<std::string> shown;
  bool script_is_known = false, is_module = false;
  for (const std::string& word : words) {
    std::string out = word;
    const std::size_t equals = word.find('=');
    const std::string_view base = std::string_view(word).substr(word.rfind('/') + 1);
    if (shown.empty()) {
      path(out);
    } else if (is_module) {
      name(out), is_module = false, script_is_known = true;
    } else if (word == "-m" && !script_is_known) {
      is_module = true;
    } else if (!script_is_known && (base.ends_with(".py") || base.ends_with(".sh"))) {
      path(out), script_is_known = true;
    } else if (word.starts_with("--") || (equals != std::string::npos && equals > 0 && is_alnum(word[0]))) {
      out = word.substr(0, equals);
      name(out);
      if (equals != std::string::npos) out += "=" + argument(word.substr(equals + 1), names_a_version(out));
    } else if (word.starts_with('-') && word.size() > 2 && !is_number(word)) {
      out = word.substr(0, 2) + argument(word.substr(2), false);  // -pVALUE
    } else if (!word.starts_with('-') || word.size() > 2) {
      out = argument(word, shown.back().starts_with('-') && names_a_version(shown.back()));
    }
    shown.push_back(std::move(out));
  }
  return shown;
}

std::string FieldRedaction::argument(const std::string& word, bool is_version) {
  if (word.empty() || word == kSecret) return word;
  if (is_version && is_plain_version(word)) return word;
  if (const auto addresses = private_.addresses(word)) return *addresses;
  if (is_plain_value(word)) return word;
  // The analysis asks for these helpers of Python's (analyzers/children.cc).
  for (const std::string_view helper : {"multiprocessing.resource_tracker", "multiprocessing.forkserver"})
    if (contains(word, helper)) return std::string(helper);
  return pseudonyms_.of("arg", word);
}

// What a setting says of how a job runs stays: numbers, and the words that libraries define. All else may be a name, a
// path or a secret.
std::string FieldRedaction::setting(const std::string& name, const std::string& value, const std::string& meaning) {
  if (value.empty()) return value;
  if (names_a_secret(name, value)) return std::string(kSecret);
  if (!names_) return without_secrets(value, value.starts_with('/') ? Text::kPath : Text::kWords);
  if (names_a_version(name) && is_plain_version(value)) return value;
  if (const auto addresses = private_.addresses(value)) return private_.addresses(meaning).value_or(*addresses);
  if (is_plain_value(value) || known::is_setting_word(value)) return value;
  const bool is_list = value.find_first_of(": ,;") != std::string::npos;
  if (!is_list && is_of_system(value)) return private_.replaced(value, Text::kPath);
  return pseudonyms_.of("value", meaning);
}

void FieldRedaction::variable(const std::string& name, std::string& value, const std::string& meaning) {
  if (!secrets_ && !names_) return;
  // One value may be a secret under one name alone, and have two meanings on two ranks.
  const std::string before = name + '=';
  std::string whole = before + value + '\0' + meaning;
  put(kVariable, whole, [&](const std::string&) { return before + setting(name, value, meaning) + '\0' + meaning; });
  value = whole.substr(before.size(), whole.size() - before.size() - meaning.size() - 1);
}

}  // namespace rankstacks::redact
