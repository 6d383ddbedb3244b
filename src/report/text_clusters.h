// Formats the clusters for one screen: the main threads' stacks merged into one tree, the other threads and the
// children one line each.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analyzers/analysis.h"
#include "analyzers/normalize.h"
#include "analyzers/whole_hosts.h"
#include "model/families.h"
#include "report/text_style.h"

namespace rankstacks::report {

// How much is folded so that the report fits on a screen. Each step includes those before it.
enum class Fold : int {
  kInterpreter,     // the interpreter's own C frames, the thread's start
  kLongNativeRuns,  // runs of more than four native frames: two frames at each end stay
  kNativeRuns,      // runs of more than two native frames: one frame at each end stays
  kLibraryRuns,     // runs of more than two Python frames of libraries: one frame at each end stays
  kUserFrames,  // only the user's files, the frame that a person looks for first, those that identify a wait, and the
                // innermost stay
};
inline constexpr int kFolds = static_cast<int>(Fold::kUserFrames) + 1;

struct ClusterView {
  const JobSnapshot& job;
  const Families& families;
  const analyzers::WholeHosts& hosts;
  const analyzers::Analysis& analysis;
  const analyzers::NormalizedFrames& frames;
  const TextStyle& style;
  std::size_t width;
};

// `most`: the number of clusters shown in full; one line gives the number of the others.
std::vector<std::string> main_thread_lines(const ClusterView& view, Fold fold, std::size_t most);

// "waits < thread_main", "Blocked.__getitem__ train.py:9 < _worker_loop": starts at the user's frame, or at the
// innermost frame outside of the C library, and goes outwards as far as there is room; always includes the entry frame.
std::string stack_in_a_line(const JobSnapshot& job, const ThreadSnapshot& thread,
                            const analyzers::NormalizedFrames& frames, std::size_t room);

// A line for each cluster of the ranks' main threads, as other_thread_lines() has of the others.
std::vector<std::string> brief_main_thread_lines(const ClusterView& view);

// `most`: the number of lines; if there are more, roles with many clusters are summarized.
std::vector<std::string> other_thread_lines(const ClusterView& view, std::size_t most);
std::vector<std::string> child_lines(const ClusterView& view, std::size_t most);

}  // namespace rankstacks::report
