// What blocked system calls wait for, from literal registers and memory.
#include <asm/unistd_64.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <catch2/catch.hpp>

#include "support/fake_target.h"
#include "target/awaited.h"

using namespace rankstacks;
using namespace rankstacks::target;
using What = Awaited::What;

namespace {

constexpr Address kMemory = 0x1000;

struct Call {
  testing::FakeTarget target;
  std::optional<Awaited> with(int number, std::uint64_t first, std::uint64_t second = 0,
                              std::uint64_t third = 0) const {
    Registers r;
    r.orig_rax = number;
    r.set(kRdi, first);
    r.set(kRsi, second);
    r.set(kRdx, third);
    return awaited_by(target, r, {.number = number});
  }
};

}  // namespace

TEST_CASE("calls on a descriptor") {
  const Call call;
  const auto read = call.with(__NR_read, 5);
  REQUIRE(read);
  CHECK((read->what == What::kInput && read->fd == 5 && read->number == __NR_read && read->first_argument == 5));
  CHECK(call.with(__NR_recvfrom, 6)->what == What::kInput);
  CHECK(call.with(__NR_sendto, 6)->what == What::kOutput);
  CHECK(call.with(__NR_connect, 6)->what == What::kOutput);
  CHECK(call.with(__NR_epoll_wait, 6)->what == What::kEvents);
  CHECK(call.with(__NR_flock, 6)->what == What::kFlock);
  CHECK(call.with(__NR_fcntl, 6, F_SETLKW)->what == What::kRecordLock);
  CHECK(call.with(__NR_fcntl, 6, 38)->what == What::kOpenFileLock);
  CHECK_FALSE(call.with(__NR_fcntl, 6, F_GETFL));
  CHECK_FALSE(call.with(__NR_read, static_cast<std::uint64_t>(-1)));
  CHECK_FALSE(call.with(__NR_accept, 3));
  CHECK_FALSE(call.with(__NR_futex, 3));
}

TEST_CASE("waits for one child") {
  const Call call;
  CHECK(call.with(__NR_wait4, 17)->child == 17);
  CHECK(call.with(__NR_wait4, 17)->what == What::kChild);
  CHECK_FALSE(call.with(__NR_wait4, 0));
  CHECK_FALSE(call.with(__NR_wait4, static_cast<std::uint64_t>(-17)));  // of a process group
  CHECK_FALSE(call.with(__NR_waitid, P_PGID, 17));
  CHECK(call.with(__NR_waitid, P_PID, 17)->child == 17);
  CHECK((call.with(__NR_waitid, 3, 9)->what == What::kInput && call.with(__NR_waitid, 3, 9)->fd == 9));
}

TEST_CASE("waits for any child") {
  const Call call;
  CHECK(call.with(__NR_wait4, static_cast<std::uint64_t>(-1))->what == What::kAnyChild);
  CHECK(call.with(__NR_wait4, 0xffffffffu)->what == What::kAnyChild);
  CHECK(call.with(__NR_waitid, P_ALL, 17)->what == What::kAnyChild);
}

TEST_CASE("poll() of one descriptor") {
  Call call;
  call.target.put_value(kMemory, std::array<pollfd, 3>{{{-1, POLLIN, 0}, {7, POLLIN | POLLOUT, 0}, {8, POLLOUT, 0}}});
  CHECK((call.with(__NR_poll, kMemory, 2)->fd == 7 && call.with(__NR_poll, kMemory, 2)->what == What::kInput));
  CHECK((call.with(__NR_ppoll, kMemory + 2 * sizeof(pollfd), 1)->fd == 8 &&
         call.with(__NR_poll, kMemory + 2 * sizeof(pollfd), 1)->what == What::kOutput));
  CHECK_FALSE(call.with(__NR_poll, kMemory, 3));  // two descriptors
  CHECK_FALSE(call.with(__NR_poll, kMemory, 1));  // no descriptor
  CHECK_FALSE(call.with(__NR_poll, kMemory, 0));
  CHECK_FALSE(call.with(__NR_poll, kMemory, 4));  // memory that cannot be read
  CHECK_FALSE(call.with(__NR_poll, kMemory, ~std::uint64_t{0}));
  CHECK_FALSE(call.with(__NR_poll, ~Address{0} - 4, 1));
}

TEST_CASE("select() of one descriptor") {
  Call call;
  constexpr Address kOther = 0x2000, kBoth = 0x3000, kEmpty = 0x4000;
  call.target.put_value(kMemory, std::array<std::uint64_t, 2>{0, 1u << 6});
  call.target.put_value(kOther, std::array<std::uint64_t, 2>{0, 1u << 7});
  call.target.put_value(kBoth, std::array<std::uint64_t, 2>{1, 1u << 6});
  call.target.put_value(kEmpty, std::array<std::uint64_t, 2>{});
  CHECK((call.with(__NR_select, 71, kMemory)->fd == 70 && call.with(__NR_select, 71, kMemory)->what == What::kInput));
  CHECK((call.with(__NR_pselect6, 71, kEmpty, kMemory)->fd == 70 &&
         call.with(__NR_select, 71, 0, kMemory)->what == What::kOutput));
  CHECK(call.with(__NR_select, 71, kMemory, kMemory)->what == What::kInput);
  CHECK_FALSE(call.with(__NR_select, 72, kMemory, kOther));
  CHECK_FALSE(call.with(__NR_select, 71, kBoth));
  CHECK_FALSE(call.with(__NR_select, 70, kMemory));  // beyond the given number of descriptors
  CHECK_FALSE(call.with(__NR_select, 71, kEmpty));
  CHECK_FALSE(call.with(__NR_select, 71, 0x9000));
  CHECK_FALSE(call.with(__NR_select, ~std::uint64_t{0}, kMemory));
}
