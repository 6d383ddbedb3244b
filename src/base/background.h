// Work while the caller goes on.
#pragma once

#include <functional>
#include <system_error>
#include <thread>

namespace rankstacks {
inline namespace base {

// Runs the work on a thread of its own; if none can be started because of a limit, at once.
class Background {
 public:
  explicit Background(const std::function<void()>& work) {
    try {
      thread_ = std::thread(work);
    } catch (const std::system_error&) {
      work();
    }
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() { wait(); }

  void wait() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

}  // namespace base
}  // namespace rankstacks
