#include "redact/private_text.h"

#include <arpa/inet.h>
#include <algorithm>
#include <array>

#include "base/text.h"
#include "redact/secret_shapes.h"

namespace rankstacks::redact {
namespace {

// Accounts, and words, that identify nobody. A user of such a name loses the home directory, and the name stays.
bool is_common(std::string_view user) {
  return user.size() < 3 ||
         is_one_of(user,
                   {"root",   "user",   "users",  "ubuntu", "debian",  "centos", "admin", "app",    "home",  "data",
                    "train",  "torch",  "python", "main",   "test",    "tests",  "work",  "worker", "model", "models",
                    "nobody", "runner", "jovyan", "conda",  "default", "shared", "share", "local",  "lib",   "opt",
                    "nvidia", "cuda",   "nccl",   "mpi",    "gpu",     "job",    "jobs",  "rank",   "host",  "node"});
}

bool is_path_char(char c) {
  return is_alnum(c) || c == '_' || c == '-' || c == '.' || c == '+' || c == '@' || c == '~';
}
bool is_host_char(char c) { return is_alnum(c) || c == '-' || c == '.'; }

std::string_view run_of(std::string_view text, bool (*of)(char)) {
  return text.substr(0, static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), of) - text.begin()));
}

// "node17.cluster.example.com": a name of the DNS, by its last label. Names of modules and files end otherwise.
bool is_domain(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || contains(name, "..")) return false;
  const std::string_view last = name.substr(dot + 1);
  if (is_one_of(last, {"com", "net", "org", "edu", "gov", "internal", "local", "localdomain", "lan", "intra", "corp",
                       "cloud", "example", "invalid", "svc"}))
    return true;
  const bool three = contains(name.substr(0, dot), '.');
  return three &&
         is_one_of(last, {"io", "ai", "dev", "de", "uk", "fr", "ch", "eu", "cn", "jp", "kr", "in", "us", "ca"});
}

// "trainer-7d9f8b6c5d-x2k4q": a pod of a Kubernetes deployment. Their random parts have no vowels and none of 0, 1, 3.
bool is_pod(std::string_view name) {
  const auto random = [](std::string_view part, std::size_t least, std::size_t most) {
    return part.size() >= least && part.size() <= most &&
           std::all_of(part.begin(), part.end(), [](char c) { return contains("bcdfghjklmnpqrstvwxz2456789", c); });
  };
  const std::size_t last = name.rfind('-');
  if (last == std::string_view::npos || last == 0 || !random(name.substr(last + 1), 5, 5)) return false;
  const std::size_t before = name.rfind('-', last - 1);
  const bool digits = std::any_of(name.begin(), name.end(), is_digit);
  return before != std::string_view::npos && before > 0 && digits &&
         random(name.substr(before + 1, last - before - 1), 8, 10);
}

bool parses_as(int family, std::string_view address) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return address.size() < INET6_ADDRSTRLEN && inet_pton(family, std::string(address).c_str(), bytes.data()) == 1;
}

bool is_loopback(std::string_view address) {
  return (address.starts_with("127.") && parses_as(AF_INET, address)) ||
         is_one_of(address, {"0.0.0.0", "::1", "::", "::ffff:127.0.0.1"});
}

bool ends_with_version(std::string_view text) {
  for (const std::string_view word : {"version", "Version", "VERSION"}) {
    if (!text.ends_with(word)) continue;
    const std::string_view before = text.substr(0, text.size() - word.size());
    return word[0] == 'V' || before.empty() || !is_lower(before.back());  // no "conversion"
  }
  return false;
}

// What is said before a number tells that it is a version: "version 1.2.3.4", "torch==1.2.3.4", "x>=1.2.3.4".
bool tells_a_version(std::string_view before) {
  for (const std::string_view sign : {"==", ">=", "<=", "~=", "!="})
    if (before.ends_with(sign)) return true;
  while (!before.empty() && contains(" :='\"", before.back())) before.remove_suffix(1);
  return ends_with_version(before);
}

// ":4711" at the start of the text: its length.
std::size_t length_of_port(std::string_view text) {
  if (!text.starts_with(':')) return 0;
  const std::size_t digits = run_of(text.substr(1), is_digit).size();
  return digits == 0 || digits > 5 || (digits + 1 < text.size() && is_alnum(text[digits + 1])) ? 0 : digits + 1;
}

// "/24" at the start of the text: its length.
std::size_t length_of_mask(std::string_view text) {
  if (!text.starts_with('/')) return 0;
  const std::size_t digits = run_of(text.substr(1), is_digit).size();
  return digits == 0 || digits > 3 ? 0 : digits + 1;
}

}  // namespace

bool names_a_version(std::string_view name) { return ends_with_version(name) || name.ends_with("_VER"); }

// One pass over one text.
class PrivateScan {
 public:
  PrivateScan(PrivateText& of, std::string_view text, Text kind) : of_(of), text_(text), kind_(kind) {}

  std::string run() {
    out_.reserve(text_.size());
    while (at_ < text_.size()) {
      const bool starts = at_ == 0 || !is_alnum(text_[at_ - 1]);
      if (starts && (home() || mail() || address() || pod() || known() || domain())) continue;
      out_ += text_[at_++];
    }
    return std::move(out_);
  }

  // PrivateText::addresses
  std::optional<std::string> run_over_addresses() {
    while (true) {
      if (text_.substr(at_).starts_with("tcp://")) copy(6);
      if (at_ >= text_.size() || !address()) return std::nullopt;
      copy(length_of_port(text_.substr(at_)));  // of a loopback address
      copy(length_of_mask(text_.substr(at_)));
      if (at_ == text_.size()) return std::move(out_);
      if (text_[at_] != ',' && text_[at_] != '-') return std::nullopt;
      copy(1);
    }
  }

 private:
  bool replace(std::size_t length, std::string_view name) {
    out_ += name;
    at_ += length;
    return true;
  }
  void copy(std::size_t length) {
    out_ += text_.substr(at_, length);
    at_ += length;
  }
  char before() const { return at_ == 0 ? '\0' : text_[at_ - 1]; }

  // "/home/alice/x" -> "~/x", "/mnt/home/alice/x" -> "~/x", "/root/x" -> "~/x", "~alice/x" -> "~/x".
  bool home() {
    if (is_path_char(before()) || before() == '/') return false;
    if (text_[at_] == '~' && at_ + 1 < text_.size() && is_lower(text_[at_ + 1])) {
      const std::string_view user =
          run_of(text_.substr(at_ + 1), [](char c) { return is_alnum(c) || c == '_' || c == '-'; });
      if (user.starts_with("user-")) return false;  // a pseudonym already
      of_.know_user(user);
      return replace(user.size() + 1, of_.names_.home_of(user));
    }
    if (text_[at_] != '/') return false;
    std::string_view rest = text_.substr(at_);
    if (rest == "/root" || rest.starts_with("/root/")) return replace(5, of_.names_.home_of("root"));
    constexpr int kDepth = 8;
    std::size_t used = 0;
    for (int level = 0; level < kDepth && rest.starts_with('/'); ++level) {
      const std::string_view name = run_of(rest.substr(1), is_path_char);
      rest.remove_prefix(1 + name.size());
      used += 1 + name.size();
      const bool holds_homes = is_one_of(name, {"home", "homes", "Users", "users"});
      if (!holds_homes || !rest.starts_with('/')) continue;
      const std::string_view user = run_of(rest.substr(1), is_path_char);
      if (user.empty()) return false;
      of_.know_user(user);
      return replace(used + 1 + user.size(), of_.names_.home_of(user));
    }
    return false;
  }

  // "alice@example.com", "alice@node-a"
  bool mail() {
    const auto of_local = [](char c) {
      return is_alnum(c) || c == '.' || c == '_' || c == '%' || c == '+' || c == '-';
    };
    if (of_local(before())) return false;
    const std::string_view local = run_of(text_.substr(at_), of_local);
    const std::size_t sign = at_ + local.size();
    if (local.empty() || sign >= text_.size() || text_[sign] != '@') return false;
    std::string_view host = run_of(text_.substr(sign + 1), is_host_char);
    while (host.ends_with('.') || host.ends_with('-')) host.remove_suffix(1);
    if (host.empty() || is_digit(local.front())) return false;
    const std::size_t length = local.size() + 1 + host.size();
    const bool version_of_symbol = kind_ == Text::kName && host.starts_with("GLIBC");  // memcpy@GLIBC_2.14
    if (version_of_symbol) return false;
    if (contains(host, '.') && !parses_as(AF_INET, host))
      return replace(length, of_.names_.of("email", text_.substr(at_, length)));
    if (kind_ == Text::kName) return false;
    of_.know_user(local);
    const std::string user = of_.names_.of("user", local);
    return replace(length, user + "@" + of_.host(host));
  }

  bool address() {
    if (is_path_char(before()) && before() != '-' && before() != '@') return false;
    return ipv4() || ipv6();
  }

  bool ipv4() {
    const std::string_view digits = run_of(text_.substr(at_), [](char c) { return is_digit(c) || c == '.'; });
    std::string_view number = digits;
    while (number.ends_with('.')) number.remove_suffix(1);
    if (!parses_as(AF_INET, number)) return false;
    const std::string_view rest = text_.substr(at_ + number.size());
    if (!rest.empty() && (is_alnum(rest.front()) || rest.front() == '_')) return false;
    if (tells_a_version(text_.substr(0, at_))) return false;
    return replace_address(number, number.size());
  }

  bool ipv6() {
    const bool bracketed = text_[at_] == '[';
    const auto of_address = [](char c) { return is_hex(c) || c == ':' || c == '.'; };
    constexpr std::size_t kLongest = 64;
    if (before() == ':') return false;
    const std::string_view run = run_of(text_.substr(at_ + bracketed, kLongest), of_address);
    if (std::count(run.begin(), run.end(), ':') < 2) return false;
    std::size_t length = run.size();
    std::size_t scope = 0;  // fe80::1%eth0
    const std::string_view rest = text_.substr(at_ + bracketed + length);
    if (rest.starts_with('%')) scope = 1 + run_of(rest.substr(1), is_alnum).size();
    if (bracketed && !text_.substr(at_ + 1 + length + scope).starts_with(']')) return false;
    const bool in_word = !bracketed && scope == 0 && !rest.empty() && (is_alnum(rest.front()) || rest.front() == '_');
    if (in_word || std::none_of(run.begin(), run.end(), is_digit)) return false;
    // In names "a::1" can be C++.
    if (kind_ == Text::kName && !bracketed && std::count(run.begin(), run.end(), ':') < 4) return false;
    std::string_view number = run;
    if (!parses_as(AF_INET6, number) && !bracketed) {  // "fe80::1:" before a blank
      while (number.ends_with(':') || number.ends_with('.')) number.remove_suffix(1);
      length = number.size();
    }
    if (!parses_as(AF_INET6, number)) return false;
    return replace_address(number, length + scope + 2 * bracketed);
  }

  // "10.0.0.1:4711" -> "ip-1:port-1"
  bool replace_address(std::string_view address, std::size_t length) {
    if (is_loopback(address)) {
      copy(length);
      return true;
    }
    replace(length, of_.names_.of("ip", address));
    if (const std::size_t port = length_of_port(text_.substr(at_)); port > 0)
      replace(port, ":" + of_.names_.of("port", text_.substr(at_ + 1, port - 1)));
    return true;
  }

  bool pod() {
    if (kind_ == Text::kName || is_host_char(before())) return false;
    if (starts_with_uuid(text_.substr(at_)) && text_.substr(0, at_).ends_with("pods/"))
      return replace(36, of_.names_.of("pod", text_.substr(at_, 36)));
    const std::string_view name =
        run_of(text_.substr(at_), [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
    return is_pod(name) && replace(name.size(), of_.names_.of("pod", name));
  }

  bool known() {
    if (kind_ == Text::kName && before() == '_') return false;
    const auto match = of_.known_word(text_.substr(at_), kind_);
    return match && replace(match->length, match->name);
  }

  bool domain() {
    if (kind_ != Text::kWords || is_host_char(before()) || before() == '_') return false;
    std::string_view name = run_of(text_.substr(at_), is_host_char);
    while (name.ends_with('.') || name.ends_with('-')) name.remove_suffix(1);
    if (!is_domain(name) || text_.substr(at_ + name.size()).starts_with('(')) return false;
    return replace(name.size(), of_.host(name));
  }

  PrivateText& of_;
  std::string_view text_;
  Text kind_;
  std::size_t at_ = 0;
  std::string out_;
};

std::string PrivateText::host(std::string_view original) {
  if (original.empty() || is_one_of(original, {"unknown", "localhost"}) || is_loopback(original))
    return std::string(original);
  if (parses_as(AF_INET, original) || parses_as(AF_INET6, original)) return names_.of("ip", original);
  // Known without its domain: "node-17" of "node-17.example.com".
  if (const auto known = words_.find(original); known != words_.end()) return known->second;
  const std::string name = is_pod(original) ? names_.of("pod", original) : names_.of("host", original);
  know_host(original, name);
  return name;
}

void PrivateText::know_host(std::string_view host, const std::string& name) {
  constexpr std::size_t kLeast = 3;
  if (host.size() < kLeast || is_common(host)) return;
  if (words_.try_emplace(std::string(host), name).second) lengths_.insert(host.size());
  // Without its domain, where that is no ordinary word.
  const std::string_view brief = host.substr(0, host.find('.'));
  const bool telling =
      brief.size() > kLeast && std::any_of(brief.begin(), brief.end(), [](char c) { return is_digit(c) || c == '-'; });
  if (telling && words_.try_emplace(std::string(brief), name).second) lengths_.insert(brief.size());
}

void PrivateText::know_user(std::string_view user) {
  const std::string name = names_.of("user", user);
  if (is_common(user)) return;
  if (words_.try_emplace(std::string(user), name).second) lengths_.insert(user.size());
}

std::optional<PrivateText::Match> PrivateText::known_word(std::string_view text, Text kind) const {
  for (const std::size_t length : lengths_) {  // the longest first
    if (length > text.size()) continue;
    const bool ends =
        length == text.size() || !(is_alnum(text[length]) || (kind == Text::kName && text[length] == '_'));
    if (!ends) continue;
    const auto found = words_.find(text.substr(0, length));
    if (found != words_.end()) return Match{length, found->second};
  }
  return std::nullopt;
}

std::optional<std::string> PrivateText::addresses(std::string_view value) {
  return PrivateScan(*this, value, Text::kWords).run_over_addresses();
}

std::string PrivateText::replaced(std::string_view text, Text kind) {
  const std::string safe = without_secrets(text, kind);
  return PrivateScan(*this, safe, kind).run();
}

}  // namespace rankstacks::redact
