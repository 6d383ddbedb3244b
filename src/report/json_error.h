// What is said of a text that is no JSON.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace rankstacks {

// nlohmann's out_of_range.406: a number that no double holds. The library does not say where it stands.
inline constexpr int kNumberOutOfRange = 406;

// "line 3, column 13: syntax error while parsing value - unexpected '}'; expected '[', '{', or a literal", or "found a
// number out of range": the library's words, without what it quotes of the text, which may be anything.
std::string json_error_text(const nlohmann::detail::exception& error);

}  // namespace rankstacks
