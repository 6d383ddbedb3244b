#include "base/memory_limit.h"

#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "support/temporary_directory.h"

using namespace rankstacks;

TEST_CASE("sizes as users write them") {
  CHECK(parse_size("4096") == 4096u);
  CHECK(parse_size("512M") == 512u << 20);
  CHECK(parse_size("2G") == std::size_t{2} << 30);
  CHECK(parse_size("1.5g") == std::size_t{3} << 29);
  CHECK(parse_size("64KiB") == 64u << 10);
  CHECK(parse_size("1T") == std::size_t{1} << 40);
  for (const char* text : {"", "M", "-1", "2X", "2GG", "nan", "inf", "1e9G", "99999999T", " 2G"})
    CHECK_FALSE(parse_size(text));
}

TEST_CASE("the least limit of all control groups that a process is in") {
  const testing::TemporaryDirectory directory;
  const auto put = [&](const std::string& path, const std::string& text) {
    const std::filesystem::path file = std::filesystem::path(directory.path()) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  };
  const std::string point = directory.path();
  const std::string v2 = fmt::format("30 20 0:26 / {} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n", point);
  const std::string v1 = fmt::format("30 20 0:26 /docker/abc {} rw - cgroup cgroup rw,memory\n", point);
  CHECK_FALSE(control_group_limit("0::/a/b\n", v2));
  put("a/b/memory.max", "max\n");
  CHECK_FALSE(control_group_limit("0::/a/b\n", v2));
  put("a/memory.max", "1000000\n");
  CHECK(control_group_limit("0::/a/b\n", v2) == 1000000u);
  CHECK_FALSE(control_group_limit("0::/other\n", v2));
  CHECK_FALSE(control_group_limit("3:cpu:/a/b\n", v2));
  // In a container: the group's own directory is mounted, and the path is the one seen from outside.
  put("memory.limit_in_bytes", "2000000\n");
  CHECK(control_group_limit("5:cpu,memory:/docker/abc\n", v1) == 2000000u);
  CHECK(control_group_limit("5:memory:/../elsewhere\n", v1) == 2000000u);
  CHECK_FALSE(control_group_limit("nonsense\n::\n", "nonsense\n"));
}

TEST_CASE("each use of memory gets its share and no more") {
  enforce_memory_limit(std::size_t{1} << 40);  // more than any test machine has, so that nothing is refused
  const std::size_t share = share_of_memory(std::size_t{1} << 40, MemoryUse::kSections);
  CHECK(take_memory(MemoryUse::kSections, share / 2));
  CHECK_FALSE(take_memory(MemoryUse::kSections, share));
  CHECK(take_memory(MemoryUse::kSections, share / 2));
  CHECK_FALSE(take_memory(MemoryUse::kSections, 2));
  CHECK(take_memory(MemoryUse::kFrames, 2));
}
