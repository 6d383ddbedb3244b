// Sentences as lines of text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rankstacks::report {

// Wraps a sanitized text into lines of at most `width` columns; later lines are indented.
std::vector<std::string> wrap(const std::string& text, std::size_t width, std::size_t indent);

}  // namespace rankstacks::report
