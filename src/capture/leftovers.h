// What a look leaves behind: targets, copies, mapped files. To release it takes milliseconds.
#pragma once

#include <memory>
#include <optional>

#include "base/background.h"

namespace rankstacks::capture {

class Leftovers {
 public:
  void keep(std::shared_ptr<void> what) { kept_ = std::move(what); }
  // Releases it on another thread, unless somebody else owns it as well: before the next look.
  void release();
  // For the end of the process: what is kept is not released.
  void wait() { releasing_.reset(); }

 private:
  std::shared_ptr<void> kept_;
  std::optional<Background> releasing_;
};

}  // namespace rankstacks::capture
