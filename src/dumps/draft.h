// What a reader has understood of a dump so far: processes, their threads, their frames.
//
// A reader states what it reads in the order in which the lines stand. What a dump lacks (a process that is not named,
// a thread that has no number) gets its default when the draft is finished, so a dump that was cut off gives what is
// there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::dumps {

inline constexpr std::size_t kMaxProcesses = 1 << 12, kMaxThreads = 1 << 14, kMaxFrames = 1 << 14;  // of each outer one
inline constexpr std::size_t kMaxText = 4096;                                                       // bytes of a name

class Draft {
 public:
  explicit Draft(FrameTable& frames) : frames_(frames) {}

  RankSnapshot& begin_process(Pid pid);
  // The process of which the dump speaks; one without a pid begins if there is none.
  RankSnapshot& process();
  bool has_process() const { return !ranks_.empty(); }
  // tid 0: not known.
  ThreadSnapshot& begin_thread(Tid tid, std::string_view name = {});
  // The thread to which frames are added; nullptr: none has begun, or it has ended.
  ThreadSnapshot* thread() { return in_thread_ ? &ranks_.back().threads.back() : nullptr; }
  void end_thread() { in_thread_ = false; }
  // False if there is no thread, or if it has too many frames already.
  bool add(Frame frame);
  // Replaces the thread's last frame.
  void replace_last(Frame frame);
  const Frame* last() const;
  void not_understood() { ++lines_not_understood_; }
  // The frames of the thread, which it loses.
  std::vector<FrameId> take_frames();
  // The thread that has begun last is none, if it has no frames.
  void drop_empty_thread();
  FrameTable& frames() { return frames_; }
  // The threads of the process are forgotten: the dump has them again, later in time.
  void begin_again();

  // Turns the frames of every thread around: for a tool that prints the innermost last.
  void reverse_frames();
  std::vector<RankSnapshot> finish();  // call this once
  std::size_t lines_not_understood() const { return lines_not_understood_; }
  bool cut() const { return cut_; }  // some bound was reached

 private:
  FrameTable& frames_;
  std::vector<RankSnapshot> ranks_;
  ThreadSnapshot beyond_;  // takes what is beyond a bound
  std::size_t lines_not_understood_ = 0;
  bool in_thread_ = false, cut_ = false;
};

// Cut at kMaxText.
std::string kept(std::string_view text);
Frame python_frame(std::string_view qualified, std::string_view file, std::optional<int> line);

}  // namespace rankstacks::dumps
