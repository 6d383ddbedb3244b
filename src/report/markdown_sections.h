// Divides the room of a Markdown report among the sections that a click opens.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace rankstacks::report {

struct MarkdownSection {
  std::string title;               // this tool's own words, and numbers
  std::vector<std::string> lines;  // sanitized; the section is a block of code
  std::size_t weight = 1;          // its share of the room, if there is not enough for all
  std::vector<std::string> brief;  // instead of the lines where these do not fit; may be empty
};

// Each section gets the room that it needs, if that is no more than its share; what such sections leave is shared by
// the others, which are shown in brief if they can be, else without their last lines. A section that would have fewer
// than five lines is left out as a whole. What is left out of which is said at the end. At most `room` bytes.
std::string markdown_sections(const std::vector<MarkdownSection>& sections, std::size_t room);

}  // namespace rankstacks::report
