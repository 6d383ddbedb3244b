// Rules of a user's own, and all rules that hold, as JSON and as text (docs/rules.md, docs/rules.schema.json).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "known/known_programs.h"

namespace rankstacks {

inline constexpr std::size_t kMaxRulesBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxRules = 10000;   // of one file

// The rules of one file. Whatever it says that is not understood is an error (kMalformed, kLimit): a misspelt word would else be a rule that never holds.
// The message names the line, the value as a JSON pointer, what was found and what was expected. A rule without a source has the file's, or `subject`.
Result<AddedPrograms> read_rules(std::string_view text, const std::string& subject);

// In the form that read_rules() reads: one rule a line, the added ones before the built-in ones; ends with a newline.
std::string json_of_rules(const KnownPrograms& rules);

struct RulesTextOptions {
  bool color = false;
};
// For people: a section for each kind of rule; those added are marked with "+".
std::string text_of_rules(const KnownPrograms& added, const KnownPrograms& built_in, const RulesTextOptions& options);

}  // namespace rankstacks
