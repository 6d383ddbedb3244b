// The message for a text that is not valid JSON.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace rankstacks::report {

// nlohmann's out_of_range.406: a number that does not fit into a double. The library does not say where it is.
inline constexpr int kNumberOutOfRange = 406;

// "line 3, column 13: syntax error while parsing value - unexpected '}'; expected '[', '{', or a literal", or "found a
// number out of range": the library's words, without the part that quotes the text, which may contain anything.
std::string json_error_text(const nlohmann::detail::exception& error);

}  // namespace rankstacks::report
