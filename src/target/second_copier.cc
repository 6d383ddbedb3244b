#include "target/second_copier.h"

#include "base/hurry.h"

namespace rankstacks::target {

void SecondCopier::Shared::begin(Tid of) {
  tid = of;
  phase = kAsked;
  phase.notify_all();
}

void SecondCopier::Shared::wait() {
  for (int now = phase; now != kDone; now = phase) phase.wait(now);
}

SecondCopier::SecondCopier() : shared_(std::make_shared<Shared>()) {
  thread_.start([shared = shared_, &thread = thread_] {
    hurry();  // others are held while it works
    while (true) {
      int now = shared->phase;
      for (; now == Shared::kNone || now == Shared::kDone; now = shared->phase) shared->phase.wait(now);
      if (now == Shared::kEnds) return;
      thread.blocking([shared] { shared->call.make(shared->tid); });
      int asked = Shared::kAsked;
      shared->phase.compare_exchange_strong(asked, Shared::kDone);
      shared->phase.notify_all();
    }
  });
}

SecondCopier::~SecondCopier() {
  shared_->phase = Shared::kEnds;
  shared_->phase.notify_all();
}

}  // namespace rankstacks::target
