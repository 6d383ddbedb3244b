// Secrets in command lines: which options of which programs have one as their value, who reads one from standard input,
// and long options whose names say it. Of the words of a command, and of texts in which commands stand: the script of
// `sh -c`, what an exception says of a command that has failed, ['mysql', '-pX'].
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "redact/secrets.h"

namespace rankstacks::redact {

struct Span {
  std::size_t begin = 0, end = 0;
};

// In order; none overlaps another.
std::vector<Span> secrets_of_commands(std::string_view text, Text kind);

// Of the words of one command: in their text with one blank between any two of them.
std::vector<Span> secrets_of_words(const std::vector<std::string>& words);

}  // namespace rankstacks::redact
