// Replaces what identifies people and machines in a text by pseudonyms: home directories, user names, e-mail
// addresses, host names, pods, IPv4 and IPv6 addresses with their ports.
//
// Hosts and users are known from the fields that hold them, or are met in paths and addresses ("/home/alice/x",
// "alice@node-a"); once known they are replaced wherever they stand as a word of their own.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "redact/pseudonyms.h"
#include "redact/secrets.h"

namespace rankstacks::redact {

// "--version", "NCCL_VERSION": four numbers with dots between them are no address there.
bool names_a_version(std::string_view name);

class PrivateText {
 public:
  explicit PrivateText(Pseudonyms& names) : names_(names) {}

  // The value of a field that holds a host: its name or its address. "", "unknown" and "localhost" stay.
  std::string host(std::string_view original);
  void know_user(std::string_view user);

  // Of a value that consists of addresses ("10.0.0.1", "10.0.0.1:4711,10.0.0.0/24", "tcp://[fe80::1]:80"): with
  // pseudonyms in their places; nullopt: it is something else.
  std::optional<std::string> addresses(std::string_view value);

  // Without secrets as well.
  std::string replaced(std::string_view text, Text kind);

 private:
  friend class PrivateScan;
  // The length of the word at the start of `text` that is a known host or user, and its pseudonym.
  struct Match {
    std::size_t length = 0;
    std::string name;
  };
  std::optional<Match> known_word(std::string_view text, Text kind) const;
  void know_host(std::string_view host, const std::string& name);

  Pseudonyms& names_;
  std::map<std::string, std::string, std::less<>> words_;  // hosts and users, to their pseudonyms
  std::set<std::size_t, std::greater<>> lengths_;          // of the words
};

}  // namespace rankstacks::redact
