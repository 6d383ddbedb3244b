// Reads a user's own rules, and writes all rules in force as JSON and as text (docs/rules.md, docs/rules.schema.json).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "known/known_programs.h"

namespace rankstacks::report {

inline constexpr std::size_t kMaxRulesBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxRules = 10000;  // of one file

// The rules of one file. Anything in it that is not understood is an error (kMalformed, kLimit): otherwise a misspelt
// word would be a rule that never matches. The message names the line, the value as a JSON pointer, the text found and
// the text expected. A rule without a source has the file's source, or `subject`.
Result<known::AddedPrograms> read_rules(std::string_view text, const std::string& subject);

// The rules in the form that read_rules() reads: one rule a line, the added ones before the built-in ones; ends with a
// newline.
std::string json_of_rules(const known::KnownPrograms& rules);

struct RulesTextOptions {
  bool color = false;
};
// The rules as text: a section for each kind of rule; added rules are marked with "+".
std::string text_of_rules(const known::KnownPrograms& added, const known::KnownPrograms& built_in,
                          const RulesTextOptions& options);

}  // namespace rankstacks::report
