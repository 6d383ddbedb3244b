#include "target/second_copier.h"

#include "base/hurry.h"

namespace rankstacks::target {

void SecondCopier::Shared::make(Tid of, std::size_t how_many) {
  tid = of;
  count = how_many;
  next = 0;
  phase = kAsked;
  phase.notify_all();
  make_next_ones();
  int asked = kAsked;
  if (!phase.compare_exchange_strong(asked, kReady)) wait_while(kHelps);
}

SecondCopier::SecondCopier() : shared_(std::make_shared<Shared>()) {
  thread_.start([shared = shared_, &thread = thread_] {
    hurry();  // others are held while it works
    int busy = Shared::kStarts;
    while (shared->phase.compare_exchange_strong(busy, Shared::kReady)) {
      shared->phase.notify_all();
      // The reader may have done it all before this thread has a processor.
      for (int asked = Shared::kAsked; !shared->phase.compare_exchange_strong(asked, Shared::kHelps);
           asked = Shared::kAsked) {
        if (asked == Shared::kEnds) return;
        shared->wait_while(Shared::kReady);
      }
      thread.blocking([shared] { shared->make_next_ones(); });
      busy = Shared::kHelps;
    }
  });
  shared_->wait_while(Shared::kStarts);
}

SecondCopier::~SecondCopier() {
  shared_->phase = Shared::kEnds;
  shared_->phase.notify_all();
}

}  // namespace rankstacks::target
