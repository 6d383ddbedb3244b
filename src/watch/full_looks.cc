#include "watch/full_looks.h"

namespace rankstacks::watch {

Found FullLooks::looked(const std::optional<FullLook>& look) {
  const bool decides = next_decides();
  ++done_;
  if (!look) return Found::kNothing;
  if (decides && !look->hangs) {
    over_ = true;
    return Found::kNoHang;
  }
  over_ = look->ranks == 0;
  if (!look->written) return Found::kNothing;
  newest_ = done_;
  return decides ? Found::kHangs : Found::kNothing;
}

}  // namespace rankstacks::watch
