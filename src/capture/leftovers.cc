#include "capture/leftovers.h"

#include <system_error>
#include <utility>

namespace rankstacks::capture {

void Leftovers::release(std::shared_ptr<void> what) {
  if (what == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (releasing_.joinable()) releasing_.join();
  try {
    releasing_ = std::thread([held = std::move(what)]() mutable { held.reset(); });
  } catch (const std::system_error&) {  // no thread can be started because of a limit: it is released here
  }
}

Leftovers::~Leftovers() {
  if (releasing_.joinable()) releasing_.join();
}

}  // namespace rankstacks::capture
