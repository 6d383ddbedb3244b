#include "report/folded.h"

#include <catch2/catch.hpp>

#include "report/text_threads.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

std::string folded(const JobSnapshot& job) {
  return report::folded_report(job, analyzers::analyze(job), report::selected_ranks(job, {}));
}

}  // namespace

TEST_CASE("one line for each stack of a rank and role, with its number of threads") {
  LiteralJob made;
  RankSnapshot& rank = made.rank(3, 4, {libc("read"), py("main", "/x/train.py", 7), py("<module>", "/x/train.py", 9)});
  for (Tid tid = 500; tid < 503; ++tid) made.thread(rank, tid, "pool", {libc("poll"), nat("serve(int)")});
  made.thread(rank, 600, "empty", {});
  made.child(rank.pid, {libc("pause")});
  CHECK(folded(made.job) ==
        "rank 3;main;<module> (/x/train.py:9);main (/x/train.py:7);read (libc.so.6) 1\n"
        "rank 3;native;no frames 1\n"
        "rank 3;native;serve(int) (libtorch_cpu.so);poll (libc.so.6) 3\n"
        "child node-a:101 of pid 100;main;pause (libc.so.6) 1\n");
}

TEST_CASE("names cannot end a frame or a line") {
  LiteralJob made;
  made.rank(0, 1, {py("a;b\nrank 9;c 5", "/x;y/\x1b[2J.py", 1), py("", "", 2)});
  const std::string text = folded(made.job);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  CHECK(std::count(text.begin(), text.end(), ';') == 3);
  CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("frames that were left out, and a rank that could not be read") {
  LiteralJob made;
  RankSnapshot& rank = made.rank(0, 1, {nat("inner"), nat("outer")});
  rank.threads[0].omitted = OmittedFrames{1, 70};
  made.process().rank = 1;
  CHECK(folded(made.job) ==
        "rank 0;main;outer (libtorch_cpu.so);... 70 frames left out here;inner (libtorch_cpu.so) 1\n"
        "rank 1;could not be read 1\n");
}
