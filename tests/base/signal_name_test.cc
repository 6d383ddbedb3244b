#include "base/signal_name.h"

#include <catch2/catch.hpp>
#include <csignal>

using namespace rankstacks;

TEST_CASE("names of signals") {
  CHECK(signal_name(SIGKILL) == "SIGKILL");
  CHECK(signal_name(SIGHUP) == "SIGHUP");
  CHECK(signal_name(SIGSEGV) == "SIGSEGV");
  CHECK(signal_name(SIGCHLD) == "SIGCHLD");
  CHECK(signal_name(SIGSYS) == "SIGSYS");
  CHECK(signal_name(40) == "signal 40");
  CHECK(signal_name(0) == "signal 0");
}
