#include "support/two_states.h"

#include <fmt/format.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <optional>
#include <thread>

#include "base/file_descriptor.h"
#include "capture/finish_job.h"
#include "capture/prepare_targets.h"
#include "capture/read_processes.h"
#include "support/child_process.h"

// A function in a section of its own: the linker tells where that begins and ends (__start_ and __stop_).
#define PART(name) __attribute__((noinline, noclone, section(#name)))
#define SECTION(name)                                      \
  extern "C" const char __start_##name[], __stop_##name[]; \
  static const Part k_##name { __start_##name, __stop_##name }

namespace rankstacks::testing {
namespace {

struct Part {
  const char *start, *stop;
  bool contains(Address a) const {
    return a >= reinterpret_cast<Address>(start) && a < reinterpret_cast<Address>(stop);
  }
};

// --- the process -----------------------------------------------------------------------------------------------------

constexpr std::uint64_t kMarks = 0x7477'6f73'7461'7465, kMarksWords = 0x7477'6f77'6f72'6473;
constexpr std::size_t kWords = 3, kApart = 520;  // more than a page of words

// Not in registers: a frame has it on the stack.
struct Marker {
  std::uint64_t mark, change;
};

struct Change {
  std::uint64_t number;
  volatile std::uint64_t* words;
  void (*nap)();
  void wrote(std::size_t word) const { words[word * kApart] = number; }
};

inline void keep(const volatile Marker& marker) { asm volatile("" : : "m"(marker) : "memory"); }

PART(two_states_one_3) void one_3(const Change& change) {
  const volatile Marker marker{kMarks, change.number};
  change.wrote(2);
  change.nap();
  keep(marker);
}
PART(two_states_one_2) void one_2(const Change& change) {
  const volatile Marker marker{kMarks, change.number};
  change.wrote(1);
  one_3(change);
  keep(marker);
}
PART(two_states_one_1) void one_1(const Change& change) {
  const volatile Marker marker{kMarks, change.number};
  change.wrote(0);
  one_2(change);
  keep(marker);
}

// The frames of the other state have other sizes: what is left of one state is nowhere in place in the other.
PART(two_states_two_3) void two_3(const Change& change) {
  const volatile Marker markers[4] = {{kMarks, change.number}};
  change.wrote(2);
  change.nap();
  keep(markers[0]);
}
PART(two_states_two_2) void two_2(const Change& change) {
  const volatile Marker markers[2] = {{kMarks, change.number}};
  change.wrote(1);
  two_3(change);
  keep(markers[0]);
}
PART(two_states_two_1) void two_1(const Change& change) {
  const volatile Marker markers[3] = {{kMarks, change.number}};
  change.wrote(0);
  two_2(change);
  keep(markers[0]);
}

PART(two_states_changes) void changes(void (*nap)(), std::uint64_t times) {
  volatile std::uint64_t words[1 + kWords * kApart] = {kMarksWords};
  for (std::uint64_t number = 1; number <= times; ++number) {
    const Change change{number, words + 1, nap};
    if (number % 2 == 1) one_1(change);
    else two_1(change);
  }
}

constexpr std::uint64_t kForEver = ~std::uint64_t{0};

void sleep_for(long ns) {
  const timespec time{0, ns};
  nanosleep(&time, nullptr);
}

void naps() { sleep_for(1); }
void spins() {}
void yields() { sched_yield(); }

// Nearly always asleep; a different time each time, so that every part of a sample meets a change.
void sleeps() {
  static thread_local std::uint64_t random = 1;
  random = random * 6364136223846793005u + 1442695040888963407u;
  sleep_for(static_cast<long>((random >> 33) % 1'000'000));
}

void maps() {
  constexpr std::size_t kSize = 64u << 10;
  void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  *static_cast<volatile char*>(memory) = 1;
  sleep_for(1);
  munmap(memory, kSize);
}

void forks() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
}

void vforks() {
  const pid_t child = vfork();
  if (child == 0) {
    sleep_for(50'000);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

sem_t turns[2];
void takes_first_turn() {
  sem_post(&turns[1]);
  sem_wait(&turns[0]);
}
void takes_second_turn() {
  sem_post(&turns[0]);
  sem_wait(&turns[1]);
}

// A handler of signals, on a stack of its own, in one of two functions.
PART(two_states_handler_1) void handler_one() {
  sleep_for(1);
  asm volatile("");
}
PART(two_states_handler_2) void handler_two() {
  char room[512];
  asm volatile("" : : "m"(room) : "memory");
  sleep_for(20'000);
  asm volatile("" : : "m"(room) : "memory");
}
PART(two_states_handler) void handles(int) {
  static volatile int number = 0;
  const int now = number;
  number = now + 1;
  if (now % 2 == 0) handler_one();
  else handler_two();
  asm volatile("");
}

[[noreturn]] void change_for_ever(void (*nap)()) {
  prctl(PR_SET_TIMERSLACK, 1);
  changes(nap, kForEver);
  _exit(0);
}

[[noreturn]] void with_signals() {
  const stack_t stack{.ss_sp = mmap(nullptr, 64u << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                      .ss_flags = 0,
                      .ss_size = 64u << 10};
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = handles;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval every{{0, 150}, {0, 150}};
  setitimer(ITIMER_REAL, &every, nullptr);
  change_for_ever(naps);
}

[[noreturn]] void with_threads() {
  for (int i = 0; i < 2; ++i)
    std::thread([] {
      prctl(PR_SET_TIMERSLACK, 1);
      while (true) {
        std::thread first([] { changes(naps, 3); }), second([] { changes(yields, 2); });
        first.join();
        second.join();
      }
    }).detach();
  change_for_ever(naps);
}

[[noreturn]] void with_turns() {
  sem_init(&turns[0], 0, 0);
  sem_init(&turns[1], 0, 0);
  std::thread([] { changes(takes_second_turn, kForEver); }).detach();
  changes(takes_first_turn, kForEver);
  _exit(0);
}

[[noreturn]] void with_sleepers() {
  for (int i = 0; i < 8; ++i) std::thread([] { pause(); }).detach();
  for (int i = 0; i < 2; ++i) std::thread([] { changes(naps, kForEver); }).detach();
  change_for_ever(spins);
}

constexpr const char* kPython = R"(
import os, threading, time
def one_3(nap): nap()
def one_2(nap): one_3(nap)
def one_1(nap): one_2(nap)
def two_3(nap): nap()
def two_2(nap): two_3(*[nap])
def two_1(nap): (lambda: two_2(nap))()
def changes(nap):
    while True:
        one_1(nap)
        two_1(nap)
def sleeps(): time.sleep(0.00005)
def computes(): sum(range(20))
for nap in (sleeps, sleeps, computes): threading.Thread(target=changes, args=(nap,), daemon=True).start()
os.write(1, b"r")
changes(sleeps)
)";

// --- the samples -----------------------------------------------------------------------------------------------------

SECTION(two_states_one_1);
SECTION(two_states_one_2);
SECTION(two_states_one_3);
SECTION(two_states_two_1);
SECTION(two_states_two_2);
SECTION(two_states_two_3);
SECTION(two_states_changes);
SECTION(two_states_handler);
SECTION(two_states_handler_1);
SECTION(two_states_handler_2);

const Part* const kStates[2][3] = {{&k_two_states_one_1, &k_two_states_one_2, &k_two_states_one_3},
                                   {&k_two_states_two_1, &k_two_states_two_2, &k_two_states_two_3}};

struct Place {
  int state, depth;  // depth: 0 to 2
};
std::optional<Place> place_of(Address pc) {
  for (int state = 0; state < 2; ++state)
    for (int depth = 0; depth < 3; ++depth)
      if (kStates[state][depth]->contains(pc)) return Place{state, depth};
  return std::nullopt;
}

std::optional<Address> find_mark(const target::Target& target, const unwind::UnwoundFrame& frame, std::uint64_t mark) {
  for (Address at = frame.sp; at + sizeof(Marker) <= frame.cfa; at += sizeof mark)
    if (target.read_value<std::uint64_t>(at) == mark) return at;
  return std::nullopt;
}

std::string words_of(const unwind::UnwoundStack& stack) {
  std::string text;
  for (const auto& frame : stack.frames) {
    const auto place = place_of(frame.lookup_pc());
    if (place) text += fmt::format(" {}_{}", place->state == 0 ? "one" : "two", place->depth + 1);
    else if (k_two_states_changes.contains(frame.lookup_pc())) text += " changes";
    else text += frame.exact_pc ? " (interrupted)" : " .";
  }
  return text;
}

// What is wrong with the stack of a thread; std::nullopt: nothing.
std::optional<std::string> wrong_stack(const target::Target& target, const unwind::UnwoundStack& stack,
                                       Samples& samples) {
  std::optional<Place> inside;  // the innermost function of the two states
  std::optional<std::uint64_t> number;
  std::optional<Address> words;
  int handlers = 0;
  for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend(); ++frame) {
    const Address pc = frame->lookup_pc();
    if (k_two_states_handler_1.contains(pc) || k_two_states_handler_2.contains(pc)) {
      if (++handlers > 1) return "two functions of the handler";
    }
    if (k_two_states_changes.contains(pc)) {
      if (words) return "two calls of changes()";
      const auto mark = find_mark(target, *frame, kMarksWords);
      // Where it begins or ends, the frame is not complete: it calls memset() before it has written the mark. A
      // function of a state further inside is then reported as outside of it.
      if (mark) words = *mark + sizeof(std::uint64_t);
      continue;
    }
    const auto place = place_of(pc);
    if (!place) continue;
    if (!words) return "outside of changes()";
    if (place->depth != (inside ? inside->depth + 1 : 0)) return "a function that the one before does not call";
    if (inside && place->state != inside->state) return "in both states";
    inside = place;
    if (frame->exact_pc) continue;  // it may not have written its number yet
    const auto mark = find_mark(target, *frame, kMarks);
    const auto own = mark ? target.read_value<Marker>(*mark) : std::nullopt;
    if (!own) return "a frame without its number";
    if (number && own->change != *number) return "frames of different changes";
    number = own->change;
    if (*number % 2 != (place->state == 0 ? 1u : 0u)) return "the number of the other state";
    const auto written = target.read_value<std::uint64_t>(*words + place->depth * kApart * sizeof(std::uint64_t));
    if (written != number)
      return fmt::format("word {} is of change {}, not {}", place->depth, written.value_or(0), *number);
  }
  if (inside) ++samples.seen[inside->state];
  else ++samples.between;
  if (!words) return std::nullopt;
  std::uint64_t values[kWords];
  for (std::size_t i = 0; i < kWords; ++i) {
    const auto value = target.read_value<std::uint64_t>(*words + i * kApart * sizeof(std::uint64_t));
    if (!value) return "a part of the stack is missing";
    values[i] = *value;
  }
  if (values[0] < values[1] || values[1] < values[2] || values[2] + 1 < values[0])
    return fmt::format("words of changes {}, {}, {}", values[0], values[1], values[2]);
  return std::nullopt;
}

std::optional<std::string> wrong_python(const python::State& state, const capture::RankStacks& rank, Samples& samples) {
  std::vector<python::NativeThread> threads;
  for (std::size_t i = 0; i < rank.stacks.size(); ++i) {
    const auto& registers = rank.target->threads()[i].registers;
    threads.push_back({registers ? registers->fs_base : 0, &rank.stacks[i]});
  }
  const auto states = python::assign_threads(state, threads);
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (!rank.target->threads()[i].registers) continue;  // it ran, and was not stopped
    const python::MergedStack merged = python::merge(state, states[i], rank.stacks[i], {});
    std::vector<std::string> names;
    std::string all;
    for (auto frame = merged.frames.rbegin(); frame != merged.frames.rend(); ++frame) {
      if (!frame->is_python) continue;
      const std::string& name = state.codes[frame->code].name;
      all += " " + name;
      if (name.starts_with("one_") || name.starts_with("two_")) names.push_back(name);
    }
    if (merged.partial) return "a merged stack is partial:" + all;
    for (std::size_t n = 0; n < names.size(); ++n)
      if (names[n] != names[0].substr(0, 4) + std::to_string(n + 1)) return "Python's frames:" + all;
    if (names.empty()) ++samples.between;
    else ++samples.seen[names[0].starts_with("one") ? 0 : 1];
  }
  return std::nullopt;
}

class Sampler {
 public:
  Sampler(pid_t pid, target::StopPolicy policy) : pid_(pid), reader_(options_, policy) {
    auto prepared = capture::prepare_targets({pid}, images_, capture::Preparing::kEverything, options_.timeout);
    interpreters_ = std::move(prepared[0].interpreters);
  }

  void take(Samples& samples) {
    auto prepared = capture::prepare_targets({pid_}, images_, capture::Preparing::kModules, options_.timeout);
    if (!prepared[0].target) {
      samples.wrong.push_back("it cannot be read: " + prepared[0].error->message());
      return;
    }
    capture::LiveRanks live(1);
    capture::RankStacks& rank = live.ranks[0];
    rank.snapshot.pid = pid_;
    live.targets[0] = prepared[0].target.get();
    live.interpreters[0] = &interpreters_;
    rank.target = std::move(prepared[0].target);
    target::SocketTables sockets;
    reader_.read(live, sockets);
    capture::unwind_ranks(live.ranks, options_);
    reader_.read_again(live, reader_.to_read_again(live), sockets);
    if (!rank.target) {
      samples.wrong.push_back("it was not read: " + rank.snapshot.problems.back().message);
      return;
    }
    ++samples.done;
    switch (live.targets[0]->method()) {
      case ReadMethod::kWithoutStop: ++samples.without_stop; break;
      case ReadMethod::kPartlyStopped: ++samples.partly; break;
      default: ++samples.stopped;
    }
    const auto threads = rank.target->threads();
    for (std::size_t i = 0; i < threads.size(); ++i) {
      if (!threads[i].registers) {
        ++samples.left_out;
        continue;
      }
      const unwind::UnwoundStack& stack = rank.stacks[i];
      if (stack.end != StackEnd::kComplete) {
        ++samples.incomplete;
        continue;
      }
      if (rank.python) continue;
      if (auto wrong = wrong_stack(*rank.target, stack, samples))
        samples.wrong.push_back(fmt::format("sample {}: {}:{} ({} threads stopped of {})", samples.done, *wrong,
                                            words_of(stack), live.targets[0]->threads_stopped(), threads.size()));
    }
    // What ran while the sample was taken may have changed Python's state: the report says so.
    if (rank.python && live.targets[0]->cuts().empty())
      if (auto wrong = wrong_python(*rank.python, rank, samples))
        samples.wrong.push_back(fmt::format("sample {}: {} ({} threads stopped of {})", samples.done, *wrong,
                                            live.targets[0]->threads_stopped(), threads.size()));
  }

 private:
  pid_t pid_;
  capture::CaptureOptions options_;
  target::LiveImages images_;
  std::vector<python::RuntimeCandidate> interpreters_;
  capture::ProcessReader reader_;
};

}  // namespace

const std::vector<Behaviour>& behaviours() {
  static const std::vector<Behaviour> all = {
      {"naps", "sleeps for the shortest time in each state", [] { change_for_ever(naps); }},
      {"sleeps", "sleeps for up to 1 ms in each state", [] { change_for_ever(sleeps); }},
      {"spins", "never sleeps", [] { change_for_ever(spins); }},
      {"yields", "gives up its processor in each state", [] { change_for_ever(yields); }},
      {"turns", "two threads that wake each other", [] { with_turns(); }},
      {"crowd", "eight threads sleep, two nap, one spins", [] { with_sleepers(); }},
      {"threads", "other threads begin and end all the time", [] { with_threads(); }},
      {"signals", "a handler on a stack of its own interrupts it all the time", [] { with_signals(); }},
      {"maps", "maps and unmaps memory in each state", [] { change_for_ever(maps); }},
      {"forks", "forks in each state", [] { change_for_ever(forks); }},
      {"vforks", "waits for a child of vfork() in each state", [] { change_for_ever(vforks); }},
      {"python", "four threads of Python", nullptr}};
  return all;
}

Samples take_samples(const Behaviour& behaviour, target::StopPolicy policy, int times) {
  int started[2] = {-1, -1};  // a pipe: Python writes to it when its threads run
  if (pipe(started) != 0) return {.wrong = {"no pipe"}};
  const FileDescriptor started_pipe(started[0]);
  ChildProcess child([&](auto& ready) {
    if (behaviour.body == nullptr) {
      dup2(started[1], STDOUT_FILENO);
      ready();
      execl("/usr/bin/python3", "python3", "-c", kPython, nullptr);
      _exit(127);
    }
    ready();
    behaviour.body();
  });
  close(started[1]);
  Samples samples;
  char byte = 0;
  if (!child.ready() || (behaviour.body == nullptr && read(started_pipe.get(), &byte, 1) != 1)) {
    samples.wrong.emplace_back("it has not started");
    return samples;
  }
  Sampler sampler(child.pid(), policy);
  for (int i = 0; i < times; ++i) sampler.take(samples);
  return samples;
}

}  // namespace rankstacks::testing
