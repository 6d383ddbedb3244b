// Messages that ranks send in a thread of their own: what that thread does decides, not the main thread.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "support/collective_calls.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const std::string kLib = "/usr/lib/python3.11/";

Stack output(int line) {
  return {py("send_outputs", "/home/u/serve.py", line), py("run", kLib + "threading.py", 975),
          py("_bootstrap_inner", kLib + "threading.py", 1038), py("_bootstrap", kLib + "threading.py", 995)};
}
const Stack kRests = Stack{libc("sem_wait"), nat("PyThread_acquire_lock_timed", "/usr/bin/python3.11"),
                           py("wait", kLib + "threading.py", 320), py("get", kLib + "queue.py", 171)} +
                     output(21);
const Stack kAsks = Stack{libc("recv")} + output(23);

// Rank 0 waits for the output of rank 2; ranks 1 and 2 for what rank 0 tells them next. Threads `of_1` and `of_2` send.
LiteralJob job_of(const Stack& of_1, const Stack& of_2, int line_of_2 = 9) {
  LiteralJob literal;
  arguments(literal.rank(0, 3, in_call("recv", 20)), kWorld, {{"src", 2}});
  for (const int r : {1, 2}) {
    RankSnapshot& rank = literal.rank(r, 3, in_call("broadcast", r == 2 ? line_of_2 : 9));
    arguments(rank, kWorld, {{"src", 0}});
    const Stack& stack = r == 1 ? of_1 : of_2;
    ThreadSnapshot& thread = literal.thread(rank, 900 + r, "output", stack);
    thread.state = 'S';
    if (stack.front().function == "recv") thread.syscall = call("recvfrom", 9, "tcp a -> b");
  }
  return literal;
}

const Accused kReceiver = {{0, "unmatched-p2p"}};

}  // namespace

TEST_CASE("the thread that was to send the message is held up") {
  LiteralJob literal = job_of(kRests, kAsks);
  CHECK(accused(literal) == Accused{{2, "network-io"}});
  CHECK(analyze(literal.job).verdict.summary.find("send_outputs at serve.py:23") != std::string::npos);
}

TEST_CASE("a thread that is where those of other ranks are decides nothing") {
  LiteralJob rest = job_of(kRests, kRests), ask = job_of(kAsks, kAsks);
  CHECK(accused(rest) == kReceiver);
  CHECK(accused(ask) == kReceiver);
}

TEST_CASE("nor does one of a rank whose main thread is elsewhere, or of another that is held up") {
  LiteralJob elsewhere = job_of(kRests, kAsks, 11), other = job_of(kAsks, kRests);
  CHECK(accused(elsewhere) == kReceiver);
  CHECK(accused(other) == kReceiver);
}
