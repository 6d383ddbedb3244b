#include "capture/rank_problems.h"

#include <fmt/format.h>

namespace rankstacks::capture {

void worsen(RankSnapshot& snapshot, Status status) {
  if (static_cast<int>(status) > static_cast<int>(snapshot.status)) snapshot.status = status;
}

void give_up(RankSnapshot& snapshot, std::string_view what, std::string_view limit) {
  const auto hint =
      limit == kTimeoutOption ? std::optional<std::string>("give it more time with --timeout") : std::nullopt;
  snapshot.problems.push_back(
      {fmt::format("{} was given up, as the time for it ({}) was over: the rest is missing", what, limit), hint,
       ProblemCode::kTimeout});
  worsen(snapshot, Status::kPartial);
}

}  // namespace rankstacks::capture
