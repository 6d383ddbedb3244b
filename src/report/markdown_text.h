// Puts texts from a target into Markdown, so that they show as they are in GitHub's and in GitLab's dialect: they
// cannot leave their place, mention a person (@name), refer to an issue (#1, GH-1, PROJ-1), a commit or an address, run
// a quick action (/close) or become HTML. Backslashes do not help against most of these, because both look for them in
// the finished text; inside of code they look for none.
//
// https://github.github.com/gfm/, https://docs.gitlab.com/ee/user/markdown.html
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rankstacks::report {

// A sanitized sentence: plain words stay, every other word becomes code, options of a command ("--threads all --rank
// 3") together. Never at the start of a line.
std::string markdown_sentence(std::string_view text);

// A sanitized text as code, between as many backticks as it takes.
std::string markdown_code(std::string_view text);

// Lines of sanitized text as a block of code, ended by a newline. The fence is longer than any in the lines.
std::string markdown_block(const std::vector<std::string>& lines);

// A label of a Mermaid graph, in its quotes: letters, digits and harmless punctuation; other characters become ones
// that look like them, or "?". At most `columns` wide.
std::string mermaid_label(std::string_view text, std::size_t columns);

// At most `bytes` long, cut between characters and marked with "…".
std::string cut_to_bytes(std::string_view text, std::size_t bytes);

}  // namespace rankstacks::report
