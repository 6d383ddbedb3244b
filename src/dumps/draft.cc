#include "dumps/draft.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace rankstacks::dumps {
namespace {

bool has_frame(const FrameTable& frames, const ThreadSnapshot& thread, auto matches) {
  return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) { return matches(frames[id]); });
}

// The thread that began in the program's main function, or that runs the main module.
bool begins_the_program(const FrameTable& frames, const ThreadSnapshot& thread) {
  return has_frame(frames, thread, [](const Frame& frame) {
    if (frame.kind == FrameKind::kPython || !frame.function) return false;
    return *frame.function == "_start" || frame.function->starts_with("__libc_start_");
  });
}

bool runs_main_module(const FrameTable& frames, const ThreadSnapshot& thread) {
  for (auto id = thread.frames.rbegin(); id != thread.frames.rend(); ++id)
    if (frames[*id].kind == FrameKind::kPython) return frames[*id].function == "<module>";
  return false;
}

// Where the dump does not say which thread is the main one: by its stack, else the one that the kernel created first,
// else the last one, as Python's faulthandler lists them.
std::size_t main_thread(const FrameTable& frames, const RankSnapshot& rank) {
  const auto& threads = rank.threads;
  for (const auto& is_main : {begins_the_program, runs_main_module})
    for (std::size_t t = threads.size(); t-- > 0;)
      if (is_main(frames, threads[t])) return t;
  std::size_t lowest = threads.size() - 1;
  for (std::size_t t = 0; t < threads.size(); ++t)
    if (threads[t].tid != 0 && threads[t].tid < threads[lowest].tid) lowest = t;
  return lowest;
}

// Threads without a number get numbers that no other thread has.
void number_threads(RankSnapshot& rank) {
  std::unordered_set<Tid> used{rank.pid};
  for (const ThreadSnapshot& thread : rank.threads) used.insert(thread.tid);
  Tid next = rank.pid;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    Tid& tid = rank.threads[t].tid;
    if (t == 0 || tid != 0) continue;
    while (next < INT32_MAX && used.contains(next)) ++next;
    used.insert(tid = next);
  }
}

void put_main_thread_first(const FrameTable& frames, RankSnapshot& rank) {
  if (rank.threads.empty()) return;
  auto main = std::find_if(rank.threads.begin(), rank.threads.end(),
                           [&](const ThreadSnapshot& thread) { return rank.pid != 0 && thread.tid == rank.pid; });
  // A live process has a main thread, or it is a zombie; a dump of some of its threads need not have it.
  const bool is_listed = main != rank.threads.end();
  if (!is_listed) main = rank.threads.begin() + static_cast<std::ptrdiff_t>(main_thread(frames, rank));
  if (!is_listed && rank.pid == 0) rank.pid = main->tid;
  if (!is_listed && main->tid == 0) main->tid = rank.pid;
  std::rotate(rank.threads.begin(), main, main + 1);
  number_threads(rank);
}

}  // namespace

std::string kept(std::string_view text) { return std::string(text.substr(0, kMaxText)); }

Frame python_frame(std::string_view qualified, std::string_view file, std::optional<int> line) {
  Frame frame;
  frame.kind = FrameKind::kPython;
  // "Trainer.step", "run.<locals>.<lambda>"
  const std::size_t dot = qualified.rfind('.');
  if (dot != std::string_view::npos) frame.qualname = kept(qualified);
  frame.function = kept(dot == std::string_view::npos ? qualified : qualified.substr(dot + 1));
  if (!file.empty()) frame.file = kept(file);
  if (line && *line > 0) frame.line = line;
  return frame;
}

RankSnapshot& Draft::begin_process(Pid pid) {
  in_thread_ = false;
  if (ranks_.size() == kMaxProcesses) {
    cut_ = true;
    return ranks_.back();
  }
  RankSnapshot& rank = ranks_.emplace_back();
  rank.source = Source::kDump;
  rank.host = "unknown";
  rank.pid = pid;
  return rank;
}

RankSnapshot& Draft::process() { return ranks_.empty() ? begin_process(0) : ranks_.back(); }

ThreadSnapshot& Draft::begin_thread(Tid tid, std::string_view name) {
  RankSnapshot& rank = process();
  in_thread_ = rank.threads.size() < kMaxThreads;
  if (!in_thread_) {
    cut_ = true;
    return beyond_ = {};
  }
  ThreadSnapshot& thread = rank.threads.emplace_back();
  thread.tid = tid;
  thread.name = kept(name);
  return thread;
}

bool Draft::add(Frame frame) {
  ThreadSnapshot* to = thread();
  if (to == nullptr) return false;
  if (to->frames.size() == kMaxFrames) {
    cut_ = true;
    return false;
  }
  to->frames.push_back(frames_.intern(std::move(frame)));
  return true;
}

const Frame* Draft::last() const {
  if (!in_thread_ || ranks_.back().threads.back().frames.empty()) return nullptr;
  return &frames_[ranks_.back().threads.back().frames.back()];
}

void Draft::replace_last(Frame frame) {
  if (last() != nullptr) thread()->frames.edit().back() = frames_.intern(std::move(frame));
}

std::vector<FrameId> Draft::take_frames() {
  return thread() == nullptr ? std::vector<FrameId>() : std::exchange(thread()->frames, {}).get();
}

void Draft::drop_empty_thread() {
  if (thread() == nullptr || !thread()->frames.empty()) return;
  ranks_.back().threads.pop_back();
  in_thread_ = false;
}

void Draft::begin_again() {
  process().threads.clear();
  in_thread_ = false;
}

void Draft::reverse_frames() {
  for (RankSnapshot& rank : ranks_)
    for (ThreadSnapshot& thread : rank.threads) std::reverse(thread.frames.edit().begin(), thread.frames.edit().end());
}

std::vector<RankSnapshot> Draft::finish() {
  std::erase_if(ranks_, [](const RankSnapshot& rank) { return rank.threads.empty() && rank.gpus.empty(); });
  for (RankSnapshot& rank : ranks_) put_main_thread_first(frames_, rank);
  return std::move(ranks_);
}

}  // namespace rankstacks::dumps
