#include "report/markdown_sections.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "report/markdown_text.h"

namespace rankstacks::report {
namespace {

std::string whole(const std::string& title, const std::vector<std::string>& lines) {
  return fmt::format("<details><summary>{}</summary>\n\n{}\n</details>\n\n", title, markdown_block(lines));
}

// The room of each section: repeatedly, those that need no more than their share get what they need.
std::vector<std::size_t> rooms_of(const std::vector<MarkdownSection>& sections, const std::vector<std::size_t>& needs,
                                  std::size_t room) {
  std::vector<std::size_t> rooms(sections.size(), 0);
  std::vector<bool> done(sections.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    std::size_t weights = 0;
    for (std::size_t i = 0; i < sections.size(); ++i)
      if (!done[i]) weights += sections[i].weight;
    const std::size_t left = room;
    for (std::size_t i = 0; i < sections.size(); ++i) {
      if (done[i]) continue;
      rooms[i] = left / weights * sections[i].weight;
      if (needs[i] > rooms[i]) continue;
      rooms[i] = needs[i];
      room -= needs[i];
      done[i] = changed = true;
    }
  }
  return rooms;
}

// As many lines as fit into `room` bytes, and a last line that says how many do not. "" if these are too few.
std::string part(const std::string& title, const std::vector<std::string>& all, std::size_t room) {
  constexpr std::size_t kFewestLines = 5;
  std::size_t low = 0, high = all.size();
  const auto first = [&](std::size_t count) {
    std::vector<std::string> lines(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
    if (count < all.size()) lines.push_back(fmt::format("... {} more lines left out", all.size() - count));
    return whole(title, lines);
  };
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    if (first(middle).size() <= room) low = middle;
    else high = middle - 1;
  }
  return low < std::min(kFewestLines, all.size()) ? "" : first(low);
}

// What was left out, by section.
struct LeftOut {
  std::vector<std::string> details, lines, sections;

  std::string text() const {
    std::string what;
    const auto add = [&](std::string_view of, const std::vector<std::string>& titles) {
      if (!titles.empty()) what += fmt::format("{}{} {}", what.empty() ? "" : "; ", of, fmt::join(titles, ", "));
    };
    add("the details of", details);
    add("the last lines of", lines);
    add("all of", sections);
    return fmt::format("*Left out to keep the report short: {}. `--max-bytes`, or `--format json`, shows them.*\n",
                       what);
  }
};

}  // namespace

std::string markdown_sections(const std::vector<MarkdownSection>& sections, std::size_t room) {
  std::vector<std::string> texts;
  std::vector<std::size_t> needs;
  std::size_t all = 0;
  for (const MarkdownSection& section : sections) {
    texts.push_back(whole(section.title, section.lines));
    needs.push_back(texts.back().size());
    all += needs.back();
  }
  std::string text;
  if (all <= room) {
    for (const std::string& one : texts) text += one;
    return text;
  }
  LeftOut longest;  // the note, were all its titles in the longest of its lists
  for (const MarkdownSection& section : sections) longest.sections.push_back(section.title);
  longest.details = longest.lines = {""};
  const std::size_t room_for_note = longest.text().size();
  if (room < room_for_note) return "";
  const std::vector<std::size_t> rooms = rooms_of(sections, needs, room - room_for_note);
  LeftOut left_out;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const MarkdownSection& section = sections[i];
    if (needs[i] <= rooms[i]) {
      text += texts[i];
      continue;
    }
    std::string shown = whole(section.title, section.brief);
    if (!section.brief.empty() && shown.size() <= rooms[i]) {
      left_out.details.push_back(section.title);
    } else {
      shown = part(section.title, section.brief.empty() ? section.lines : section.brief, rooms[i]);
      (shown.empty() ? left_out.sections : left_out.lines).push_back(section.title);
    }
    text += shown;
  }
  return text + left_out.text();
}

}  // namespace rankstacks::report
