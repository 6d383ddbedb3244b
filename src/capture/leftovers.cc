#include "capture/leftovers.h"

#include <utility>

namespace rankstacks::capture {

void Leftovers::release() {
  if (kept_ == nullptr) return;
  releasing_.reset();
  releasing_.emplace(
      [held = std::make_shared<std::shared_ptr<void>>(std::exchange(kept_, nullptr))] { held->reset(); });
}

}  // namespace rankstacks::capture
