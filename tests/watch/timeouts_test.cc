#include "known/timeouts.h"

#include <catch2/catch.hpp>

namespace rankstacks::known {
namespace {

using std::chrono::seconds;

TEST_CASE("without a statement the timeout is torch's default") {
  CHECK(job_timeout({}, {"python3", "train.py"}, true).limit == seconds(600));
  CHECK(job_timeout({}, {}, false).limit == seconds(1800));
  CHECK(job_timeout({}, {}, true).name.empty());
}

TEST_CASE("each rule is found, in its unit") {
  for (const TimeoutRule& rule : timeout_rules()) {
    const std::string name(rule.name);
    const seconds expected(static_cast<long>(20 * rule.unit));
    if (rule.place == TimeoutPlace::kVariable) {
      CHECK(job_timeout({{name, "20"}}, {}, true).limit == expected);
    } else {
      CHECK(job_timeout({}, {"python3", name, "20", "x"}, true).limit == expected);
      CHECK(job_timeout({}, {"python3", name + "=20"}, true).limit == expected);
      CHECK(job_timeout({}, {"python3", name}, true).limit == seconds(600));
      CHECK(job_timeout({}, {"python3", name + "-other=20"}, true).limit == seconds(600));
    }
  }
}

TEST_CASE("the shortest statement counts, and no nonsense") {
  const std::vector<std::string> command = {"python3", "--distributed-timeout-minutes", "3", "--ddp_timeout=60"};
  CHECK(job_timeout({}, command, true).limit == seconds(60));
  for (const char* nonsense : {"", "-3", "0", "x", "1e", "nan", "inf-"})
    CHECK(job_timeout({{"DEEPSPEED_TIMEOUT", nonsense}}, {}, true).limit == seconds(600));
  CHECK(job_timeout({{"DEEPSPEED_TIMEOUT", "1e300"}}, {}, true).limit == seconds(1000000000));
}

}  // namespace
}  // namespace rankstacks::known
