// Whether a thread may make an inferior call, decided from given texts of /proc. (inferior_call_refusals_test does it
// with real threads.)
#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

#include "gpu/calling_thread.h"

using namespace rankstacks;

TEST_CASE("what the kernel says of a thread") {
  const auto status = gpu::parse_thread_status(
      "Name:\tcuda\nState:\tS "
      "(sleeping)\nTgid:\t12\nTracerPid:\t0\nSeccomp:\t2\nSeccomp_filters:\t3\nx86_Thread_features:\tshstk wrss "
      "\nx86_Thread_features_locked:\tshstk \n");
  REQUIRE(status);
  CHECK((status->state == 'S' && status->process == 12 && status->tracer == 0 && status->seccomp == 2 &&
         status->seccomp_filters == 3 && status->has_shadow_stack));
  // Locked off is not on; before Linux 5.10 the number of filters is not given.
  const auto old = gpu::parse_thread_status(
      "State:\tR "
      "(running)\nTgid:\t12\nTracerPid:\t34\nSeccomp:\t2\nx86_Thread_features:\t\nx86_Thread_features_locked:\tshstk "
      "wrss \n");
  REQUIRE(old);
  CHECK((old->state == 'R' && old->tracer == 34 && old->seccomp_filters == 1 && !old->has_shadow_stack));
  CHECK_FALSE(gpu::parse_thread_status(""));
  CHECK_FALSE(gpu::parse_thread_status("State:\tS (sleeping)\nTgid:\tx\n"));
  CHECK_FALSE(gpu::parse_thread_status("Tgid:\t12\n"));
}

TEST_CASE("which part of a mapping is a thread's own stack") {
  target::Mapping mapping;
  mapping.range = {0x100000, 0x300000};
  mapping.readable = mapping.writable = true;
  const std::vector<target::Mapping> mappings{mapping};
  const std::uint64_t block = 0x200000;
  // A block of 256 KiB around the control block, 8 KiB of it guard: among other words.
  const std::vector<std::uint64_t> words{block, 0, 7, 0x1c1000, 0x40000, 0x2000, 0x2000, 0};
  const auto stack = gpu::own_stack(block, words, mappings);
  REQUIRE(stack);
  CHECK((stack->start == 0x1c3000 && stack->end == block));
  // Numbers that are not such a block: it does not reach the control block, ends far above it, or consists of guard
  // only.
  for (const std::vector<std::uint64_t>& other :
       {std::vector<std::uint64_t>{0x100000, 0x40000, 0}, {0x1c1000, 0x100000, 0}, {0x1c1000, 0x40000, 0x40000}, {}}) {
    const auto by_mapping = gpu::own_stack(block, other, mappings);
    REQUIRE(by_mapping);
    CHECK(by_mapping->start == 0x100000);
  }
  CHECK_FALSE(gpu::own_stack(0x400000, words, mappings));
  CHECK_FALSE(gpu::own_stack(0, {}, {}));
}

TEST_CASE("inside of a restartable sequence") {
  const gpu::RestartableSequence sequence{.version = 0, .flags = 0, .start = 0x1000, .length = 0x20, .abort = 0x2000};
  CHECK(sequence.contains(0x1000));
  CHECK(sequence.contains(0x101f));
  CHECK_FALSE(sequence.contains(0x1020));
  CHECK_FALSE(sequence.contains(0xfff));
}
