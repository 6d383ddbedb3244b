// What comes from a target (thread names, paths, Python's names, problem texts) made fit for a terminal: it never moves the cursor, changes
// a colour, reverses the reading direction or breaks a line. What would is shown as a visible escape: \n \x1b \u202e \xff.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rankstacks {

std::string sanitize(std::string_view text);

// The same for JSON, whose own escapes leave DEL, C1 controls and direction marks as they are: those become \uXXXX, so
// that a report shown by `cat` or `less -r` does nothing to a terminal either. The document's values do not change.
std::string escape_in_json(std::string_view json);

// Columns that a sanitized text takes: code points, 2 for East Asian wide ones and emoji, 0 for combining marks.
std::size_t columns_of(std::string_view text);

// At most `width` columns, the end cut and marked "…".
std::string cut_end(std::string_view text, std::size_t width);
// The same with the beginning cut: of a path, the file is what matters.
std::string cut_start(std::string_view text, std::size_t width);

// A text that was found where another was expected, for an error's line: sanitized, in quotes, the end cut beyond 60 columns.
std::string in_quotes(std::string_view text);

}  // namespace rankstacks
