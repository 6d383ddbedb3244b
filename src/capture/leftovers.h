// What a look leaves behind: targets, copies, mapped files. To release it takes milliseconds, in which the next step,
// the analysis, can run.
#pragma once

#include <memory>
#include <mutex>
#include <thread>

namespace rankstacks::capture {

class Leftovers {
 public:
  // Releases it on another thread, unless somebody else owns it as well.
  void release(std::shared_ptr<void> what);
  ~Leftovers();  // waits

 private:
  std::mutex mutex_;
  std::thread releasing_;
};

}  // namespace rankstacks::capture
