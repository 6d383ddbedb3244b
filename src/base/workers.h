// Independent pieces of work side by side, one thread per processor.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

namespace rankstacks {

// Runs work(0) ... work(count - 1), in any order, on as many threads as there are processors; returns when all are done.
inline void run_side_by_side(std::size_t count, const std::function<void(std::size_t)>& work) {
  const std::size_t width = std::min<std::size_t>(count, std::max(1u, std::thread::hardware_concurrency()));
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
    if (threads.empty()) take_turns();   // no thread is to be had, by a limit: then it is done by this one
  }
  for (std::thread& t : threads) t.join();
}

// The same, with a fresh thread of the tool for every piece: what ptrace holds is let go when it ends (stopped_process.h).
inline void run_on_fresh_threads(std::size_t count, const std::function<void(std::size_t)>& work) {
  run_side_by_side(count, [&](std::size_t i) { std::thread([&] { work(i); }).join(); });
}

}  // namespace rankstacks
