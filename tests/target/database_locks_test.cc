// Locks of SQLite's databases, from text as /proc has it.
#include <catch2/catch.hpp>

#include "target/database_locks.h"

using namespace rankstacks;
using namespace rankstacks::target;

namespace {

constexpr Pid kOwn = 20;

const OpenFile kRuns{"/data/runs.db", 1, ""}, kTrials{"/data/trials.db", 2, ""}, kLog{"/data/log.txt", 3, ""};
const OpenFile kCache{"/data/cache.db", 4, ""}, kCacheLog{"/data/cache.db-wal", 5, ""},
    kCacheMemory{"/data/cache.db-shm", 6, ""};

struct Found {
  std::vector<Pid> pids;
  std::string path;
  bool operator==(const Found&) const = default;
};

Found found_in(std::string_view locks, std::vector<OpenFile> files) {
  const DatabaseLocks found = awaited_database_locks(parse_file_locks(locks), kOwn, databases_among(files));
  Found result{{}, found.path};
  for (const auto& [name, lock] : found.held) result.pids.push_back(lock.pid);
  return result;
}
const Found kNoLock{};

}  // namespace

TEST_CASE("databases among the files that a process has open") {
  const std::vector<OpenFile> files = {kCacheMemory, kLog,
                                       kCache,       {"/data/cache.db", 4, "fe:00:4"},
                                       kCacheLog,    {"/data/runs.db-journal", 9, ""},
                                       kRuns,        {"/else/cache.db", 4, ""}};
  const auto databases = databases_among(files);
  REQUIRE(databases.size() == 4);
  CHECK(databases[0].database == kLog);  // not a database, but it is not opened to find out
  CHECK(databases[1].database == OpenFile{"/data/cache.db", 4, "fe:00:4"});
  CHECK(databases[1].shared_memory == kCacheMemory);
  CHECK(databases[2].database == kRuns);
  CHECK_FALSE(databases[2].shared_memory);
  CHECK_FALSE(databases[3].shared_memory);
  CHECK(databases_among({}).empty());
}

TEST_CASE("the process that writes into a database with a rollback journal") {
  const std::string reserved = "1: POSIX  ADVISORY  WRITE 10 fe:00:1 1073741825 1073741825\n",
                    reads = "2: POSIX  ADVISORY  READ 10 fe:00:1 1073741826 1073742335\n";
  CHECK(found_in(reserved + reads, {kLog, kRuns}) == Found{{10}, "/data/runs.db"});  // BEGIN IMMEDIATE
  CHECK(found_in("1: POSIX  ADVISORY  WRITE 10 fe:00:1 1073741824 1073742335\n", {kRuns}) ==
        Found{{10}, "/data/runs.db"});  // EXCLUSIVE
  CHECK(found_in("1: POSIX  ADVISORY  WRITE 10 fe:00:1 1073741824 1073741824\n", {kRuns}) ==
        Found{{10}, "/data/runs.db"});  // PENDING
  CHECK(found_in("1: POSIX  ADVISORY  WRITE 10 fe:00:1 0 EOF\n", {kRuns}) == Found{{10}, "/data/runs.db"});
  CHECK(found_in("1: OFDLCK ADVISORY  WRITE -1 fe:00:1 1073741825 1073741825\n", {kRuns}) ==
        Found{{-1}, "/data/runs.db"});
  CHECK(awaited_database_locks(parse_file_locks(reserved), kOwn, databases_among({kRuns})).held.front().first ==
        "runs.db");
}

TEST_CASE("locks that keep no process out of a database") {
  const auto one = [](const std::string& line) { return found_in(line, {kRuns, kLog}); };
  CHECK(one("") == kNoLock);
  CHECK(one("1: POSIX  ADVISORY  READ 10 fe:00:1 1073741826 1073742335\n") == kNoLock);   // a reader
  CHECK(one("1: POSIX  ADVISORY  WRITE 20 fe:00:1 1073741825 1073741825\n") == kNoLock);  // of its own process
  CHECK(one("1: POSIX  ADVISORY  WRITE 10 fe:00:7 1073741825 1073741825\n") == kNoLock);  // of another file
  CHECK(one("1: POSIX  ADVISORY  WRITE 10 fe:00:1 0 1073741823\n") == kNoLock);           // of other bytes
  CHECK(one("1: POSIX  ADVISORY  WRITE 10 fe:00:1 1073742336 EOF\n") == kNoLock);
  CHECK(one("1: FLOCK  ADVISORY  WRITE 10 fe:00:1 0 EOF\n") == kNoLock);  // of another family of locks
  CHECK(one("1: -> POSIX  ADVISORY  WRITE 10 fe:00:1 1073741825 1073741825\n") == kNoLock);  // it waits itself
  const OpenFile known{"/data/runs.db", 1, "fe:01:1"};
  CHECK(found_in("1: POSIX  ADVISORY  WRITE 10 fe:00:1 1073741825 1073741825\n", {known}) ==
        kNoLock);  // of another file system
  CHECK(found_in("1: POSIX  ADVISORY  WRITE 10 fe:01:1 1073741825 1073741825\n", {known}).pids == std::vector<Pid>{10});
}

TEST_CASE("the process that writes into a database in WAL mode") {
  const std::vector<OpenFile> files = {kCache, kCacheLog, kCacheMemory};
  const std::string open =
      "1: POSIX  ADVISORY  READ 10 fe:00:4 1073741826 1073742335\n2: POSIX  ADVISORY  READ 10 fe:00:6 128 128\n3: "
      "POSIX  ADVISORY  READ 11 fe:00:6 124 124\n";
  CHECK(found_in(open, files) == kNoLock);
  for (const int byte : {120, 121, 122, 123, 127}) {
    INFO(byte);
    const std::string line =
        "4: POSIX  ADVISORY  WRITE 10 fe:00:6 " + std::to_string(byte) + " " + std::to_string(byte) + "\n";
    CHECK(found_in(open + line, files) == Found{{10}, "/data/cache.db"});
    CHECK(awaited_database_locks(parse_file_locks(line), kOwn, databases_among(files)).held.front().first ==
          "cache.db-shm");
  }
  CHECK(found_in("4: POSIX  ADVISORY  WRITE 10 fe:00:6 128 128\n", files) == kNoLock);
  CHECK(found_in("4: POSIX  ADVISORY  WRITE 10 fe:00:6 0 119\n", files) == kNoLock);
  CHECK(found_in("4: POSIX  ADVISORY  WRITE 10 fe:00:4 120 120\n", files) ==
        kNoLock);  // that byte of the database is not used as a lock
  CHECK(found_in("4: POSIX  ADVISORY  WRITE 10 fe:00:6 120 120\n", {kCacheMemory}) == kNoLock);
}

TEST_CASE("several databases") {
  const std::string runs = "1: POSIX  ADVISORY  WRITE 10 fe:00:1 1073741825 1073741825\n",
                    trials = "2: POSIX  ADVISORY  WRITE 10 fe:00:2 1073741825 1073741825\n",
                    trials_of_11 = "2: POSIX  ADVISORY  WRITE 11 fe:00:2 1073741825 1073741825\n",
                    of_open_file = "2: OFDLCK ADVISORY  WRITE -1 fe:00:2 1073741825 1073741825\n",
                    own_trials = "2: POSIX  ADVISORY  WRITE 20 fe:00:2 1073741825 1073741825\n";
  CHECK(found_in(runs, {kRuns, kTrials}) == Found{{10}, "/data/runs.db"});
  CHECK(found_in(runs + trials, {kRuns, kTrials}) == Found{{10, 10}, ""});
  CHECK(found_in(runs + trials_of_11, {kRuns, kTrials}) == kNoLock);
  CHECK(found_in(runs + of_open_file, {kRuns, kTrials}) == kNoLock);
  CHECK(found_in(runs + own_trials, {kRuns, kTrials}) == kNoLock);  // it may wait for the readers of its own database
  CHECK(found_in(runs + own_trials, {kRuns}) == Found{{10}, "/data/runs.db"});
  // Its own process checkpoints the log, and for that waits for the writer.
  CHECK(found_in("1: POSIX  ADVISORY  WRITE 20 fe:00:6 121 121\n2: POSIX  ADVISORY  WRITE 10 fe:00:6 120 120\n",
                 {kCache, kCacheMemory}) == Found{{10}, "/data/cache.db"});
}
