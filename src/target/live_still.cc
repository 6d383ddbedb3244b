// The part of LiveTarget that reads a process without stopping it, or with a stop of those threads alone that run
// (still_threads.h).
//
// A reading notes the run counts and registers of all threads, copies, and compares the run counts. If these are equal,
// the copy is of one moment. If not, the reader makes it anew: at first in the hope that those threads sleep by now,
// then with a stop of them.
//
//     reading      process                         what it is for
//     unstopped    runs                            a copy of one moment, if no thread ran; otherwise it shows which
//                                                  threads run, and which memory is needed. From the second one on the
//                                                  structures are walked after the comparison, in the copy: so it
//                                                  takes a quarter of the time, and a thread that runs a hundred times
//                                                  a second is not likely to run meanwhile
//     stopped      those threads are stopped:      the same memory once more, but for the others' stacks, by few system
//                                                  calls. (Just before, it is read to no effect: then the kernel has
//                                                  its tables at hand.) Then the comparison for the others
//                  they run again                  Python's frames, locks and so on, from the copy. If these lead to
//                                                  memory that is not in it: once more, with this inside of the stop
//
// While the copy is made that counts, no thread of the process runs, stopped or not; so it does not matter what the
// threads that ran could have changed.
#include <fmt/format.h>
#include <algorithm>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/hurry.h"
#include "target/live_target.h"
#include "target/ready_memory.h"
#include "target/stop_requests.h"
#include "target/stopped_process.h"
#include "target/thread_pointer.h"

namespace rankstacks::target {
namespace {

// As long as the threads that run do so for a moment, now and then, none is stopped for that. Two attempts in any case;
// up to so many, for so many threads: of more, one or the other would always run.
constexpr int kMaxPatient = 6;
constexpr std::size_t kFewMovers = 8;
// As long as this part of the time has not passed: more is for stops.
constexpr int kPatientShare = 8;
// Further attempts.
constexpr int kMaxImpatient = 4;
// Of one stop: each stops those threads as well that have run since the one before.
constexpr int kMaxStops = 3;
// Between two attempts that stop nothing: what a thread does between two waits takes less, mostly.
constexpr std::chrono::milliseconds kPause{1};
// A thread that has a processor is seen so many times at most, if that may be for a moment. Between the first two this
// time passes, and twice as much each time after.
constexpr int kMaxSights = 5;
constexpr std::chrono::microseconds kFirstPause{200};

constexpr const char* kRan = "it ran while the process was read, and was not stopped for that";
constexpr const char* kLate = "the time to read the process was over before a reading in which none of its threads ran";

// The same as ran_since(), without waiting for anything: the reader was abandoned.
std::vector<Tid> moved_since(Pid pid, const SeenThreads& seen) {
  const bool waits = std::any_of(seen.threads.begin(), seen.threads.end(),
                                 [](const SeenThread& t) { return t.count.of == RunCount::Of::kSwitches; });
  if (!waits) return ran_since(pid, seen);
  std::vector<Tid> all;
  for (const SeenThread& thread : seen.threads) all.push_back(thread.tid);
  return all;
}

std::vector<Tid> without_registers(const SeenThreads& seen) {
  std::vector<Tid> tids;
  for (const SeenThread& thread : seen.threads)
    if (!thread.registers) tids.push_back(thread.tid);
  return tids;
}

bool has_ended(const ThreadInfo& thread) { return thread.state == 'Z' || thread.state == 'X'; }

}  // namespace

// What the reader and the tracer of one capture share; each uses it while the other waits, but for `stopped`,
// `not_stopped` and `ended`, which the tracer fills in between its answer and its report.
struct LiveTarget::StillRead {
  const std::function<void()>& walk;
  const StopChoice& choice;
  std::chrono::steady_clock::time_point end, patient_until;
  bool stops_all = false;  // once what is needed of the memory is known: for registers that only a stop tells
  StopRequests requests = {};

  SeenThreads seen = {};
  std::unordered_set<Tid> needed = {};                    // that are to be stopped anyway
  std::unordered_set<Tid> movers = {};                    // that have run during an attempt
  int attempts = 0, impatient = 0;                        // that were begun
  bool needs_stops = false;                               // one has stopped threads, or found one that kept running
  std::unordered_map<Tid, Registers> stopped = {};        // those that are stopped
  bool walks_in_stop = false;                             // the copy alone did not have all that the walk needs
  bool compares_in_stop = false;                          // those that were released have waked others
  std::unordered_map<Tid, std::string> not_stopped = {};  // why not, of those that were to be stopped
  std::unordered_set<Tid> ended = {};                     // those that had ended when they were to be stopped
  std::unordered_set<Tid> on_own_stacks = {};             // as they were placed when none was stopped
  std::unordered_set<Tid> moved = {};                     // that may have run during the last attempt
  bool same_threads = true;                               // whether none was created or ended in it
  std::chrono::system_clock::time_point at = {};          // of its proof
  bool was_read = false;                                  // memory_ has what an attempt has read
  bool placed = false;                                    // threads_ has the registers of the last reading
  bool copied = false;                                    // and memory_ all of their stacks
  bool walked = false;                                    // and `walk` has run on them, to its end
  bool is_done = false;                                   // nothing moved, or nothing that can be stopped
  bool is_lost = false;                                   // a stop has failed: the process is not what it was
  std::chrono::steady_clock::time_point begun = {};       // the attempt

  bool is_in_time() const { return std::chrono::steady_clock::now() < end; }
  void run_walk() {
    walk();
    walked = is_in_time();  // afterwards it finds no memory
  }
  void begin_reading() { is_done = placed = copied = walked = false; }
  // Whether a further attempt may succeed without a stop.
  bool is_patient() const {
    if (needs_stops || attempts >= kMaxPatient) return false;
    return attempts < 2 || (movers.size() <= kFewMovers && std::chrono::steady_clock::now() < patient_until);
  }
  bool may_stop() const { return choice.policy == StopPolicy::kAuto; }
  bool is_stoppable(Tid tid) const { return may_stop() && !not_stopped.contains(tid); }
  // Whether to stop all threads after all: an attempt more would not do, or none has read anything.
  bool is_to_be_stopped(const std::vector<ThreadInfo>& threads) const {
    if (!may_stop()) return false;
    return !is_done || std::all_of(threads.begin(), threads.end(),
                                   [&](const ThreadInfo& t) { return moved.contains(t.tid) || has_ended(t); });
  }
  void note_moved(const std::vector<Tid>& ran) {
    moved.clear();
    for (const Tid tid : ran)
      if (!stopped.contains(tid)) moved.insert(tid);
    is_done = same_threads &&
              std::none_of(moved.begin(), moved.end(), [&](Tid tid) { return is_stoppable(tid) || !may_stop(); });
  }
  // Whether there is no time to read once more what was read since the attempt began.
  bool is_time_over() const {
    const auto now = std::chrono::steady_clock::now();
    return now + (now - begun) >= end;
  }
};

// What has become of the threads that were to be stopped. By the tracer, while the reader copies.
void LiveTarget::note_stops(StoppedProcess& held, StillRead& still) {
  held.read_registers();
  for (const StoppedProcess::Thread& thread : held.threads()) {
    if (still.stopped.contains(thread.tid)) continue;
    // The main thread remains part of the process when it has ended.
    if (thread.tid != pid_ && !thread.stopped && thread.problem == StoppedProcess::kEnded) {
      still.ended.insert(thread.tid);
      continue;
    }
    const auto registers = thread.stopped ? held.registers(thread.tid) : Result<Registers>(Registers());
    if (thread.stopped) stops_.threads.insert(thread.tid);
    if (thread.stopped && registers) still.stopped.emplace(thread.tid, *registers);
    else still.not_stopped[thread.tid] = thread.stopped ? registers.error().what : thread.problem;
  }
}

// By the tracer, while the reader copies.
void LiveTarget::add_raw_threads(const StoppedProcess& held) {
  std::unordered_set<Tid> known;
  for (const RawThread& thread : raw_threads_) known.insert(thread.tid);
  for (const StoppedProcess::Thread& thread : held.threads()) {
    if (!thread.stopped || known.contains(thread.tid)) continue;
    if (auto raw = held.raw(thread.tid)) raw_threads_.push_back(std::move(*raw));
  }
}

// The threads that cannot be read without a stop.
std::vector<Tid> LiveTarget::threads_to_stop(const StillRead& still) const {
  std::vector<Tid> wanted;
  for (const SeenThread& thread : still.seen.threads) {
    if (still.stopped.contains(thread.tid) || !still.is_stoppable(thread.tid)) continue;
    const auto info =
        std::find_if(threads_.begin(), threads_.end(), [&](const auto& t) { return t.tid == thread.tid; });
    // A stop does not reach it.
    if (info != threads_.end() && !can_stop(*info) && thread.registers) continue;
    // Of a thread that a signal has stopped, /proc does not tell whether the call that it names is over.
    const bool by_signal = info != threads_.end() && info->state == 'T';
    if (still.stops_all || !thread.registers || by_signal || still.needed.contains(thread.tid))
      wanted.push_back(thread.tid);
  }
  return wanted;
}

// Keeps the thread pointers of those threads alone where there is a descriptor of glibc's.
void LiveTarget::check_pointers(SeenThreads& seen) {
  std::vector<SeenThread*> threads;
  std::vector<Address> addresses;
  for (SeenThread& thread : seen.threads)
    if (thread.pointer) {
      threads.push_back(&thread);
      addresses.push_back(*thread.pointer);
    }
  std::vector<DescriptorHead> heads(addresses.size());
  memory_.peek(addresses, sizeof(DescriptorHead), std::as_writable_bytes(std::span(heads)));
  for (std::size_t i = 0; i < threads.size(); ++i)
    if (!is_thread_descriptor(addresses[i], heads[i])) threads[i]->pointer.reset();
}

// Places the threads that are stopped; the others are where they were placed before. Returns those whose stacks may
// begin elsewhere than in what was copied before.
LiveTarget::Threads LiveTarget::place_stopped(const StillRead& still) {
  Threads moved;
  for (ThreadInfo& thread : threads_) {
    const auto stopped = still.stopped.find(thread.tid);
    if (stopped == still.stopped.end() || has_ended(thread)) continue;
    const auto before = std::exchange(thread.registers, stopped->second);
    const bool is_there_again =
        before && before->sp() == thread.registers->sp() && before->pc() == thread.registers->pc();
    if (!is_there_again || !still.on_own_stacks.contains(thread.tid)) moved.push_back(&thread);
  }
  return moved;
}

// The threads with the registers that are known of them. None is stopped.
void LiveTarget::place_still(LeavableThread& reader, const StillRead& still) {
  std::unordered_map<Tid, const SeenThread*> seen;
  seen.reserve(still.seen.threads.size());
  for (const SeenThread& thread : still.seen.threads) seen.emplace(thread.tid, &thread);
  std::erase_if(threads_,
                [&](const ThreadInfo& t) { return !seen.contains(t.tid) || (t.tid != pid_ && has_ended(t)); });
  for (ThreadInfo& thread : threads_) {
    if (has_ended(thread)) {
      thread.problem = "it has ended; the process continues in its other threads";
      continue;
    }
    thread.registers = seen.at(thread.tid)->registers;
    // It was seen later than it was listed.
    if (thread.registers && thread.state == 'R')
      if (const auto now = proc::stat_of(pid_, thread.tid); now && !now->ends()) thread.state = now->state;
    // A worker of io_uring is a thread of the process that never leaves the kernel.
    if (thread.registers && thread.registers->sp() == 0 && thread.registers->pc() == 0) thread.registers.reset();
    if (thread.state == 'D' && thread.wchan.empty()) add_kernel_place(thread, reader);
    if (const auto& pointer = seen.at(thread.tid)->pointer; thread.registers && pointer)
      thread.registers->fs_base = *pointer;
  }
}

// Before a reading, when every thread that was listed is stopped or was seen without a processor: whether there are
// others, which may run, and end before the comparison.
void LiveTarget::count_threads(LeavableThread& reader, StillRead& still) {
  std::optional<std::size_t> count;
  reader.blocking([&, pid = pid_] { count = number_of_threads(pid); });
  still.same_threads = count == still.seen.threads.size();
}

// After it: whether threads have run since they were seen, or were created. What blocking calls use are variables of
// this function.
void LiveTarget::compare(LeavableThread& reader, StillRead& still) {
  SeenThreads seen;  // those that are not stopped
  for (const SeenThread& thread : still.seen.threads)
    if (!still.stopped.contains(thread.tid)) seen.threads.push_back(thread);
  std::vector<Tid> ran;
  std::optional<std::size_t> count;
  reader.blocking([&, pid = pid_] {
    ran = ran_since(pid, seen);
    count = number_of_threads(pid);
  });
  still.same_threads = still.same_threads && count == still.seen.threads.size();
  still.note_moved(ran);
}

// The stacks of the threads that are not stopped, by address. They were copied after their threads were seen asleep,
// and the comparison shows whether these slept until the end: they are not copied once more while others are held.
std::vector<Range> LiveTarget::standing_stacks(StillRead& still, const std::vector<Tid>& wanted) const {
  const std::unordered_set<Tid> moving(wanted.begin(), wanted.end());
  std::vector<Range> standing;
  for (const ThreadInfo& thread : threads_) {
    if (!thread.registers || still.stopped.contains(thread.tid)) continue;
    const auto stack = own_stack(thread);
    if (!stack) continue;
    still.on_own_stacks.insert(thread.tid);
    if (!moving.contains(thread.tid)) standing.push_back(*stack);
  }
  std::sort(standing.begin(), standing.end(), [](const Range& a, const Range& b) { return a.start < b.start; });
  return standing;
}

// Stops these threads, and those that run meanwhile. False: the time is over, or the process is another one.
//
// In the place of a thread that has ended meanwhile there may be a new one, which nobody has listed.
//
// The comparison proves as much when those that were stopped run again: what it compares began before the copy and ends
// after it. So they are not held for it, unless that has failed before: they may have waked a thread that slept.
bool LiveTarget::read_stopped(LeavableThread& reader, StillRead& still, std::vector<Tid> wanted) {
  for (int stops = 0; !wanted.empty() && stops < kMaxStops; ++stops) {
    still.begin_reading();
    const bool is_time_over = still.is_time_over();
    memory_.plan_refresh(standing_stacks(still, wanted));
    if (stops == 0 && !is_time_over) memory_.touch_planned();
    still.stopped.reserve(still.stopped.size() + wanted.size());
    hurry();  // threads are held from now on
    if (is_time_over || !still.requests.ask(wanted) || still.is_lost) return false;
    count_threads(reader, still);
    still.at = std::chrono::system_clock::now();
    if (still.same_threads && !memory_.refresh()) return false;
    if (!still.requests.await_report()) return false;
    still.same_threads = still.same_threads && still.ended.empty();
    if (!still.same_threads) break;
    const Threads moved = place_stopped(still);
    still.placed = true;
    read_stacks(reader, unread_maps_ ? all_threads() : moved);
    still.copied = still.is_in_time();
    if (still.walks_in_stop) still.run_walk();
    if (!still.compares_in_stop) break;
    compare(reader, still);
    if (!still.same_threads) break;
    wanted.clear();
    for (const Tid tid : still.moved)
      if (still.is_stoppable(tid)) wanted.push_back(tid);
  }
  memory_.hold();
  still.requests.begin_release();
  if (!still.compares_in_stop && still.same_threads) {
    compare(reader, still);
    still.compares_in_stop = !still.is_done;
  }
  if (!still.requests.await_release()) return false;
  hurry_no_more();
  if (still.is_done && !still.walks_in_stop) {
    still.run_walk();
    still.walks_in_stop = memory_.has_missed();
    still.is_done = !still.walks_in_stop;
  }
  return true;
}

// The threads as they are now. One that has a processor is to be stopped, as nothing tells its registers; but it may
// have it for a moment only, as a thread of gloo's that wakes a hundred times a second. So it is seen again, and then
// all are, as the reading is to begin after the wait. What blocking calls use are variables of this function.
SeenThreads LiveTarget::see(LeavableThread& reader, SeenThreads before, bool is_patient) const {
  std::vector<Tid> all;
  for (const ThreadInfo& thread : threads_) all.push_back(thread.tid);
  SeenThreads seen;
  reader.blocking([&, pid = pid_] { seen = see_threads(pid, all, before); });
  std::vector<Tid> waiting = without_registers(seen);
  auto pause = kFirstPause;
  for (int sights = 1; is_patient && sights < kMaxSights; ++sights, pause *= 2) {
    if (seen.refused != 0 || waiting.empty() || waiting.size() > kFewMovers) break;
    std::this_thread::sleep_for(pause);
    SeenThreads now;
    reader.blocking([&, pid = pid_] { now = see_threads(pid, waiting); });
    waiting = without_registers(now);
    if (now.refused == 0 && !waiting.empty() && sights + 1 < kMaxSights) continue;
    before = std::move(seen);
    reader.blocking([&, pid = pid_] { seen = see_threads(pid, all, before); });
    waiting = without_registers(seen);
  }
  return seen;
}

// One attempt. False: no further one can succeed.
bool LiveTarget::read_once(LeavableThread& reader, StillRead& still, bool is_patient) {
  if (still.was_read) memory_.plan_refresh();
  still.seen = see(reader, still.seen, is_patient);
  still.stopped.clear();
  still.ended.clear();
  still.on_own_stacks.clear();
  if (still.seen.refused != 0) return false;
  still.needs_stops = still.needs_stops || !without_registers(still.seen).empty();
  check_pointers(still.seen);
  count_threads(reader, still);
  still.at = std::chrono::system_clock::now();
  if (still.was_read && !memory_.refresh()) return false;
  place_still(reader, still);
  still.placed = true;
  if (!still.was_read) test_reading(reader);
  read_stacks(reader, all_threads());
  still.copied = still.is_in_time();
  // Where the walk is to be done inside of a stop, it shows now what that needs.
  if (still.was_read && !still.walks_in_stop) memory_.hold();
  else still.run_walk();
  still.was_read = true;
  compare(reader, still);
  std::vector<Tid> wanted = threads_to_stop(still);
  if (still.is_done && wanted.empty()) {
    if (!still.walked && still.is_in_time()) walk_compared(reader, still);
    if (still.is_done) return false;
  }
  still.movers.insert(still.moved.begin(), still.moved.end());
  // They may just have done what they do once a second.
  if (wanted.empty() && still.is_patient()) return true;
  // What has run before is stopped at once, as it may run while the others are held.
  for (const SeenThread& thread : still.seen.threads)
    if (still.movers.contains(thread.tid) && still.is_stoppable(thread.tid)) wanted.push_back(thread.tid);
  if (wanted.empty()) return true;
  still.needs_stops = true;
  return read_stopped(reader, still, std::move(wanted)) && !still.is_done;
}

// The walk of an attempt that stops nothing, in what was copied before the comparison. If that lacks something, this is
// read after all, and compared once more: what it compares began before the copy.
void LiveTarget::walk_compared(LeavableThread& reader, StillRead& still) {
  still.run_walk();
  if (!memory_.has_missed()) return;
  memory_.release();
  still.is_done = false;
  still.run_walk();
  compare(reader, still);
}

// Threads that are held, or were a moment ago, are in the state that they were in before.
void LiveTarget::read_threads_again(const StillRead& still) {
  std::unordered_map<Tid, char> before;
  for (const ThreadInfo& thread : threads_)
    if (still.stopped.contains(thread.tid)) before.emplace(thread.tid, thread.state);
  read_threads();
  for (ThreadInfo& thread : threads_)
    if (const auto known = before.find(thread.tid); known != before.end() && !has_ended(thread))
      thread.state = known->second;
}

// On the reader's thread.
void LiveTarget::read_still(LeavableThread& reader, StillRead& still) {
  // One attempt more where the first comparison after a stop has failed.
  const auto most = [&] { return still.compares_in_stop ? kMaxImpatient + 1 : kMaxImpatient; };
  while (still.impatient < most() && (still.attempts == 0 || !still.is_time_over())) {
    if (still.attempts > 0) std::this_thread::sleep_for(kPause);
    const bool is_patient = still.is_patient();
    still.begun = std::chrono::steady_clock::now();
    still.begin_reading();
    if (still.attempts > 0) read_threads_again(still);
    ++still.attempts;
    if (!is_patient) ++still.impatient;
    if (!read_once(reader, still, is_patient)) break;
  }
  // Nothing may be stopped, and the last comparison has failed: that is said of what is shown.
  if (!still.may_stop() && still.placed && !still.walked && still.is_in_time()) {
    memory_.release();
    still.run_walk();
    compare(reader, still);
  }
  still.requests.finish();
}

// What was read of threads that ran is of more than one moment.
void LiveTarget::drop_moved(const StillRead& still) {
  std::size_t dropped = 0;
  for (ThreadInfo& thread : threads_) {
    const auto why = still.not_stopped.find(thread.tid);
    if (still.placed && !still.moved.contains(thread.tid)) continue;
    if (has_ended(thread)) continue;
    ++dropped;
    thread.registers.reset();
    thread.wchan.clear();
    thread.kernel_stack.clear();
    thread.problem = why != still.not_stopped.end() ? why->second : still.placed ? kRan : kLate;
  }
  if (still.placed && (dropped > 0 || !still.same_threads))
    cuts_.push_back(
        {fmt::format("{} while it was read: what is shown of its memory, Python's frames and locks among "
                     "it, may be of more than one moment",
                     dropped > 0 ? fmt::format("{} of its {} threads ran", dropped, threads_.size())
                                 : std::string("threads were created or ended")),
         still.may_stop() ? std::nullopt : std::optional<std::string>("--stop auto stops those threads alone")});
}

// False: all threads have to be stopped, for a reading from the beginning.
Result<bool> LiveTarget::capture_standing(const std::function<void()>& walk, const CopyLimits& limits,
                                          const StopChoice& choice) {
  const proc::Stat before = process_.program;
  cuts_.clear();
  const auto started = std::chrono::steady_clock::now();
  StillRead still{.walk = walk,
                  .choice = choice,
                  .end = started + limits.longest,
                  .patient_until = started + limits.longest / kPatientShare,
                  .stops_all = keeps_raw_threads_};
  still.needed.insert(choice.needed.begin(), choice.needed.end());
  std::optional<StoppedProcess> held;
  drop_copy(limits);
  std::unique_ptr<std::byte[]> held_heap;
  std::optional<SecondCopier> second;
  raw_threads_.clear();
  LeavableThread reader([&] { held_heap = grown_heap(); });
  memory_.open(process_.memory_tid, &reader);
  walks_until_ = Deadline::at(still.end);
  reader.start([&] { read_still(reader, still); });
  while (const auto request = still.requests.next(still.end, held.has_value())) {
    if (request->release && held) {
      stops_.longest_ms = std::max(stops_.longest_ms, held->resume());
      held.reset();
    } else if (!request->release) {
      if (!second && memory_.pieces() >= CopiedMemory::kWorthTwo) {
        second.emplace();
        memory_.share_with(second->shared());
      }
      if (!held) raw_threads_.clear();
      if (!held) held.emplace(pid_);
      stops_.threads.reserve(stops_.threads.size() + request->tids.size());
      still.is_lost = !held->stop_also(process_.start_ticks, request->tids);
    }
    still.requests.answer();
    if (!held) continue;
    note_stops(*held, still);
    still.requests.report();
    if (keeps_raw_threads_) add_raw_threads(*held);
  }
  const bool in_time = reader.wait_until(still.end);
  if (!in_time) memory_.end_fetching();
  const auto after = proc::stat_of(pid_, process_.memory_tid);
  const bool holds = held && held->stopped_at() != decltype(started){};
  const auto since = holds ? held->stopped_at() : started;
  if (held) stops_.longest_ms = std::max(stops_.longest_ms, held->resume());
  const auto taken = std::chrono::steady_clock::now() - since;
  end_reading(reader, in_time);
  if (second && does_not_answer_) second->leave_behind();
  // What was read by then of threads that have not run since the attempt began is theirs.
  if (!in_time && !still.is_done && still.placed) still.note_moved(moved_since(pid_, still.seen));
  if (still.is_to_be_stopped(threads_) || (still.may_stop() && after && !after->same_program(before))) {
    read_threads_again(still);
    return false;
  }
  if (in_time && still.seen.refused != 0) return fail(attach_error(pid_, still.seen.refused));
  auto ended = end_capture(before, after,
                           {.taken = taken,
                            .in_time = in_time && still.walked,
                            .holds = holds,
                            .is_copied = still.copied && still.is_done,
                            .is_walked = still.walked,
                            .walk = walk,
                            .longest = limits.longest});
  if (!ended) return fail(ended.error());
  captured_at_ = still.placed ? still.at : std::chrono::system_clock::now();
  method_ = stops_.threads.empty()                 ? ReadMethod::kWithoutStop
            : threads_stopped() == threads_.size() ? ReadMethod::kStopped
                                                   : ReadMethod::kPartlyStopped;
  drop_moved(still);
  return true;
}

}  // namespace rankstacks::target
