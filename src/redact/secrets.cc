#include "redact/secrets.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "redact/command_secrets.h"
#include "redact/secret_shapes.h"

namespace rankstacks::redact {
namespace {

// "--hf-token" -> {"hf", "token"}, "accessKey" -> {"access", "key"}; lower case.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool hump = is_upper(c) && i > 0 && is_lower(name[i - 1]);
    if ((!is_alnum(c) || hump) && !words.back().empty()) words.emplace_back();
    if (is_alnum(c)) words.back() += is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

bool is_number_or_flag(std::string_view value) {
  if (is_one_of(value, {"", "true", "false", "True", "False", "none", "None", "null", "on", "off", "yes", "no"}))
    return true;
  return value.size() < 12 && std::all_of(value.begin(), value.end(), [](char c) {
           return is_digit(c) || c == '.' || c == '-' || c == '+' || c == ',';
         });
}

bool is_token_of_text(const std::vector<std::string>& words) {  // of a tokenizer, not of a service
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return is_one_of(
        word, {"max", "min",  "num",   "per",  "pad",   "eos", "bos",     "unk",   "mask",      "sep",   "cls",
               "id",  "ids",  "count", "type", "types", "len", "length",  "image", "batch",     "train", "special",
               "new", "stop", "start", "end",  "n",     "moe", "dropped", "drop",  "dispatcher"});
  });
}

bool is_char_of_name(char c) { return is_alnum(c) || c == '_' || c == '-' || c == '.'; }
bool ends_value(char c) {
  return is_blank(c) || c == '"' || c == '\'' || c == '`' || c == ';' || c == '&' || c == ',' || c == '<' || c == '>' ||
         c == ')' || c == '}' || c == ']' || c == '|';
}
bool is_of_token(char c) { return is_alnum(c) || c == '_' || c == '-' || c == '+' || c == '/' || c == '='; }

// What an "Authorization" header begins with: IANA's registry of HTTP authentication schemes, and services' own.
bool is_scheme(std::string_view word) {
  std::string lower;
  for (const char c : word) lower += is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
  return is_one_of(lower, {"basic",
                           "bearer",
                           "digest",
                           "dpop",
                           "hoba",
                           "mutual",
                           "negotiate",
                           "oauth",
                           "scram-sha-1",
                           "scram-sha-256",
                           "vapid",
                           "ntlm",
                           "kerberos",
                           "hawk",
                           "mac",
                           "token",
                           "apikey",
                           "api-key",
                           "key",
                           "jwt",
                           "bot",
                           "splunk",
                           "geniekey",
                           "ssws",
                           "sharedkey",
                           "sharedkeylite",
                           "sharedaccesssignature",
                           "aws4-hmac-sha256",
                           "googlelogin"});
}

// Words before "pass" that make it a run over something: forward_pass, --n-pass, custom_post_pass; and other words that
// end so: bypass, compass.
bool is_pass_over_something(const std::vector<std::string>& words) {
  std::string last = words.back();
  last.resize(last.size() - 4);
  if (last.empty() && words.size() > 1) last = words[words.size() - 2];
  return is_one_of(last, {"forward", "backward", "fwd",   "bwd",      "n",         "num",   "number", "one",    "two",
                          "single",  "multi",    "first", "second",   "last",      "max",   "min",    "per",    "pre",
                          "post",    "fusion",   "graph", "compiler", "optimizer", "opt",   "joint",  "custom", "by",
                          "com",     "sur",      "over",  "under",    "tres",      "encom", "ask",    "low",    "high",
                          "band",    "all",      "no",    "every",    "train",     "eval",  "render", "grad",   "fx",
                          "llvm",    "mlir",     "ir",    "inductor", "tests",     "test",  "shape",  "type"});
}

constexpr std::size_t kOfKernel = 15;  // TASK_COMM_LEN without its end

// Of a "key" alone the value decides whether it is a secret, so it may be looked at more than once.
constexpr std::size_t kLongestKey = 256;

class Scanner {
 public:
  Scanner(std::string_view text, Text kind)
      : text_(text), kind_(kind), build_id_(text.find("build-id ")), of_commands_(secrets_of_commands(text, kind)) {}

  std::string run() {
    out_.reserve(text_.size());
    while (at_ < text_.size()) {
      if (of_command()) continue;
      const bool starts = at_ == 0 || !is_alnum(text_[at_ - 1]);
      if (starts && (in_core_name() || by_name() || of_webhook() || by_prefix() || by_scheme() || in_url() || random()))
        continue;
      out_ += text_[at_++];
    }
    return std::move(out_);
  }

 private:
  void replace(std::size_t length) {
    out_ += kSecret;
    at_ += length;
  }
  void copy(std::size_t length) {
    out_ += text_.substr(at_, length);
    at_ += length;
  }

  // What another rule has taken, from the start of the secret or to the middle of it, is not taken again.
  bool of_command() {
    while (next_of_command_ < of_commands_.size() && of_commands_[next_of_command_].end <= at_) ++next_of_command_;
    if (next_of_command_ >= of_commands_.size() || of_commands_[next_of_command_].begin > at_) return false;
    const std::size_t end = of_commands_[next_of_command_++].end;
    if (out_.ends_with(kSecret)) at_ = end;
    else replace(end - at_);
    return true;
  }

  // What follows the service's own part of the address, piece by piece; pieces that are words stay ("IncomingWebhook").
  bool of_webhook() {
    constexpr std::size_t kLongestWord = 16;
    const std::size_t before = length_before_webhook_secret(text_.substr(at_));
    if (before == 0) return false;
    copy(before);
    const std::string_view value = text_.substr(at_, end_of_value(at_) - at_);
    const std::size_t end = at_ + std::min(value.find('?'), value.size());
    while (at_ < end) {
      const std::string_view rest = text_.substr(at_, end - at_);
      const std::string_view piece = rest.substr(0, rest.find('/'));
      const bool is_word = piece.size() <= kLongestWord &&
                           std::all_of(piece.begin(), piece.end(), [](char c) { return is_lower(c) || is_upper(c); });
      const bool is_file = kind_ == Text::kPath && piece.size() == rest.size() && contains(piece, '.');
      if (is_word || is_file) copy(piece.size());
      else replace(piece.size());
      if (at_ < end) copy(1);
    }
    return true;
  }

  std::size_t end_of_value(std::size_t from, std::size_t most = std::string_view::npos) const {
    const std::size_t last = most < text_.size() - std::min(from, text_.size()) ? from + most : text_.size();
    while (from < last && !ends_value(text_[from])) ++from;
    return from;
  }

  // "core.NAME.1000...", "core-NAME-4711": the name of a process in that of its core, of which the kernel keeps 15
  // bytes.
  bool in_core_name() {
    constexpr std::size_t kBefore = 5;
    if (at_ < kBefore || text_.size() - at_ < kOfKernel) return false;
    const std::string_view before = text_.substr(at_ - kBefore, kBefore);
    const bool begins = at_ == kBefore || !is_alnum(text_[at_ - kBefore - 1]);
    if (!begins || !is_one_of(before, {"core.", "core-"})) return false;
    if (cut_secret(text_.substr(at_, kOfKernel)) == 0) return false;
    replace(std::max(kOfKernel, secret_by_prefix(text_.substr(at_))));
    return true;
  }

  bool by_prefix() {
    const std::size_t length = secret_by_prefix(text_.substr(at_));
    if (length > 0) replace(length);
    return length > 0;
  }

  // The end of a value in a path: its directory, unless what follows is of a value in base64, which has slashes as
  // well.
  std::size_t end_in_path(std::size_t from, std::size_t most) const {
    const std::size_t end = end_of_value(from, most);
    const std::string_view value = text_.substr(from, end - from);
    const std::size_t slash = std::min(value.find('/'), value.size());
    return value.find_first_of("+=", slash) == std::string_view::npos ? from + slash : end;
  }
  std::size_t end_of(std::size_t from, std::size_t most) const {
    return kind_ == Text::kPath ? end_in_path(from, most) : end_of_value(from, most);
  }

  // NAME=value, NAME: value, "name": "value", --name value. At the start of a name.
  bool by_name() {
    if (!is_alnum(text_[at_]) && text_[at_] != '_' && text_[at_] != '-') return false;
    if (at_ > 0 && is_char_of_name(text_[at_ - 1])) return false;
    std::size_t end = at_;
    while (end < text_.size() && is_char_of_name(text_[end])) ++end;
    constexpr std::size_t kLongestName = 100, kLookedBack = 100;
    if (end - at_ > kLongestName || end >= text_.size()) return false;
    const std::string_view name = text_.substr(at_, end - at_);
    // Most names are none; only for the others the value is searched, which may be long.
    constexpr std::string_view kSomeValue = "3f9a1c7e5b2d804f6a9c1e3b7d5f2048";
    if (!names_a_secret(name, kSomeValue)) return false;
    std::size_t value = end;
    if (text_[value] == '"' || text_[value] == '\'') ++value;  // of JSON and of Python's dicts
    while (value < text_.size() && text_[value] == ' ' && value - end < 3) ++value;
    const bool assigns = value < text_.size() && text_[value] == '=' && text_.substr(value, 2) != "==";
    const char next = value + 1 < text_.size() ? text_[value + 1] : '\0';
    const bool states = value < text_.size() && text_[value] == ':' && next != ':' &&
                        (kind_ == Text::kWords || is_blank(next) || next == '"' || next == '\'');
    // The file .netrc, on one line: login NAME password VALUE.
    const bool follows_login =
        name == "password" && text_[end] == ' ' &&
        contains(text_.substr(0, at_).substr(at_ > kLookedBack ? at_ - kLookedBack : 0), "login ");
    if (!assigns && !states && !follows_login) return false;
    if (assigns || states) ++value;
    while (value < text_.size() && text_[value] == ' ') ++value;
    if (value < text_.size() && (text_[value] == '"' || text_[value] == '\'' || text_[value] == '`'))
      return quoted_value(name, value);
    const std::size_t most = name == "key" ? kLongestKey : std::string_view::npos;
    const std::size_t after = end_of(value, most);
    const std::string_view found = text_.substr(value, after - value);
    if (found.empty() || found == kSecret || found.starts_with("--")) return false;
    if (words_of(name).back() == "authorization") return credentials(name, value, after);
    if (!names_a_secret(name, found)) return false;
    if (is_one_of(found, {"Bearer", "bearer", "Basic", "basic"})) return false;  // what follows is taken by by_scheme()
    copy_name(name.size(), value - at_);
    replace(after - value);
    return true;
  }

  // RFC 9110, 11.6.2: "Authorization: SCHEME CREDENTIALS", or only these. The first word is up to `first_end`; unless
  // it is a known scheme, it may be the secret.
  bool credentials(std::string_view name, std::size_t value, std::size_t first_end) {
    const std::string_view first = text_.substr(value, first_end - value);
    std::size_t begin = first_end;
    while (begin < text_.size() && text_[begin] == ' ') ++begin;
    std::size_t end = end_of(begin, std::string_view::npos);
    const std::string_view found = text_.substr(begin, end - begin);
    const bool is_known = is_scheme(first);
    if (is_known && text_.substr(begin).starts_with(kSecret)) return false;
    // "authorization: failed because ...": words of a sentence
    const bool plain = std::all_of(found.begin(), found.end(), is_lower);
    const bool two = begin > first_end && !found.empty() && std::all_of(first.begin(), first.end(), is_char_of_name) &&
                     (is_known || !plain);
    if (!two && !names_a_secret(name, first)) return false;
    if (!two) end = first_end;
    // Digest username="x", response="y"; what ends base64 is no sign of assignment.
    const std::size_t sign = two ? found.find('=') : std::string_view::npos;
    const bool assigns = sign != std::string_view::npos &&
                         (sign + 1 < found.size() ? found[sign + 1] != '=' : end < text_.size() && text_[end] == '"');
    const std::size_t from = two && is_known ? begin : value;
    if (assigns) {
      const std::size_t header_ends = end_of_header(end);
      copy_name(name.size(), from - at_);
      if (from < begin) replace(first.size()), copy(begin - at_);
      parameters(header_ends);
      return true;
    }
    copy_name(name.size(), from - at_);
    replace(end - from);
    return true;
  }

  // username="x", response=y: the values, each a secret of its own, so that each is known.
  void parameters(std::size_t end) {
    constexpr std::size_t kLongestName = 16;
    while (at_ < end) {
      while (at_ < end && ends_value(text_[at_])) copy(1);
      std::size_t name_ends = at_;
      while (name_ends < end && (is_lower(text_[name_ends]) || is_upper(text_[name_ends]) || text_[name_ends] == '_'))
        ++name_ends;
      const bool is_name =
          name_ends > at_ && name_ends - at_ <= kLongestName && name_ends < end && text_[name_ends] == '=';
      if (is_name) copy(name_ends + 1 - at_);
      while (at_ < end && (text_[at_] == '"' || text_[at_] == '\'' || text_[at_] == '\\')) copy(1);
      const std::size_t value_ends = std::min(end, end_of_value(at_));
      if (value_ends > at_) replace(value_ends - at_);
    }
  }

  // Of the line, or of the quotation that the header is, in which there may be others.
  std::size_t end_of_header(std::size_t from) const {
    const std::size_t end = std::min(text_.find('\n', from), text_.size());
    const char before = at_ > 0 ? text_[at_ - 1] : '\n';
    const bool quoted = before == '\'' || before == '"';
    const std::size_t quote = quoted ? text_.substr(from, end - from).rfind(before) : std::string_view::npos;
    return quote == std::string_view::npos ? end : from + quote;
  }

  // Copies `length` bytes that begin with a name, in which there may be a secret as well.
  void copy_name(std::size_t name, std::size_t length) {
    out_ += Scanner(text_.substr(at_, name), kind_).run();
    at_ += name;
    copy(length - name);
  }

  bool quoted_value(std::string_view name, std::size_t quote) {
    const std::string_view rest = text_.substr(quote + 1, name == "key" ? kLongestKey : std::string_view::npos);
    const std::size_t after = quote + 1 + std::min(rest.find(text_[quote]), rest.size());
    const std::string_view found = text_.substr(quote + 1, after - quote - 1);
    if (found.empty() || !names_a_secret(name, found)) return false;
    copy_name(name.size(), quote + 1 - at_);
    replace(found.size());
    return true;
  }

  // RFC 6750, RFC 7617: what follows "Bearer" or "Basic".
  bool by_scheme() {
    for (const std::string_view scheme : {"Bearer ", "bearer ", "Basic ", "basic ", "Token ", "token "}) {
      if (!text_.substr(at_).starts_with(scheme)) continue;
      const std::size_t after = end_of_value(at_ + scheme.size());
      const std::string_view found = text_.substr(at_ + scheme.size(), after - at_ - scheme.size());
      // "Basic block" is no credential.
      const bool certain = scheme[0] == 'B' || scheme[0] == 'b';
      const bool plain = std::all_of(found.begin(), found.end(), [](char c) { return is_lower(c); });
      if (found.size() < 8 || (plain && found.size() < 16)) return false;
      if (!certain && !looks_random(found, false)) return false;
      copy(scheme.size());
      replace(found.size());
      return true;
    }
    return false;
  }

  // scheme://user:password@host: RFC 3986, 3.2.1. At the start of the scheme.
  bool in_url() {
    std::size_t colon = at_;
    while (colon < text_.size() && (is_alnum(text_[colon]) || text_[colon] == '+')) ++colon;
    if (colon == at_ || text_.substr(colon, 3) != "://") return false;
    std::size_t end = colon + 3, sign = std::string_view::npos;
    for (; end < text_.size() && !is_blank(text_[end]) && text_[end] != '"' && text_[end] != '\'' &&
           text_[end] != '/' && text_[end] != '?' && text_[end] != '<';
         ++end)
      if (text_[end] == '@') sign = end;
    if (sign == std::string_view::npos) return false;
    copy(colon + 3 - at_);
    const bool only_a_user = text_.substr(at_, sign - at_) == "git";
    if (only_a_user) copy(sign - at_);
    else replace(sign - at_);
    return true;
  }

  // A digest that says what it is of: a module, or a file that is called by its contents, as caches do.
  bool is_digest() const {
    std::size_t end = at_;
    while (end < text_.size() && is_hex(text_[end])) ++end;
    if (end == at_ || (end < text_.size() && is_of_token(text_[end]) && text_[end] != '/')) return false;
    return at_ > build_id_ || (at_ > 0 && text_[at_ - 1] == '/');
  }

  // In a path or name: 40 characters of base64, which may have slashes.
  bool aws_secret_key() {
    constexpr std::size_t kLength = kAwsSecretKey;
    const auto is_base64 = [](char c) { return is_alnum(c) || c == '+' || c == '/'; };
    if (at_ > 0 && text_[at_ - 1] != '/' && is_base64(text_[at_ - 1])) return false;
    const std::string_view key = text_.substr(at_, kLength);
    const bool ends = key.size() == kLength && (at_ + kLength == text_.size() || text_[at_ + kLength] == '/' ||
                                                !is_of_token(text_[at_ + kLength]));
    const auto slashes = std::count(key.begin(), key.end(), '/');
    const bool base64 = std::all_of(key.begin(), key.end(), is_base64);
    if (!ends || !base64 || slashes > 2 || !looks_random(key, true)) return false;
    replace(kLength);
    return true;
  }

  bool random() {
    if (is_digest()) return false;
    if (kind_ != Text::kWords && aws_secret_key()) return true;
    if (at_ > 0 && is_of_token(text_[at_ - 1]) && kind_ != Text::kWords) return random_piece();
    if (at_ > 0 && is_of_token(text_[at_ - 1]) && text_[at_ - 1] != '/' && text_[at_ - 1] != '=') return false;
    if (kind_ == Text::kWords) {
      // Base64 may contain slashes; so the whole run first, unless it is a path.
      constexpr std::size_t kLooked = 2048;  // the same run may be looked at from each of its parts
      std::size_t end = at_;
      while (end < text_.size() && end - at_ < kLooked && is_of_token(text_[end])) ++end;
      const std::string_view run = text_.substr(at_, end - at_);
      const std::string_view base64 = run.substr(0, run.find('='));
      if (base64.size() == kAwsSecretKey && looks_like_aws_secret_key(base64)) return replace(kAwsSecretKey), true;
      const bool path = run.starts_with('/') || (at_ > 0 && text_[at_ - 1] == '/');
      const bool slashes = contains(base64, '/');
      if (!path && !slashes && looks_random(base64, false)) {
        while (end < text_.size() && end - at_ >= kLooked && is_of_token(text_[end])) ++end;
        const bool cut = run.size() >= kLooked && base64.size() == run.size();
        return replace(cut ? end - at_ : base64.size()), true;
      }
      const std::string_view part = run.substr(0, run.find_first_of("/="));
      if (looks_random(part, false)) return replace(part.size()), true;
    }
    return random_piece();
  }

  bool random_piece() {
    std::size_t end = at_;
    while (end < text_.size() && is_alnum(text_[end])) ++end;
    const std::string_view piece = text_.substr(at_, end - at_);
    // Behind a blank or a sign of assignment, a piece of a path is a word of a sentence that names the file.
    const bool is_name = kind_ != Text::kWords && !(at_ > 0 && (is_blank(text_[at_ - 1]) || text_[at_ - 1] == '='));
    if (!looks_random(piece, is_name)) return false;
    replace(piece.size());
    return true;
  }

  std::string_view text_;
  Text kind_;
  std::size_t build_id_;  // where the text begins to speak of build-ids; npos: it does not
  std::vector<Span> of_commands_;
  std::size_t next_of_command_ = 0;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

bool names_a_secret(std::string_view name, std::string_view value) {
  const std::vector<std::string> words = words_of(name);
  if (words.empty()) return false;
  std::string whole;
  for (const std::string& word : words) whole += word;
  if (is_one_of(whole, {"pwd", "oldpwd"}) && value.starts_with('/')) return false;
  for (const std::string_view part : {"password", "passwd", "passphrase", "apikey", "secretkey", "accesskey",
                                      "privatekey", "accountkey", "signingkey", "encryptionkey", "masterkey",
                                      "licensekey", "clientsecret", "connectionstring", "credential", "sessionkey"})
    if (contains(whole, part)) return !is_one_of(value, {"", "true", "false", "True", "False", "None"});
  const std::string& last = words.back();
  if (is_one_of(last, {"secret", "pwd", "psw", "pw", "sas", "sig", "signature", "cookie", "authtoken"}) ||
      last.ends_with("secret") || last.ends_with("pwd"))
    return !is_number_or_flag(value) || last.ends_with("pwd");
  if (name == "key") return looks_random(value, false);
  if (is_one_of(last, {"sid", "sessionid"})) return words.size() == 1 && value.size() >= 8 && !is_number_or_flag(value);
  if (last == "authorization") return value.size() >= 8;
  if (is_one_of(last, {"auth", "bearer"})) return value.size() >= 8 && !is_number_or_flag(value);
  if (last.ends_with("pass")) return whole == "pass" || (!is_number_or_flag(value) && !is_pass_over_something(words));
  if (last.ends_with("token") || last == "jwt" ||
      (last == "key" && is_one_of(words.front(), {"hf", "openai", "wandb"})))
    return !is_number_or_flag(value) && !is_token_of_text(words);
  return false;
}

std::string without_secrets(std::string_view text, Text kind) { return Scanner(text, kind).run(); }

std::string without_cut_secrets(std::string_view name) {
  std::string shown = without_secrets(name, Text::kName);
  if (name.size() != kOfKernel) return shown;
  for (std::size_t at = 0; at < shown.size(); ++at) {
    if (at > 0 && is_alnum(shown[at - 1])) continue;
    if (cut_secret(std::string_view(shown).substr(at)) > 0) return shown.substr(0, at) + std::string(kSecret);
    // A URL of which the host is not there any more: scheme://user:pass
    const std::size_t user = shown.find("://", at),
                      colon = user == std::string::npos ? user : shown.find(':', user + 3);
    if (colon != std::string::npos && colon + 1 < shown.size() && !is_digit(shown[colon + 1]))
      return shown.substr(0, user + 3) + std::string(kSecret);
  }
  return shown;
}

std::vector<std::string> without_secrets(std::vector<std::string> words) {
  const std::vector<Span> spans = secrets_of_words(words);
  auto span = spans.begin();
  std::size_t begin = 0;
  for (std::string& word : words) {
    const std::size_t end = begin + word.size();
    std::string shown;
    std::size_t at = begin;
    for (; span != spans.end() && span->begin < end; ++span) {
      shown += without_secrets(std::string_view(word).substr(at - begin, span->begin - at), Text::kWords);
      shown += kSecret;
      at = span->end;
    }
    shown += without_secrets(std::string_view(word).substr(at - begin), Text::kWords);
    word = std::move(shown);
    begin = end + 1;
  }
  return words;
}

}  // namespace rankstacks::redact
