#include <catch2/catch.hpp>

#include "dumps/dump.h"

using namespace rankstacks;

TEST_CASE("names") { CHECK(dumps::rank_from_dump_name("a/stacks.3.txt") == 3); }
