// Sentences and counts as lines of text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rankstacks::report {

// Wraps a sanitized text into lines of at most `width` columns; later lines are indented.
std::vector<std::string> wrap(const std::string& text, std::size_t width, std::size_t indent);

// "1 rank", "2 ranks"
std::string times(std::size_t n, std::string_view one, std::string_view many);

}  // namespace rankstacks::report
