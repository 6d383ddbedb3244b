// The kernel's list of file locks, as text.
#include <catch2/catch.hpp>

#include "target/file_locks.h"

using namespace rankstacks;
using namespace rankstacks::target;
using Kind = FileLock::Kind;

TEST_CASE("the lines of /proc/locks") {
  const auto locks = parse_file_locks(
      "1: FLOCK  ADVISORY  WRITE 28426 fe:00:10952738 0 EOF\n"
      "1: -> FLOCK  ADVISORY  WRITE 28467 fe:00:10952738 0 EOF\n"
      "1:  -> FLOCK  ADVISORY  READ  28468 fe:00:10952738 0 EOF\n"
      "2: POSIX  ADVISORY  READ  700 08:02:1234 1073741826 1073742335\n"
      "3: OFDLCK ADVISORY  WRITE -1 00:2f:9 0 0\n"
      "4: LEASE  ACTIVE    READ 701 08:02:1234 0 EOF\n"
      "5: POSIX  MANDATORY WRITE 702 fe:ff:18446744073709551615 0 EOF");
  REQUIRE(locks.size() == 6);
  CHECK(locks[0] == FileLock{Kind::kFlock, false, true, 28426, "fe:00:10952738", 0, UINT64_MAX});
  CHECK(locks[1] == FileLock{Kind::kFlock, true, true, 28467, "fe:00:10952738", 0, UINT64_MAX});
  CHECK(locks[2] == FileLock{Kind::kFlock, true, false, 28468, "fe:00:10952738", 0, UINT64_MAX});
  CHECK(locks[3] == FileLock{Kind::kRecord, false, false, 700, "08:02:1234", 1073741826, 1073742335});
  CHECK(locks[4] == FileLock{Kind::kOpenFile, false, true, -1, "00:2f:9", 0, 0});
  CHECK(locks[5].pid == 702);
}

TEST_CASE("lines that are not of /proc/locks") {
  for (const char* line :
       {"", " ", "1", "1:", "x: FLOCK ADVISORY WRITE 1 fe:00:1 0 EOF", "1: ->", "1: FLOCK", "1: FLOCK ADVISORY",
        "1: FLOCK ADVISORY UNLCK 1 fe:00:1 0 EOF", "1: FLOCK ADVISORY WRITE one fe:00:1 0 EOF",
        "1: FLOCK ADVISORY WRITE 99999999999 fe:00:1 0 EOF", "1: FLOCK ADVISORY WRITE 1 fe:00 0 EOF",
        "1: FLOCK ADVISORY WRITE 1 <none>:0 0 EOF", "1: FLOCK ADVISORY WRITE 1 fe:00:18446744073709551616 0 EOF",
        "1: FLOCK ADVISORY WRITE 1 fe:00:1 -1 EOF", "1: FLOCK ADVISORY WRITE 1 fe:00:1 0",
        "1: FLOCK ADVISORY WRITE 1 fe:00:1 0 END", "1: FLOCK ADVISORY WRITE 1 fe:00:1",
        "1: UNKNOWN UNKNOWN  READ 1 fe:00:1 0 EOF"}) {
    INFO(line);
    CHECK_FALSE(parse_file_lock(line));
  }
  CHECK(parse_file_locks("").empty());
  CHECK(parse_file_locks("\n\n\n").empty());
}

TEST_CASE("the processes that hold the lock that a process waits for") {
  const auto all = parse_file_locks(
      "1: FLOCK  ADVISORY  READ  10 fe:00:1 0 EOF\n"
      "1: -> FLOCK  ADVISORY  WRITE 20 fe:00:1 0 EOF\n"
      "2: FLOCK  ADVISORY  READ  11 fe:00:1 0 EOF\n"
      "3: FLOCK  ADVISORY  WRITE 12 fe:00:2 0 EOF\n"
      "3: -> FLOCK  ADVISORY  READ  21 fe:00:2 0 EOF\n"
      "4: POSIX  ADVISORY  WRITE 13 fe:00:1 0 9\n"
      "4: -> POSIX  ADVISORY  WRITE 20 fe:00:1 5 5\n"
      "5: OFDLCK ADVISORY  READ -1 fe:00:1 3 7\n"
      "6: POSIX  ADVISORY  WRITE 14 fe:00:1 10 19\n"
      "7: -> OFDLCK ADVISORY  WRITE -1 fe:00:1 12 12\n"
      "8: -> POSIX  ADVISORY  READ 22 fe:00:1 5 12\n"
      "9: -> POSIX  ADVISORY  READ 22 fe:00:7 5 12\n");
  const auto holders = [&](Kind kind, Pid pid, std::optional<std::uint64_t> inode) {
    std::vector<Pid> pids;
    for (const FileLock& lock : locks_in_the_way(all, awaited_locks(all, kind, pid, inode))) pids.push_back(lock.pid);
    return pids;
  };
  using Pids = std::vector<Pid>;
  CHECK(holders(Kind::kFlock, 20, 1) ==
        Pids{10, 11});  // all that share it; flock(2) and fcntl(2) locks are independent
  CHECK(holders(Kind::kFlock, 20, std::nullopt) == Pids{10, 11});
  CHECK(holders(Kind::kFlock, 20, 2) == Pids{});  // a different file than that of the call
  CHECK(holders(Kind::kFlock, 21, 2) == Pids{12});
  CHECK(holders(Kind::kFlock, 99, 1) == Pids{});
  CHECK(holders(Kind::kRecord, 20, 1) == Pids{13, -1});  // of both kinds of fcntl locks, those that hold byte 5
  CHECK(holders(Kind::kOpenFile, 20, 1) == Pids{14});
  CHECK(holders(Kind::kOpenFile, 20, std::nullopt) == Pids{});  // no process is named
  CHECK(holders(Kind::kRecord, 22, 1) == Pids{13, 14});         // two readers do not block each other
  CHECK(holders(Kind::kRecord, 22, std::nullopt) == Pids{});    // two files, and it is not known which
}
