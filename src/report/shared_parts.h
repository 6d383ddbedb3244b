// Parts of ranks that are alike, kept once. The ranks of a large job are at few places, with the same libraries and
// settings: what a merged report needs grows with what differs.
#pragma once

#include <memory>

#include "model/snapshot.h"

namespace rankstacks::report {

class SharedParts {
 public:
  SharedParts();
  ~SharedParts();
  SharedParts(const SharedParts&) = delete;
  SharedParts& operator=(const SharedParts&) = delete;

  // Parts of the rank, but for its stacks, that equal those of an earlier one become shared with it. Nothing else
  // changes.
  void share(RankSnapshot& rank);
  void share(SharedList<FrameId>& stack);
  // Later ranks share nothing with those that have been seen.
  void forget();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rankstacks::report
