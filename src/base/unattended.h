// Work that may never come back, done so that nobody has to wait for it: what reads files, or another process's memory.
//
// A file system whose server is gone (NFS, FUSE), or memory that a process promised to fill in (userfaultfd), holds whoever touches it for as long as it
// likes, and no signal ends such a wait. A thread in it cannot be joined, and a process with such a thread can call exit(), but does not end: whoever waits
// for it waits on. So each worker is two things:
//
//     the tool                                          a worker's process
//     main thread ── waits, no longer than it wants     shares memory, descriptors, directory and signal handlers
//     worker's thread ── waits for its process ───────> one piece of work after the other, with that thread's own thread-local variables
//
// It differs from a thread by one thing alone: the kernel does not wait for it to let the tool end. It ends with the thread (PR_SET_PDEATHSIG), as soon
// as the kernel has it back.
//
// What is given up may go on at any time: it must own, by shared pointers, everything that it uses.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace rankstacks {

// Whatever the command line says: a sound file is read in milliseconds, on a machine with more work than processors in a second.
inline constexpr std::chrono::seconds kMinTimeout{2};

// What became of one piece.
struct Outcome {
  bool came_back = false;
  std::string file;   // where it did not: what it was reading then (reading_now), if it said so
};

struct Unattended {
  using Duration = std::chrono::steady_clock::duration;
  // The limit for work that looks at the clock itself and ends at `deadline` with what it has: it is to have the time for that.
  static Duration beyond(Duration deadline);

  std::function<void(std::size_t)> work;             // owns what it uses; copied
  Duration limit = Duration::max();                  // for each piece, from when its turn comes
  std::function<void(std::size_t, const Outcome&)> given_up = {};   // called in the caller's thread, at once: later pieces can be told

  // work(0) ... work(count - 1) in parallel, in any order; returns when each has come back or was given up.
  std::vector<Outcome> run(std::size_t count) const;
};

// One piece that has a result. Nothing: it was given up.
template <class T>
std::optional<T> unattended(std::function<T()> work, Unattended::Duration limit) {
  const auto result = std::make_shared<std::optional<T>>();
  const auto outcomes = Unattended{[result, work = std::move(work)](std::size_t) { result->emplace(work()); }, limit}.run(1);
  return outcomes.front().came_back ? std::move(*result) : std::nullopt;
}

// What the piece of work that calls this reads from now on: a path, to be named where it does not come back. Nothing elsewhere.
void reading_now(const std::string& what);

// Whether something was given up and may still be under way: then the tool must end by end_at_once(), as nothing that it may use can be destroyed.
bool any_given_up();
void note_given_up();   // by others that leave something behind (leavable_thread.h)

// _exit, with everything closed first: what was given up shares the descriptors, and would keep a pipe open.
[[noreturn]] void end_at_once(int status);

// The process id of the tool, in its workers too.
pid_t tool_pid();

}  // namespace rankstacks
