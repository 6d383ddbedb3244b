// Names of the cores that systemd-coredump keeps, and the words that choose among them.
#include "capture/systemd_cores.h"

#include <catch2/catch.hpp>

namespace rankstacks::capture {
namespace {

using WallClock = std::chrono::system_clock;
constexpr const char* kBoot = "0123456789abcdef0123456789abcdef";

long seconds_of(WallClock::time_point time) { return WallClock::to_time_t(time); }

}  // namespace

TEST_CASE("names of systemd's cores") {
  const auto core =
      parse_systemd_core(std::string("core.pt_main\\x2etrain.1000.") + kBoot + ".4711.1769860800123456.zst");
  REQUIRE(core);
  CHECK(core->command == "pt_main.train");
  CHECK(core->uid == 1000);
  CHECK(core->boot == kBoot);
  CHECK(core->pid == 4711);
  CHECK(seconds_of(core->time) == 1769860800);
  for (const char* ending : {"", ".lz4", ".xz"})
    CHECK(parse_systemd_core(std::string("core.python3.0.") + kBoot + ".1.1769860800" + ending));
  const std::string boot = kBoot;
  const std::vector<std::string> others = {"core.4711",
                                           "core.python3.0." + boot + ".x.1769860800",
                                           "core.python3.0." + boot + ".0.1769860800",
                                           "core.0." + boot + ".1.1769860800",
                                           "core.python3.0.abc.1.1769860800",
                                           "python3.0." + boot + ".1.1769860800",
                                           "core.python3.0." + boot + ".1.1769860800.zst.zst",
                                           "core.python3.-1." + boot + ".1.1769860800",
                                           "core.python3.0." + boot + ".99999999999.1769860800",
                                           "core.",
                                           ""};
  for (const std::string& name : others) {
    INFO(name);
    CHECK_FALSE(parse_systemd_core(name));
  }
}

TEST_CASE("which of systemd's cores") {
  CHECK(parse_systemd_choice("101,102")->pids == std::vector<Pid>{101, 102});
  CHECK(parse_systemd_choice("pid:101")->pids == std::vector<Pid>{101});
  CHECK(parse_systemd_choice("user:alice")->user == "alice");
  CHECK(parse_systemd_choice("slurm:4711.0")->job == "slurm:4711.0");
  CHECK(parse_systemd_choice("")->pids.empty());
  for (const char* word : {"0", "101,,102", "user:", "cgroup:/a", "pid:x", "99999999999"}) {
    INFO(word);
    CHECK_FALSE(parse_systemd_choice(word));
  }
}

TEST_CASE("since when") {
  const auto now = WallClock::from_time_t(1'769'860'800);  // 2026-01-31 12:00:00 UTC
  const auto since = [&](const char* text) -> long {
    const auto time = parse_since(text, now);
    return time ? seconds_of(*time) : -1;
  };
  CHECK(since("90s") == 1'769'860'710);
  CHECK(since("10min") == 1'769'860'200);
  CHECK(since("10m") == 1'769'860'200);
  CHECK(since("2h") == 1'769'853'600);
  CHECK(since("1d") == 1'769'774'400);
  CHECK(since("@5") == 5);
  CHECK(since("2026-01-31T11:59:58Z") == 1'769'860'798);
  CHECK(since("2026-01-31 11:59Z") == 1'769'860'740);
  CHECK(since("2026-01-31Z") == 1'769'817'600);
  for (const char* text :
       {"", "h", "2", "-2h", "2 h", "@", "2026", "2026-13-01Z", "2026-01-31 11:59:58 pm", "9999999999h"}) {
    INFO(text);
    CHECK(since(text) == -1);
  }
}

}  // namespace rankstacks::capture
