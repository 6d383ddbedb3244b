// Runs work that may never return, such as reading files or another process's memory, so that nobody has to wait for
// it.
//
// A file system whose server is gone (NFS, FUSE), or memory that a process promised to fill in (userfaultfd), blocks
// every thread that touches it for as long as it likes, and no signal ends such a wait. A thread in it cannot be
// joined, and a process with such a thread can call exit() but does not end, so that a process that waits for it waits
// on. Each worker therefore consists of two parts:
//
//     the tool                                          a worker's process
//     main thread ── waits, no longer than it wants     shares memory, descriptors, directory and signal handlers
//     worker's thread ── waits for its process ───────> one piece of work after the other, with that thread's own
//     thread-local variables
//
// The process of a worker differs from a thread in one respect: the kernel lets the tool exit without waiting for it.
// It ends with the thread (PR_SET_PDEATHSIG), as soon as the kernel releases it.
//
// Work that was given up may continue at any time: it must own, through shared pointers, everything that it uses.
#pragma once

#include <sys/types.h>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rankstacks {
inline namespace base {

// Lower bound, whatever the command line says: a sound file is read in milliseconds, or in a second on an overloaded
// machine.
inline constexpr std::chrono::seconds kMinTimeout{2};

// The outcome of one piece of work.
struct Outcome {
  bool came_back = false;
  std::string file;  // if it did not return: what it was reading then (reading_now), if it said so
};

struct Unattended {
  using Duration = std::chrono::steady_clock::duration;
  // The limit for work that reads the clock itself and ends at `deadline` with partial results: it gets the time to do
  // so.
  static Duration beyond(Duration deadline);

  std::function<void(std::size_t)> work;  // owns what it uses; is copied
  Duration limit = Duration::max();       // for each piece, from the start of that piece
  // Called at once in the caller's thread, so that later pieces can take it into account.
  std::function<void(std::size_t, const Outcome&)> given_up = {};
  // For each piece: how long the kernel may hold it in one wait, which is a single request to a file system, or a
  // single access to memory. A slow one ends such waits again and again, and one that does not answer never does. Time
  // in which the piece computes or waits for a processor does not count.
  Duration silence = Duration::max();

  // Runs work(0) ... work(count - 1) in parallel, in any order. Returns when each has returned or was given up.
  std::vector<Outcome> run(std::size_t count) const;
};

// Runs one piece of work that has a result; std::nullopt if it was given up.
template <class T>
std::optional<T> unattended(std::function<T()> work, Unattended::Duration limit,
                            Unattended::Duration silence = Unattended::Duration::max()) {
  const auto result = std::make_shared<std::optional<T>>();
  const auto outcomes =
      Unattended{[result, work = std::move(work)](std::size_t) { result->emplace(work()); }, limit, {}, silence}.run(1);
  return outcomes.front().came_back ? std::move(*result) : std::nullopt;
}

// Called by a piece of work: the path that it reads from now on, which is named if the work does not return. No effect
// outside of such work.
void reading_now(const std::string& what);

// Whether some work was given up and may still be running. Then the tool must exit by end_at_once(), as nothing that
// the work may use can be destroyed.
bool any_given_up();
void note_given_up();  // for other code that abandons work (leavable_thread.h)

// Closes all descriptors and calls _exit. Work that was given up shares the descriptors, and would keep a pipe open.
[[noreturn]] void end_at_once(int status);

// The process id of the tool, also when called in one of its workers.
pid_t tool_pid();

}  // namespace base
}  // namespace rankstacks
