#include "watch/report_store.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "support/temporary_directory.h"

namespace rankstacks::watch {
namespace {

std::vector<StoredFile> events(int count, std::uint64_t bytes) {
  std::vector<StoredFile> files;
  for (int n = count - 1; n >= 0; --n)
    for (const char* ending : {"-1.txt", "-1.json.zst"})
      files.push_back({"rankstacks-a-2026010" + std::to_string(n + 1) + "T000000Z-hang" + ending, bytes});
  return files;
}

TEST_CASE("the first event and the newest stay, the ones between go, oldest first") {
  CHECK(beyond_quota(events(4, 10), {.keep = 4, .max_bytes = 1000}).empty());
  const auto removed = beyond_quota(events(5, 10), {.keep = 3, .max_bytes = 1000});
  REQUIRE(removed.size() == 4);
  CHECK(removed[0] == "rankstacks-a-20260102T000000Z-hang-1.json.zst");
  CHECK(removed[1] == "rankstacks-a-20260102T000000Z-hang-1.txt");
  CHECK(removed[2] == "rankstacks-a-20260103T000000Z-hang-1.json.zst");
}

TEST_CASE("the quota of bytes counts all files of an event") {
  CHECK(beyond_quota(events(5, 10), {.keep = 100, .max_bytes = 79}).size() == 4);
  CHECK(beyond_quota(events(5, 10), {.keep = 100, .max_bytes = 1}).size() == 6);
  // What has to be freed, as the disk is full: so many of the oldest as hold it.
  CHECK(beyond_quota(events(5, 10), {.keep = 100, .max_bytes = 1000, .to_free = 0}).empty());
  CHECK(beyond_quota(events(5, 10), {.keep = 100, .max_bytes = 1000, .to_free = 20}).size() == 2);
  CHECK(beyond_quota(events(5, 10), {.keep = 100, .max_bytes = 1000, .to_free = 21}).size() == 4);
  CHECK(beyond_quota(events(5, 10), {.keep = 100, .max_bytes = 1000, .to_free = 1000}).size() == 6);
  // Events that are named, and a file that is still to come.
  const std::vector<StoredFile> named = {{"a", 5, "1"}, {"b", 5, "2"}, {"c", 5, "3"}, {"", 5, "4"}};
  CHECK(beyond_quota(named, {.keep = 4, .max_bytes = 20}).empty());
  CHECK(beyond_quota(named, {.keep = 3, .max_bytes = 20}) == std::vector<std::string>{"b"});
  CHECK(beyond_quota(named, {.keep = 4, .max_bytes = 19}) == std::vector<std::string>{"b"});
  CHECK(beyond_quota(named, {.keep = 2, .max_bytes = 20}) == std::vector<std::string>{"b", "c"});
  CHECK(beyond_quota(events(2, 10), {.keep = 100, .max_bytes = 1}).empty());
}

TEST_CASE("captures belong to the event of their look") {
  const char* event = "rankstacks-node-1.cluster-20260131T120000Z-hang";
  for (const char* ending : {"-1.txt", "-1.json.zst", "-1.rank-0.core.zst", "-timeout.node-1.x-4711.core.zst"})
    CHECK(event_of(std::string(event) + ending) == event);
  CHECK(event_of("rankstacks-node-1.rank-0.core.zst").empty());
  auto files = events(5, 10);
  files.push_back({"rankstacks-a-20260102T000000Z-hang-1.rank-0.core.zst", 1000});
  const auto removed = beyond_quota(files, {.keep = 100, .max_bytes = 100});
  REQUIRE(removed.size() == 3);
  CHECK(removed[1] == "rankstacks-a-20260102T000000Z-hang-1.rank-0.core.zst");
}

TEST_CASE("other files are left alone") {
  for (const char* name :
       {"notes.txt", "rankstacks-a", "rankstacks-core.1", "rankstacks-.txt.part", "rankstacks-a-1.core.zst", ""})
    CHECK(beyond_quota({{name, 1u << 30}}, {.keep = 0, .max_bytes = 0}).empty());
  CHECK(event_of("notes.txt").empty());
}

TEST_CASE("what is written is whole, and the quota is kept in the directory") {
  const testing::TemporaryDirectory directory;
  const std::string path = (directory / "hangs");
  auto store = ReportStore::open(path, "node/a", {.keep = 2, .max_bytes = 1u << 20});
  REQUIRE(store);
  std::ofstream(path + "/mine.txt") << "stays";
  std::vector<std::string> names;
  for (int n = 0; n < 4; ++n)
    names.push_back(store->event(std::chrono::system_clock::time_point(std::chrono::hours(n)), "hang") + "-1.txt");
  CHECK(names[0] == "rankstacks-node_a-19700101T000000Z-hang-1.txt");
  for (const std::string& name : names) {
    REQUIRE(store->write(name, name) == 0);
    store->clean();
  }
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(path)) found.push_back(entry.path().filename());
  std::sort(found.begin(), found.end());
  CHECK(found == std::vector<std::string>{"mine.txt", names[0], names[3]});
  CHECK(std::filesystem::status(path + '/' + names[3]).permissions() ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
}

TEST_CASE("a directory that cannot be used is refused") {
  const testing::TemporaryDirectory directory;
  CHECK_FALSE(ReportStore::open((directory / "no/such"), "a", {}));
  std::ofstream((directory / "file")) << "x";
  const auto file = ReportStore::open((directory / "file"), "a", {});
  REQUIRE_FALSE(file);
  CHECK(file.error().os_errno == ENOTDIR);
}

}  // namespace
}  // namespace rankstacks::watch
