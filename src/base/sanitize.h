// Makes text from a target (thread names, paths, Python's names, problem texts) safe for a terminal: it never moves the
// cursor, changes a colour, reverses the reading direction or breaks a line. Characters that would do so are shown as
// visible escapes: \n \x1b \u202e \xff.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rankstacks {
inline namespace base {

std::string sanitize(std::string_view text);

// The same for JSON, whose own escapes leave DEL, C1 controls and direction marks as they are: those become \uXXXX, so
// that a report shown by `cat` or `less -r` does not affect a terminal either. The document's values do not change.
std::string escape_in_json(std::string_view json);

// The number of columns that a sanitized text takes: code points, 2 for East Asian wide ones and emoji, 0 for combining
// marks.
std::size_t columns_of(std::string_view text);

// Cuts a text to at most `width` columns, at its end, marked with "…".
std::string cut_end(std::string_view text, std::size_t width);
// The same, cut at the beginning: the most important part of a path is the file.
std::string cut_start(std::string_view text, std::size_t width);

// For error messages: a text that was found where another one was expected, sanitized, in quotes, cut after 60 columns.
std::string in_quotes(std::string_view text);

}  // namespace base
}  // namespace rankstacks
