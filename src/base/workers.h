// Runs independent pieces of work in parallel, one thread per processor.
#pragma once

#include <sys/resource.h>
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

namespace rankstacks {
inline namespace base {

// How many pieces of work may run at once if each may have several files open: a core, the file it is unpacked to, one
// of its libraries, a list from /proc. Other open files (standard streams, helper processes' pipes, files of the C
// library) are accounted for separately.
inline std::size_t workers_by_open_files(std::uint64_t limit) {
  constexpr std::uint64_t kOthers = 32, kOfEach = 8;
  return limit < kOthers + kOfEach
             ? 1
             : static_cast<std::size_t>(std::min<std::uint64_t>((limit - kOthers) / kOfEach, 1u << 20));
}

// Asked once: glibc reads a file of /sys for it.
inline std::size_t number_of_processors() {
  static const std::size_t number = std::max(1u, std::thread::hardware_concurrency());
  return number;
}

inline std::size_t most_workers() {
  const std::size_t processors = number_of_processors();
  rlimit files{};
  return getrlimit(RLIMIT_NOFILE, &files) == 0 ? std::min(processors, workers_by_open_files(files.rlim_cur))
                                               : processors;
}

// Runs work(0) ... work(count - 1), in any order, on as many threads as there are processors; returns when all are
// done.
inline void run_in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  const std::size_t width = std::min(count, most_workers());
  if (width <= 1) {
    for (std::size_t i = 0; i < count; ++i) work(i);
    return;
  }
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  const auto take_turns = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  threads.reserve(width);
  try {
    while (threads.size() < width) threads.emplace_back(take_turns);
  } catch (const std::system_error&) {
    if (threads.empty()) take_turns();  // no thread could be started because of a limit: this one does the work
  }
  for (std::thread& t : threads) t.join();
}

// The same, with a fresh thread of the tool for each piece: when that thread ends, the kernel releases everything that
// it traces by ptrace (stopped_process.h).
inline void run_on_fresh_threads(std::size_t count, const std::function<void(std::size_t)>& work) {
  run_in_parallel(count, [&](std::size_t i) { std::thread([&] { work(i); }).join(); });
}

}  // namespace base
}  // namespace rankstacks
