// Redacts one value of a snapshot, by what the value is. Each distinct value is looked at once: the threads of a job
// share most of theirs.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "redact/private_text.h"
#include "redact/pseudonyms.h"

namespace rankstacks::redact {

class FieldRedaction {
 public:
  // `names`: pseudonyms as well, not secrets alone.
  FieldRedaction(Pseudonyms& pseudonyms, bool names, bool secrets)
      : pseudonyms_(pseudonyms), private_(pseudonyms), names_(names), secrets_(secrets) {}

  void host(std::string& value);
  void boot(std::string& value);  // of a machine: its boot id
  void name(std::string& value);  // of a function, kernel, type, group
  void thread_name(std::string& value);
  void version(std::string& value);  // of a library, driver or kernel
  void path(std::string& value);     // of a program, module, source file
  void file(std::string& value);     // of data: what a descriptor refers to
  void text(std::string& value);     // a sentence
  void message(std::string& value);  // of an exception: the program's own words
  void command(std::vector<std::string>& words);
  // The value of a variable of the environment. Values that mean the same get one pseudonym: `meaning` is one of them.
  void variable(const std::string& name, std::string& value, const std::string& meaning);
  void command_line(std::string& value);  // words separated by blanks, perhaps cut

  // Hosts and users are met in the order of the fields, and a field before may hold the name as well: after one walk
  // over everything, the second one knows them all.
  void forget_values() { done_.clear(); }
  bool has_changed() const { return changed_; }

  // Without pseudonyms: the secrets that were taken out.
  std::set<std::string> take_hidden() { return std::move(hidden_); }

 private:
  void put(int kind, std::string& value, const std::function<std::string(const std::string&)>& redacted);
  std::string data_file(const std::string& path);
  std::string own_words(const std::string& text);
  std::vector<std::string> without_arguments(const std::vector<std::string>& words);
  std::string argument(const std::string& word, bool is_version);
  std::string setting(const std::string& name, const std::string& value, const std::string& meaning);

  Pseudonyms& pseudonyms_;
  PrivateText private_;
  bool names_, secrets_, changed_ = false;
  std::unordered_map<std::string, std::string> done_;  // by kind and value
  std::set<std::string> hidden_;
};

}  // namespace rankstacks::redact
