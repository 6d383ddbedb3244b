#include "target/second_copier.h"

#include "base/hurry.h"

namespace rankstacks::target {

void SecondCopier::Shared::begin(Tid of) {
  tid = of;
  phase = kAsked;
  phase.notify_all();
}

SecondCopier::SecondCopier() : shared_(std::make_shared<Shared>()) {
  thread_.start([shared = shared_, &thread = thread_] {
    hurry();  // others are held while it works
    int busy = Shared::kStarts;
    while (shared->phase.compare_exchange_strong(busy, Shared::kReady)) {
      shared->phase.notify_all();
      shared->wait_while(Shared::kReady);
      if (shared->phase != Shared::kAsked) return;
      thread.blocking([shared] { shared->call.make(shared->tid); });
      busy = Shared::kAsked;
    }
  });
  shared_->wait_while(Shared::kStarts);
}

SecondCopier::~SecondCopier() {
  shared_->phase = Shared::kEnds;
  shared_->phase.notify_all();
}

}  // namespace rankstacks::target
