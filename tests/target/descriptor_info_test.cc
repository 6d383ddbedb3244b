// /proc/PID/fdinfo/N as text, and which processes of this machine have something open.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include "support/temporary_directory.h"
#include "target/descriptor_info.h"
#include "target/holders.h"

using namespace rankstacks;
using namespace rankstacks::target;

TEST_CASE("what fdinfo says of a descriptor") {
  const auto pipe = parse_descriptor_info("pos:\t0\nflags:\t02000001\nmnt_id:\t16\nino:\t60669\n");
  CHECK((pipe.writes() && !pipe.reads()));
  CHECK(pipe.inode == 60669u);
  const auto epoll = parse_descriptor_info(
      "pos:\t0\nflags:\t02000002\ntfd:        4 events:       19 data:                4  pos:0 ino:ecfd sdev:f\ntfd:   "
      "     5 events: 80000001 data: 5\n");
  CHECK((epoll.writes() && epoll.reads()));
  CHECK(epoll.watched == std::vector<DescriptorInfo::Watched>{{4, 0x19, 0xecfd}, {5, 0x80000001, {}}});
  const auto locked = parse_descriptor_info(
      "flags:\t0100000\nlock:\t1: FLOCK  ADVISORY  WRITE 28426 fe:00:1 0 EOF\nlock:\t2: LEASE  ACTIVE    READ 1 "
      "fe:00:1 0 EOF\n");
  CHECK((locked.reads() && !locked.writes()));
  REQUIRE(locked.locks.size() == 1);
  CHECK(locked.locks[0].pid == 28426);
  CHECK(parse_descriptor_info("Pid:\t28467\nNSpid:\t28467\n").process == 28467);
  CHECK_FALSE(parse_descriptor_info("Pid:\t-1\n").process);
}

TEST_CASE("fdinfo that says nothing") {
  for (const char* text : {"", "\n", ":", "flags", "flags:", "flags:\tx", "ino:\t-", "tfd:", "tfd: 4",
                           "tfd: 4 events:", "tfd: x events: 19", "lock:\t", "Pid:\t99999999999999"}) {
    INFO(text);
    const auto info = parse_descriptor_info(text);
    CHECK((!info.access && !info.inode && info.locks.empty() && info.watched.empty() && !info.process));
    CHECK((!info.reads() && !info.writes()));
  }
}

namespace {

Holders::Budget plenty() { return {10, 100'000, DeadlineCheck(Deadline::never())}; }

}  // namespace

TEST_CASE("the processes that have a pipe, a FIFO, a lock") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/fifo", file = directory.path() + "/file";
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const int fifo = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC),
            other = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const auto identity = identity_of(::getpid(), fifo);
  REQUIRE(identity);
  CHECK(identity->is_fifo);
  CHECK_FALSE(identity_of(::getpid(), other)->is_fifo);
  CHECK_FALSE(identity_of(::getpid(), 100'000));
  const auto info = descriptor_info(::getpid(), ends[0]);
  REQUIRE(info);
  const std::string link = fmt::format("pipe:[{}]", info->inode.value_or(0));
  Holders holders;
  const auto writers = holders.who_writes_pipe(link), readers = holders.who_reads_pipe(link),
             nobody = holders.who_writes_pipe("pipe:[1]");
  CHECK(holders.who_writes_pipe(link) == writers);
  const auto fifo_readers = holders.who_opened_fifo("fifo", *identity, false),
             fifo_writers = holders.who_opened_fifo("fifo", *identity, true);
  const auto unlocked = holders.who_has_lock("file", FileLock{.pid = ::getpid(), .file = "fe:00:1"});
  CHECK(holders.any_open());
  auto budget = plenty();
  holders.look_through(::getpid(), budget);
  CHECK_FALSE(budget.over);
  CHECK(budget.processes == 9);
  const std::set<Pid> self{::getpid()}, none;
  CHECK(holders.of(writers) == self);
  CHECK(holders.of(readers) == self);
  CHECK(holders.of(fifo_readers) == self);
  CHECK(holders.of(fifo_writers) == none);
  CHECK(holders.of(nobody) == none);
  CHECK(holders.of(unlocked) == none);
  for (const int fd : {ends[0], ends[1], fifo, other}) ::close(fd);
}

TEST_CASE("a search is bounded") {
  Holders holders;
  const auto nobody = holders.who_has_socket(1);
  Holders::Budget few{10, 1, DeadlineCheck(Deadline::never())}, none{0, 1, DeadlineCheck(Deadline::never())},
      late{10, 10, DeadlineCheck(Deadline::after({}))};
  for (Holders::Budget* budget : {&few, &none, &late}) {
    holders.look_through(::getpid(), *budget);
    CHECK(budget->over);
  }
  CHECK(holders.of(nobody).empty());
  holders.close(nobody);
  CHECK_FALSE(holders.any_open());
}
