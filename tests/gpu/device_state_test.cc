#include <catch2/catch.hpp>

#include "model/gpu_exception.h"

using namespace rankstacks;

TEST_CASE("exceptions have one name each, whichever level saw them; unknown ones keep their number") {
  CHECK(gpu_exception_kind(1) == "illegal address");
  CHECK(gpu_exception_kind(14) == "illegal address");
  CHECK(gpu_exception_kind(12) == "assert");
  CHECK(gpu_exception_kind(99) == "exception 99");
}
