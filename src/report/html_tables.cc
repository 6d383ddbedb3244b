#include "report/html_tables.h"

#include <fmt/format.h>

#include "analyzers/activity_rules.h"
#include "known/known_programs.h"
#include "report/frame_text.h"
#include "report/sanitize.h"
#include "report/text_members.h"

namespace rankstacks::report {
namespace {

// Kinds of frames, by which the page colours and folds them.
enum class HtmlFrame { kPython, kLibrary, kNative, kSystem, kInterpreter, kStart, kGpu, kGap };
constexpr std::string_view kFrameWords = R"(["python","library","native","system","interpreter","start","gpu","gap"])";

HtmlFrame kind_of(const Frame& frame, analyzers::FrameClass frame_class) {
  if (frame.kind == FrameKind::kGpu) return HtmlFrame::kGpu;
  switch (frame_class) {
    case analyzers::FrameClass::kPython:
      return known::is_library_file(frame.file.value_or("<>")) ? HtmlFrame::kLibrary : HtmlFrame::kPython;
    case analyzers::FrameClass::kNative: return HtmlFrame::kNative;
    case analyzers::FrameClass::kOpaque: return HtmlFrame::kSystem;
    case analyzers::FrameClass::kInterpreter: return HtmlFrame::kInterpreter;
    case analyzers::FrameClass::kStart: return HtmlFrame::kStart;
  }
  return HtmlFrame::kNative;
}

// A frame that tells what the thread waits for is never folded.
bool is_kept(const Frame& frame) {
  const known::ActivityRule* rule = analyzers::activity_rule_of(frame);
  return rule && (frame.kind != FrameKind::kPython || rule->match == known::ActivityMatch::kPython);
}

std::string marks_of(const Frame& frame) {
  std::string marks;
  if (frame.inlined) marks += " [inlined]";
  if (frame.origin != FrameOrigin::kNormal) marks += fmt::format(" [{}]", origin_in_words(frame.origin));
  return marks;
}

// The source file and line, and of a native frame the module with the offset, which addr2line takes.
std::string whole_place(const Frame& frame) {
  std::string place = full_frame_place(frame);
  if (frame.kind != FrameKind::kNative || !frame.file || frame.module.empty()) return place;
  place += frame.offset ? fmt::format(" ({}+{:#x})", frame.module, *frame.offset) : fmt::format(" ({})", frame.module);
  return place;
}

}  // namespace

HtmlTables::HtmlTables(const JobSnapshot& job)
    : job_(job), normalized_(job.frames), frame_of_(job.frames.size(), kNone), tree_frames_(1, kNone) {}

int HtmlTables::text(std::string_view text) {
  if (text.empty()) return kNone;
  const auto [it, is_new] = string_index_.try_emplace(sanitize(text), static_cast<int>(strings_.size()));
  if (is_new) strings_.push_back(json_quoted(it->first));
  return it->second;
}

int HtmlTables::add_frame(std::string row) {
  const auto [it, is_new] = frame_index_.try_emplace(std::move(row), static_cast<int>(frames_.size()));
  if (is_new) frames_.push_back(it->first);
  return it->second;
}

int HtmlTables::frame(FrameId id) {
  if (frame_of_[id] != kNone) return frame_of_[id];
  const Frame& frame = job_.frames[id];
  const std::string marks = marks_of(frame);
  return frame_of_[id] =
             add_frame(fmt::format("[{},{},{},{},{},{}]", static_cast<int>(kind_of(frame, normalized_.frame_class(id))),
                                   text(frame_name(frame) + marks), text(full_frame_name(frame) + marks),
                                   text(frame_place(frame)), text(whole_place(frame)), is_kept(frame) ? 1 : 0));
}

int HtmlTables::gap(std::string_view words) {
  const int name = text(words);
  return add_frame(fmt::format("[{},{},{},-1,-1,1]", static_cast<int>(HtmlFrame::kGap), name, name));
}

int HtmlTables::Trie::add(int parent, int frame) {
  const std::uint64_t key =
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(parent)) << 32 | static_cast<std::uint32_t>(frame);
  const auto [it, is_new] = index.try_emplace(key, static_cast<int>(frames.size()));
  if (is_new) {
    frames.push_back(frame);
    parents.push_back(parent);
  }
  return it->second;
}

int HtmlTables::stack(const ThreadSnapshot& thread) {
  int at = kNone;
  if (thread.stack_end != StackEnd::kComplete && !thread.frames.empty())
    at = stacks_.add(at, gap(fmt::format("the stack ends here: {}", end_in_words(thread.stack_end))));
  for (std::size_t f = thread.frames.size(); f-- > 0;) {
    if (thread.omitted && thread.omitted->at == f + 1)
      at = stacks_.add(at, gap(fmt::format("{} frames left out here", thread.omitted->count)));
    at = stacks_.add(at, frame(thread.frames[f]));
  }
  return at;
}

int HtmlTables::tree(const ThreadSnapshot& thread) {
  const std::vector<analyzers::StackItem> stack = analyzers::normalized_stack(thread, normalized_);
  if (stack.empty()) return kNone;
  const std::uint32_t end = tree_.insert(stack, 0);
  tree_frames_.resize(tree_.size(), kNone);
  std::uint32_t node = end;
  for (const analyzers::StackItem& item : stack) {
    if (tree_frames_[node] == kNone) tree_frames_[node] = frame(thread.frames[item.index]);
    node = tree_.node(node).parent;
  }
  return static_cast<int>(end) - 1;  // the root is no entry
}

void HtmlTables::write(JsonText& json) const {
  json.key("frame_kinds"), json.raw(kFrameWords);
  json.key("frames");
  json.open('[', true);
  for (const std::string& row : frames_) json.raw(row);
  json.close();
  json.key("stacks");
  json.open('{');
  json.key("frames"), json.raw(json_numbers(stacks_.frames));
  json.key("parents"), json.raw(json_numbers(stacks_.parents));
  json.close();
  std::vector<int> frames(tree_frames_.begin() + 1, tree_frames_.end());
  std::vector<int> parents;
  for (std::uint32_t node = 1; node < tree_.size(); ++node)
    parents.push_back(static_cast<int>(tree_.node(node).parent) - 1);
  json.key("tree");
  json.open('{');
  json.key("frames"), json.raw(json_numbers(frames));
  json.key("parents"), json.raw(json_numbers(parents));
  json.close();
  json.key("strings");
  json.open('[', true);
  for (const std::string& text : strings_) json.raw(text);
  json.close();
}

std::string json_ranges(const std::vector<std::size_t>& ascending) {
  std::vector<int> ends;
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    if (i == 0 || ascending[i] != ascending[i - 1] + 1) ends.insert(ends.end(), 2, static_cast<int>(ascending[i]));
    else ends.back() = static_cast<int>(ascending[i]);
  }
  return json_numbers(ends);
}

}  // namespace rankstacks::report
