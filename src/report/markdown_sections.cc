#include "report/markdown_sections.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "report/markdown_text.h"

namespace rankstacks::report {
namespace {

constexpr std::size_t kRoomForNote = 300;

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
std::string part(const MarkdownSection& section, std::size_t room) {
  constexpr std::size_t kFewestLines = 5;
  std::size_t low = 0, high = section.lines.size();
  const auto first = [&](std::size_t count) {
    std::vector<std::string> lines(section.lines.begin(), section.lines.begin() + static_cast<std::ptrdiff_t>(count));
    lines.push_back(fmt::format("... {} more lines left out", section.lines.size() - count));
    return whole(section.title, lines);
  };
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    if (first(middle).size() <= room) low = middle;
    else high = middle - 1;
  }
  return low < kFewestLines ? "" : first(low);
}

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
  if (room < kRoomForNote) return "";
  const std::vector<std::size_t> rooms = rooms_of(sections, needs, room - kRoomForNote);
  std::size_t cut = 0, gone = 0;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    if (needs[i] <= rooms[i]) {
      text += texts[i];
      continue;
    }
    const std::string shown = part(sections[i], rooms[i]);
    ++(shown.empty() ? gone : cut);
    text += shown;
  }
  return text + fmt::format(
                    "*Left out to keep the report short: the last lines of {} section{}, and {} section{} as a "
                    "whole. `--max-bytes`, or `--format json`, shows them.*\n",
                    cut, plural(cut), gone, plural(gone));
}

}  // namespace rankstacks::report
