#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <climits>
#include <cstring>
#include <thread>

#include "support/child_process.h"
#include "target/live_target.h"
#include "target/module_list.h"
#include "target/run_time.h"
#include "target/socket_tables.h"
#include "target/stopped_process.h"
#include "target/syscalls.h"

using namespace rankstacks;
using namespace rankstacks::target;
using rankstacks::testing::ChildProcess;

namespace {

void block() {
  int fds[2];
  char c;
  if (pipe(fds) == 0) (void)!read(fds[0], &c, 1);
}

// Waits, for a bounded time, until the process is in the wanted state: a thread reports "ready" before it is asleep.
char wait_for_state(pid_t pid, char wanted) {
  char state = 0;
  for (int i = 0; i < 20'000 && state != wanted; ++i) {
    const auto stat = target::proc::stat_of(pid);
    state = stat ? stat->state : 'X';
    std::this_thread::yield();
  }
  return state;
}

std::unique_ptr<LiveTarget> captured(
    pid_t pid, const std::function<void(LiveTarget&)>& while_stopped = [](LiveTarget&) {}) {
  LiveImages images;
  auto target = LiveTarget::prepare(pid, images);
  REQUIRE(target);
  Result<void> result;
  std::thread([&] { result = (*target)->capture([&] { while_stopped(**target); }); }).join();
  REQUIRE(result);
  return std::move(*target);
}

}  // namespace

TEST_CASE("a captured process: its threads, the call they wait in, and its memory; then it runs on") {
  static std::atomic<int> started;
  ChildProcess child([](auto& ready) {
    for (int i = 0; i < 5; ++i)
      std::thread([] {
        started++;
        block();
      }).detach();
    while (started < 5) std::this_thread::yield();
    ready();
    block();
  });
  REQUIRE(child.ready());
  REQUIRE(wait_for_state(child.pid(), 'S') == 'S');
  static const char text[] = "known to both";
  std::string seen;
  const auto target = captured(
      child.pid(), [&](LiveTarget& t) { seen = t.read_c_string(reinterpret_cast<Address>(text), 100).value_or(""); });
  CHECK(seen == text);
  CHECK(target->threads().size() == 6);
  CHECK(target->threads().front().tid == child.pid());
  for (const ThreadInfo& t : target->threads()) {
    REQUIRE(t.registers);
    CHECK(t.problem.empty());
    CHECK(target->modules().find(t.registers->pc()) != nullptr);
  }
  const auto call = blocked_syscall(*target, *target->threads().front().registers);
  REQUIRE(call);
  CHECK(call->name == "read");
  REQUIRE(call->fd);
  target::SocketTables sockets;
  CHECK(target::describe_descriptor(child.pid(), *call->fd, sockets)->starts_with("pipe:["));
  CHECK(target->stopped_ms() > 0);
  CHECK(target::proc::status_number(child.pid(), "TracerPid") == 0);
  // Memory that was not copied while the process was paused is not available afterwards.
  static int untouched = 1;
  (void)untouched;
  Address heap = 0;
  for (const Mapping& m : target->mappings())
    if (m.path == "[heap]") heap = m.range.start;
  if (heap != 0) CHECK_FALSE(target->read_value<int>(heap).has_value());
}

TEST_CASE(
    "a reading that takes too long while a thread runs is made anew, with a stop of all threads and its own time") {
  ChildProcess child([](auto& ready) {
    std::thread(block).detach();
    ready();
    volatile long turns = 0;
    while (true) turns = turns + 1;
  });
  REQUIRE(child.ready());
  LiveImages images;
  const auto target = LiveTarget::prepare(child.pid(), images);
  REQUIRE(target);
  const CopyLimits limits;
  int walks = 0;
  std::size_t walked = 0;
  Result<void> result;
  std::thread([&] {
    const auto walk = [&] {
      if (++walks == 1) std::this_thread::sleep_for(limits.longest + std::chrono::milliseconds(50));
      walked = (*target)->threads().size();
    };
    result = (*target)->capture(walk, limits, {.policy = StopPolicy::kAuto});
  }).join();
  REQUIRE(result);
  CHECK((*target)->method() == ReadMethod::kStopped);
  CHECK((*target)->cuts().empty());
  CHECK((*target)->threads_stopped() == 2);
  CHECK(walked == (*target)->threads().size());
  for (const ThreadInfo& t : (*target)->threads()) CHECK((t.registers && t.problem.empty()));
}

TEST_CASE("a further target of a process fails when that has ended, and the first keeps what it has read") {
  std::optional<ChildProcess> child(std::in_place, [](auto& ready) {
    ready();
    block();
  });
  REQUIRE(child->ready());
  const auto first = captured(child->pid());
  const auto further = first->again();
  CHECK(further->is_same_program(*first));
  child.reset();
  Result<void> result;
  std::thread([&] { result = further->capture([] {}, {}, {.policy = StopPolicy::kAuto}); }).join();
  REQUIRE_FALSE(result);
  CHECK(result.error().code == ErrorCode::kGone);
  REQUIRE(first->threads().size() == 1);
  REQUIRE(first->threads().front().registers);
  CHECK(first->read_value<Address>(first->threads().front().registers->sp()).has_value());
  CHECK(further->stopped_ms() == first->stopped_ms());
}

// Runs on a thread of its own: it gets another view of the file system, in which the process's map cannot be read
// (the memory of the test itself is in its place, and there is none at address 0). False: that is not permitted here.
bool hide_map_of(pid_t pid) {
  const std::string map = fmt::format("/proc/{0}/task/{0}/maps", pid), memory = fmt::format("/proc/{}/mem", getpid());
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount(memory.c_str(), map.c_str(), nullptr, MS_BIND, nullptr) == 0;
}

TEST_CASE("that a process's map cannot be read again is said once, however often it was tried") {
  int wake[2], done[2];
  REQUIRE((pipe(wake) == 0 && pipe(done) == 0));
  ChildProcess child([&](auto& ready) {
    ready();
    char c;
    if (read(wake[0], &c, 1) != 1) return;
    // On a stack that was not there before (glibc keeps those of threads that have ended), asleep most of the time, and
    // never for long.
    constexpr std::size_t kSize = 1u << 20;
    void* const stack = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, kSize);
    pthread_t thread;
    const auto naps = [](void* end) -> void* {
      (void)!write(*static_cast<int*>(end), "x", 1);
      while (true) usleep(50);
    };
    if (stack != MAP_FAILED && pthread_create(&thread, &attributes, naps, &done[1]) == 0) pthread_join(thread, nullptr);
  });
  REQUIRE(child.ready());
  auto target = LiveTarget::prepare(child.pid(), LiveImages());
  REQUIRE(target);
  char c;
  REQUIRE((write(wake[1], "x", 1) == 1 && read(done[0], &c, 1) == 1));
  for (const int fd : {wake[0], wake[1], done[0], done[1]}) close(fd);
  bool is_hidden = false;
  int walks = 0, captures = 0;
  Result<void> result;
  std::thread([&] {
    is_hidden = hide_map_of(child.pid());
    // On a busy machine the thread may not run during a capture: until one of them reads more than once.
    constexpr int kLeast = 3, kMax = 300;
    for (; is_hidden && result && captures < kMax && (captures < kLeast || walks <= captures); ++captures) {
      if (captures > 0) *target = (*target)->again();
      result = (*target)->capture([&] { ++walks; }, {}, {.policy = StopPolicy::kAuto});
    }
  }).join();
  if (!is_hidden) {
    WARN("skipped: no mount namespace of its own here");
    return;
  }
  REQUIRE(result);
  CHECK((captures >= 3 && walks > captures));
  int said = 0;
  for (const auto* problems : {&(*target)->problems(), &(*target)->cuts()})
    for (const Problem& problem : *problems) said += problem.message.find("Input/output error") != std::string::npos;
  CHECK(said == 1);
}

TEST_CASE("a process stopped by a signal stays stopped") {
  ChildProcess child([](auto& ready) {
    ready();
    block();
  });
  REQUIRE(child.ready());
  kill(child.pid(), SIGSTOP);
  REQUIRE(wait_for_state(child.pid(), 'T') == 'T');
  const auto target = captured(child.pid());
  CHECK(target->threads().front().state == 'T');
  CHECK(target->threads().front().registers.has_value());
  CHECK(wait_for_state(child.pid(), 'T') == 'T');
  CHECK(target::proc::status_number(child.pid(), "TracerPid") == 0);
}

TEST_CASE("a process none of whose threads can be stopped is captured too, with the time of the attempt") {
  ChildProcess child([](auto& ready) {
    ready();
    if (vfork() == 0) {  // its parent waits in state D until it ends
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (true) pause();
    }
  });
  REQUIRE(child.ready());
  REQUIRE(wait_for_state(child.pid(), 'D') == 'D');
  const auto before = std::chrono::system_clock::now();
  const auto target = captured(child.pid());
  REQUIRE(target->threads().size() == 1);
  CHECK_FALSE(target->threads()[0].problem.empty());
  CHECK(target->captured_at() >= before);
  CHECK(target->captured_at() <= std::chrono::system_clock::now());
}

TEST_CASE("a process that cannot be attached to is named, with a hint") {
  LiveImages images;
  SECTION("no such process") {
    const auto target = LiveTarget::prepare(0x3fffff, images);
    REQUIRE_FALSE(target);
    CHECK(target.error().message() == "pid 4194303: no such process");
    CHECK_FALSE(target.error().hint.empty());
  }
  SECTION("a zombie") {
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    REQUIRE(wait_for_state(pid, 'Z') == 'Z');
    const auto target = LiveTarget::prepare(pid, images);
    REQUIRE_FALSE(target);
    CHECK(target.error().message() ==
          fmt::format("pid {}: a zombie: it has ended, and its parent has not collected its exit status", pid));
    waitpid(pid, nullptr, 0);
  }
  SECTION("traced by another process") {
    ChildProcess child([](auto& ready) {
      ready();
      block();
    });
    REQUIRE(child.ready());
    ChildProcess tracer([&](auto& ready) {
      if (ptrace(PTRACE_SEIZE, child.pid(), nullptr, nullptr) != 0) return;
      ready();
      block();
    });
    if (!tracer.ready()) {
      WARN("skipped: this user may not trace a process that is no child of the tracer");
      return;
    }
    auto target = LiveTarget::prepare(child.pid(), images);
    REQUIRE(target);
    const auto result = (*target)->capture([] {});
    REQUIRE_FALSE(result);
    CHECK(result.error().message().starts_with(
        fmt::format("pid {}: already traced by pid {} (", child.pid(), tracer.pid())));
  }
  SECTION("traced by a thread of this process: the tracer is not named") {
    ChildProcess child([](auto& ready) {
      ready();
      block();
    });
    REQUIRE(child.ready());
    std::thread([&] {
      REQUIRE(ptrace(PTRACE_SEIZE, child.pid(), nullptr, nullptr) == 0);
      CHECK(attach_error(child.pid(), EPERM).message() ==
            fmt::format("pid {}: cannot be attached to: Operation not permitted", child.pid()));
    }).join();  // its end releases the child
  }
  SECTION("a thread, and this process itself") {
    CHECK_FALSE(not_a_target(getppid()));
    CHECK_FALSE(not_a_target(INT_MAX));
    CHECK(not_a_target(getpid())->message() ==
          fmt::format("pid {}: this is rankstacks itself, which cannot look at itself", getpid()));
    ChildProcess child([](auto& ready) {
      std::thread([&] {
        ready();
        block();
      }).join();
    });
    REQUIRE(child.ready());
    const auto tasks = target::proc::tasks_of(child.pid());
    REQUIRE(tasks.size() == 2);
    const auto error = not_a_target(tasks[1]);
    REQUIRE(error);
    CHECK(error->message() ==
          fmt::format("pid {0}: a thread of process {1} (test_target), not a process", tasks[1], child.pid()));
    CHECK(error->hint == fmt::format("name the process: --pids {}", child.pid()));
    CHECK(attach_error(tasks[1], ESRCH).message() == error->message());
  }
}

TEST_CASE("a 32-bit process is reported as such, and not stopped") {
  constexpr std::uint32_t kLoad = 0x8048000;
  const std::uint8_t waits[] = {0xb8, 29,   0,    0,   0,
                                0xcd, 0x80, 0xeb, 0xf7};  // pause() for ever: mov $29,%eax; int $0x80; jmp
  struct {
    Elf32_Ehdr header{};
    Elf32_Phdr load{};
    std::uint8_t code[sizeof waits];
  } program;
  std::memcpy(program.header.e_ident, ELFMAG, SELFMAG);
  program.header.e_ident[EI_CLASS] = ELFCLASS32;
  program.header.e_ident[EI_DATA] = ELFDATA2LSB;
  program.header.e_ident[EI_VERSION] = EV_CURRENT;
  program.header.e_type = ET_EXEC;
  program.header.e_machine = EM_386;
  program.header.e_version = EV_CURRENT;
  program.header.e_ehsize = sizeof program.header;
  program.header.e_phoff = sizeof program.header;
  program.header.e_phentsize = sizeof program.load;
  program.header.e_phnum = 1;
  program.header.e_entry = kLoad + sizeof program.header + sizeof program.load;
  program.load = {.p_type = PT_LOAD,
                  .p_offset = 0,
                  .p_vaddr = kLoad,
                  .p_paddr = kLoad,
                  .p_filesz = sizeof program,
                  .p_memsz = sizeof program,
                  .p_flags = PF_R | PF_X,
                  .p_align = 0x1000};
  std::memcpy(program.code, waits, sizeof waits);
  char path[] = "/tmp/rankstacks-32-bit-XXXXXX";
  const int file = mkstemp(path);
  REQUIRE(file >= 0);
  REQUIRE(write(file, &program, sizeof program) == sizeof program);
  REQUIRE(fchmod(file, 0700) == 0);
  close(file);
  int started[2];
  REQUIRE(pipe2(started, O_CLOEXEC) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    execl(path, path, nullptr);
    const int saved = errno;
    (void)!write(started[1], &saved, sizeof saved);
    _exit(1);
  }
  close(started[1]);
  int why = 0;
  const bool runs = read(started[0], &why, sizeof why) == 0;  // the end of the pipe: it was closed by the exec
  close(started[0]);
  if (runs) {
    LiveImages images;
    const auto target = LiveTarget::prepare(pid, images);
    REQUIRE_FALSE(target);
    CHECK(target.error().message() == fmt::format("pid {}: a 32-bit process", pid));
    CHECK(target.error().hint == "only 64-bit x86-64 processes are read; use gdb for this one");
  } else {
    WARN("skipped: no 32-bit program can be run here: " << std::strerror(why));
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  unlink(path);
}

namespace {

// A process with the pid of another one that has ended, started at least one tick of the kernel's clock later. -1 if
// that is not permitted here.
pid_t reuse_pid(pid_t number) {
  struct clone_args {
    std::uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size;
  } arguments{};
  arguments.exit_signal = SIGCHLD;
  arguments.set_tid = reinterpret_cast<std::uint64_t>(&number);
  arguments.set_tid_size = 1;
  const auto pid = static_cast<pid_t>(syscall(SYS_clone3, &arguments, sizeof arguments));
  if (pid == 0) {
    while (true) pause();
  }
  return pid;
}

}  // namespace

TEST_CASE("a pid that belongs to another process by now is left alone") {
  LiveImages images;
  pid_t number = 0;
  std::unique_ptr<LiveTarget> target;
  std::uint64_t started = 0;
  {
    ChildProcess first([](auto& ready) {
      ready();
      block();
    });
    REQUIRE(first.ready());
    number = first.pid();
    auto prepared = LiveTarget::prepare(number, images);
    REQUIRE(prepared);
    target = std::move(*prepared);
    started = target->start_ticks();
  }
  pid_t second = -1;
  for (std::uint64_t now = started; now <= started;) {
    second = reuse_pid(number);
    if (second < 0) {
      WARN("skipped: a process cannot be given a pid here: " << std::strerror(errno));
      return;
    }
    REQUIRE(second == number);
    now = target::proc::stat_of(second)->start_ticks;
    if (now > started) break;
    kill(second, SIGKILL);
    waitpid(second, nullptr, 0);
  }
  Result<void> result;
  bool looked = false;
  std::thread([&] { result = target->capture([&] { looked = true; }); }).join();
  REQUIRE_FALSE(result);
  CHECK(result.error().code == ErrorCode::kGone);
  CHECK_FALSE(looked);
  // The decisive check is the one after the seizure: the pid of a seized process cannot be reused.
  std::optional<Error> error;
  std::thread([&] {
    auto stopped = StoppedProcess::stop(number, started, {});
    if (!stopped) error = stopped.error();
  }).join();
  REQUIRE(error);
  CHECK(error->message() == fmt::format("pid {}: it has ended, and its pid belongs to another process now", number));
  CHECK(target::proc::status_number(number, "TracerPid") == 0);
  CHECK(wait_for_state(number, 'S') == 'S');
  kill(second, SIGKILL);
  waitpid(second, nullptr, 0);
}

TEST_CASE("threads that come and go during a stop: none is left running, and afterwards none is left stopped") {
  static std::atomic<long> born;
  ChildProcess child([](auto& ready) {
    for (int i = 0; i < 3; ++i)
      std::thread([] {
        while (true) std::thread([] { ++born; }).join();
      }).detach();
    while (born < 100) std::this_thread::yield();
    ready();
    block();
  });
  REQUIRE(child.ready());
  for (int turn = 0; turn < 50; ++turn) {
    std::vector<Tid> listed;
    std::thread([&] {
      auto stopped = StoppedProcess::stop(child.pid(), target::proc::stat_of(child.pid())->start_ticks, {});
      REQUIRE(stopped);
      // While all threads are paused, the kernel's list and ours are the same, and every thread in the list is in a
      // trace stop.
      std::vector<Tid> ours;
      for (const auto& t : stopped->threads())
        if (t.stopped) ours.push_back(t.tid);
      listed = target::proc::tasks_of(child.pid());
      std::erase_if(listed, [&](Tid t) { return target::proc::stat_of(child.pid(), t)->state != 't'; });
      std::sort(ours.begin(), ours.end());
      auto sorted = target::proc::tasks_of(child.pid());
      std::sort(sorted.begin(), sorted.end());
      CHECK(ours == sorted);
      CHECK(listed.size() == ours.size());
    }).join();
    CHECK(target::proc::status_number(child.pid(), "TracerPid") == 0);
  }
}

TEST_CASE(
    "while a process is paused the tool's thread may have a real-time class; afterwards it has its former class") {
  ChildProcess child([](auto& ready) {
    ready();
    block();
  });
  REQUIRE(child.ready());
  int before = -1, after = -1;
  std::thread([&] {
    before = sched_getscheduler(0);
    auto stopped = StoppedProcess::stop(child.pid(), target::proc::stat_of(child.pid())->start_ticks, {});
    REQUIRE(stopped);
    CHECK(stopped->resume() > 0);
    after = sched_getscheduler(0);
  }).join();
  CHECK(before == after);
}

TEST_CASE("another tracer that releases the process soon is waited for") {
  ChildProcess child([](auto& ready) {
    ready();
    block();
  });
  REQUIRE(child.ready());
  // The thread holds the process until the capture has begun and has found the process traced: nothing but the passing
  // of time shows that attempt.
  std::atomic<bool> held{false}, let_go{false};
  std::thread holder([&] {
    auto stopped = StoppedProcess::stop(child.pid(), target::proc::stat_of(child.pid())->start_ticks, {});
    REQUIRE(stopped);
    held = true;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    let_go = true;
  });
  while (!held) std::this_thread::yield();
  const auto target = captured(child.pid());
  CHECK(let_go);
  CHECK(target->threads().front().registers.has_value());
  holder.join();
}

TEST_CASE("a signal that arrives while the process is stopped is delivered afterwards") {
  ChildProcess child([](auto& ready) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    signal(SIGUSR1, [](int) { _exit(7); });
    ready();
    block();
  });
  REQUIRE(child.ready());
  REQUIRE(wait_for_state(child.pid(), 'S') == 'S');
  const auto target = captured(child.pid(), [&](LiveTarget&) { kill(child.pid(), SIGUSR1); });
  int status = 0;
  REQUIRE(waitpid(child.pid(), &status, 0) == child.pid());
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("memory maps are read as the kernel writes them") {
  const auto maps = target::proc::parse_maps(
      "7f0000000000-7f0000001000 r-xp 00002000 08:01 42                         /lib/a b.so (deleted)\n"
      "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]\n"
      "not a line\n"
      "7f0000002000-7f0000003000 rw-p 00000000 00:00 0 \n");
  REQUIRE(maps.size() == 3);
  CHECK(maps[0].path == "/lib/a b.so");
  CHECK(maps[0].deleted);
  CHECK(maps[0].executable);
  CHECK(maps[0].file_offset == 0x2000);
  CHECK(maps[0].inode == 42);
  CHECK(maps[1].path == "[stack]");
  CHECK(maps[2].path.empty());
}

TEST_CASE("the mappings of one load are grouped, those of another load are separate") {
  const auto ranges = [](const char* maps) {
    std::string all;
    const auto mappings = target::proc::parse_maps(maps);
    for (const FileMappings& f : group_mappings(mappings)) all += fmt::format("{:x}-{:x} ", f.range.start, f.range.end);
    return all;
  };
  SECTION("a file whose parts have offsets of their own, mapped twice, at adjacent addresses") {
    CHECK(ranges("10000-11000 r--p 00000000 08:01 42 /lib/a.so\n"
                 "11000-12000 r-xp 00001000 08:01 42 /lib/a.so\n"
                 "12000-13000 rw-p 00002000 08:01 42 /lib/a.so\n"
                 "13000-14000 r--p 00000000 08:01 42 /lib/a.so\n"
                 "14000-15000 r-xp 00001000 08:01 42 /lib/a.so\n") == "10000-13000 13000-15000 ");
  }
  SECTION("a file of less than a page, as lld makes it: each part is mapped from the file's first page") {
    CHECK(ranges("10000-11000 r--p 00000000 08:01 42 /bin/tiny\n"
                 "11000-12000 r-xp 00000000 08:01 42 /bin/tiny\n"
                 "12000-13000 r--p 00000000 08:01 42 /bin/tiny\n"
                 "13000-14000 rw-p 00000000 08:01 42 /bin/tiny\n"
                 "14000-15000 r--p 00000000 08:01 42 /bin/tiny\n"
                 "15000-16000 r-xp 00000000 08:01 42 /bin/tiny\n") == "10000-14000 14000-16000 ");
  }
  SECTION("a file that the program itself reads through a mapping, in addition to its load") {
    CHECK(ranges("10000-11000 r--p 00000000 08:01 42 /lib/a.so\n"
                 "11000-12000 r--p 00000000 08:01 42 /lib/a.so\n"
                 "12000-13000 r-xp 00001000 08:01 42 /lib/a.so\n") == "11000-13000 ");
  }
}

TEST_CASE("how long and how often a thread has run") {
  const auto time = parse_schedstat("1500000 47162 12\n");
  REQUIRE(time);
  CHECK(time->cpu_ms == Approx(1.5));
  CHECK(time->runs == 12);
  for (const char* text : {"", "12", "12 13", "a b c", "-1 2 3", "99999999999999999999 1 1"})
    CHECK_FALSE(parse_schedstat(text));
  const auto own = run_time_of(getpid(), getpid());
  if (!own) WARN("this kernel does not count how often a thread runs (CONFIG_SCHED_INFO)");
  else CHECK(own->runs > 0);
  CHECK_FALSE(run_time_of(getpid(), 0));
}

TEST_CASE("a command name with brackets and blanks does not confuse /proc/PID/stat") {
  const auto stat = target::proc::parse_stat("12 (a) b (c) S 3 12 12 0 -1 4194304 0 0 0 0 7 5 0 0 20 0 9 0 777 0 0\n");
  REQUIRE(stat);
  CHECK(stat->name == "a) b (c");
  CHECK(stat->state == 'S');
  CHECK(stat->parent == 3);
  CHECK(stat->threads == 9);
  CHECK(stat->start_ticks == 777);
  CHECK_FALSE(target::proc::parse_stat("12 (a) S"));
}

TEST_CASE("a failure to open a file is remembered, unless the process through which it was tried has ended",
          "[live_target]") {
  LiveImages images;
  int tries = 0;
  const auto fails_with = [&](ErrorCode code) {
    return [&tries, code]() -> LiveImages::Opened {
      ++tries;
      return fail({.code = code, .subject = "a file", .what = "it cannot be opened"});
    };
  };
  CHECK_FALSE(images.find_or(1, 2, fails_with(ErrorCode::kGone)));
  CHECK_FALSE(images.find_or(1, 2, fails_with(ErrorCode::kMalformed)));
  CHECK(tries == 2);
  CHECK(images.find_or(1, 2, fails_with(ErrorCode::kGone)).error().code == ErrorCode::kMalformed);
  CHECK(tries == 2);
}
