// The tables of an HTML report's data (docs/html.md): texts, frames, stacks and the merged tree, each different one
// once, so that the size grows with the number of different stacks and not with the number of threads.
//
//     strings   ["main", "/home/u/train.py:17", ...]
//     frames    [[kind, name, full name, place, full place, keep], ...]     texts by their index in `strings`
//     stacks    a trie: entry i is frame frames[i] called by entry parents[i]; a stack is the index of its innermost one
//     tree      the same for the normalised stacks of the clusters (analyzers/normalize.h): where they part
//
// A frame has no address in memory, which differs between ranks; a native frame's place has the offset in its module.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analyzers/normalize.h"
#include "analyzers/tree.h"
#include "model/snapshot.h"
#include "report/json_text.h"

namespace rankstacks::report {

class HtmlTables {
 public:
  static constexpr int kNone = -1;

  // The job must outlive this object.
  explicit HtmlTables(const JobSnapshot& job);

  // The index of the sanitized text; kNone of "".
  int text(std::string_view text);
  // The index of the thread's whole stack; kNone if it has no frames.
  int stack(const ThreadSnapshot& thread);
  // The index in the merged tree of the thread's normalised stack; kNone if it has no frames.
  int tree(const ThreadSnapshot& thread);

  // Writes the members `strings`, `frames`, `stacks` and `tree`. Nothing may be added afterwards.
  void write(JsonText& json) const;

 private:
  struct Trie {
    std::vector<int> frames, parents;
    std::unordered_map<std::uint64_t, int> index;  // (parent, frame) -> entry
    int add(int parent, int frame);
  };

  int frame(FrameId id);
  int gap(std::string_view text);  // a line that stands for frames that are not there
  int add_frame(std::string row);

  const JobSnapshot& job_;
  const analyzers::NormalizedFrames normalized_;
  std::vector<std::string> strings_;  // quoted
  std::unordered_map<std::string, int> string_index_;
  std::vector<std::string> frames_;  // rows, as JSON
  std::unordered_map<std::string, int> frame_index_;
  std::vector<int> frame_of_;  // by FrameId
  Trie stacks_;
  analyzers::StackTree tree_;
  std::vector<int> tree_frames_;  // by node of the tree
};

// "[1,2,3]"
template <class Number>
std::string json_numbers(const std::vector<Number>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ","));
}

// Indices as ranges: "[0,1,3,7]" of 0, 1, 3, 4, 5, 6, 7.
std::string json_ranges(const std::vector<std::size_t>& ascending);

}  // namespace rankstacks::report
