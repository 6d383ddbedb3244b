// Takes secrets out of the local variables of Python frames, which `dump --locals` shows: by the name of the variable,
// by the key of a dict, by the words of a list that is a command, and by their shape. What was a secret in one place is
// none anywhere else: of all frames of a process, and of its environment and its command.
//
// The strings are those of the process, before they are quoted and cut (model/python_value.h).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "model/snapshot.h"
#include "redact/field_redaction.h"

namespace rankstacks::redact {

class LocalSecrets {
 public:
  // `known`: secrets that stand elsewhere in the process.
  LocalSecrets(FieldRedaction& fields, std::vector<std::string> known);

  // Of all threads of a process.
  void take_out(std::vector<ThreadSnapshot>& threads);

 private:
  void hide_in(PythonValue& value, const std::string& name);
  void hide_all(PythonValue& value, const std::string& name);
  void hide_in_words(std::vector<PythonValue>& items);
  void hide_in_sequence(const std::vector<PythonValue*>& values);
  void hide_text(PythonValue& value, std::string shown);
  // Of a text that holds others in quotes, as JSON and reprs do.
  void learn_from_quoted(std::string text);
  void learn(const std::string& text, const std::string& shown);
  void hide_known(PythonValue& value) const;

  FieldRedaction& fields_;
  std::set<std::string> secrets_;
  std::vector<std::string> longest_first_;
};

}  // namespace rankstacks::redact
