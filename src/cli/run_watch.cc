#include "cli/run_watch.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <ostream>

#include <fmt/format.h>

#include "base/text.h"
#include "cli/messages.h"
#include "cli/watch_command.h"
#include "cli/watch_looks.h"
#include "model/captured_at.h"
#include "report/sanitize.h"
#include "watch/full_looks.h"

namespace rankstacks::cli {
namespace {

using Clock = Deadline::Clock;
using WallClock = std::chrono::system_clock;
using watch::Action;

// Why reports are written: a word of their names, and of RANKSTACKS_EVENT.
enum class Event { kHang, kRankEnded, kStop };
constexpr std::array<const char*, 3> kEventWords = {"hang", "rank-ended", "stop"};
const char* word_of(Event event) { return kEventWords.at(static_cast<std::size_t>(event)); }

constexpr std::chrono::seconds kLongestLook{120}, kLongestSearch{30};
constexpr std::chrono::seconds kBetweenLooks{5};    // at most
constexpr std::chrono::seconds kBetweenEvents{30};  // of one kind: the ranks of a job that crashes end one by one
constexpr std::size_t kMaxEventsInAnHour = 12;
// A rank's wait for what does not answer is as long as the look may be.
constexpr std::chrono::seconds kTimeoutOfLook{20};
constexpr int kPeriodsPerSearchOfChildren = 12;

// SIGTERM and SIGINT, which ask the watch to end, as a descriptor.
class EndSignals {
 public:
  EndSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int number : {SIGTERM, SIGINT}) sigaddset(&signals, number);
    sigprocmask(SIG_BLOCK, &signals, &before_);
    descriptor_ = FileDescriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~EndSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  int descriptor() const { return descriptor_.get(); }
  bool has_come() {
    signalfd_siginfo info{};
    if (::read(descriptor_.get(), &info, sizeof info) == sizeof info) has_come_ = true;
    return has_come_;
  }

 private:
  sigset_t before_{};
  FileDescriptor descriptor_;
  bool has_come_ = false;
};

class Watch {
 public:
  Watch(const Options& options, watch::ReportStore store, std::ostream& err)
      : options_(options), store_(std::move(store)), err_(err), command_(options.watch.command) {
    options_.capture.timeout = kTimeoutOfLook;
    options_.live.without_tools = true;
  }

  int run() {
    if (const int status = wait_for_ranks(); status >= 0) return status;
    auto next = Clock::now();
    for (int period = 0;; ++period) {
      next = std::max(next + options_.watch.period, Clock::now());
      const bool goes_on = sleep_until(Deadline::at(next));
      if (signals_.has_come()) {
        look_for_the_last_time();
        break;
      }
      if (!goes_on) break;
      find_more();
      if (decision_->is_suspicious() || period % kPeriodsPerSearchOfChildren == 0) reader_.find_children();
      if (!act(decision_->next(reader_.read()), std::nullopt)) break;
      command_.is_running();
    }
    command_.wait(Deadline::after(options_.watch.grace));
    return all_written_ ? 0 : 1;
  }

 private:
  void tell(const std::string& text) {
    err_ << fmt::format("rankstacks: {}: {}\n", captured_at_text(WallClock::now()), report::sanitize(text))
         << std::flush;
  }

  // A look is left at once when the watch is asked to end: the last one has all of the time that is left.
  WorkLimit limit(Clock::duration longest) {
    return {Deadline::after(longest), [this] {
              return signals_.has_come() ? std::optional(Deadline::after(Clock::duration::zero())) : std::nullopt;
            }};
  }

  // Returns the exit status if there is nothing to watch, else -1. The job may be started after the watch.
  int wait_for_ranks() {
    for (bool announced = false;; announced = true) {
      const auto found = find_ranks(options_, limit(kLongestSearch));
      if (found && !found->ranks.empty()) return begin(*found), -1;
      if (found && found->several_jobs) {
        print_error(err_, "several jobs run on this machine, and --job takes one",
                    "rankstacks attach --job lists them");
        return 2;
      }
      if (!options_.live.job) {
        print_error(err_, "there is no such process", "");
        return 2;
      }
      if (!announced) tell("waits for a job");
      if (!sleep_until(Deadline::after(std::max<Clock::duration>(options_.watch.period, std::chrono::seconds(2)))) ||
          signals_.has_come())
        return 0;
    }
  }

  void begin(const FoundRanks& found) {
    for (const watch::WatchedProcess& rank : found.ranks) reader_.add_rank(rank);
    reader_.find_children();
    const auto timeout = options_.watch.job_timeout.value_or(found.timeout);
    decision_.emplace(watch::DecisionSettings{.period = options_.watch.period, .timeout = timeout});
    decision_->next(reader_.read());
    gap_ = options_.watch.period;
    find_again_ = Clock::now() + gap_;
    tell(fmt::format("watches {}; its own watchdog ends it after {} s ({})", counted(reader_.ranks(), "rank"),
                     timeout.count(), options_.watch.job_timeout ? "--job-timeout" : found.timeout_from));
    const auto first = reader_.processes_of_ranks().front();
    if (options_.live.job) options_.live.job = capture::JobChoice::of_process(first.pid, first.start_ticks);
  }

  // Ranks that were started later, in ever longer intervals.
  void find_more() {
    constexpr std::chrono::minutes kLongestGap{10};
    if (Clock::now() < find_again_) return;
    gap_ = std::min<Clock::duration>(2 * gap_, kLongestGap);
    find_again_ = Clock::now() + gap_;
    if (const auto found = find_ranks(asked(), limit(kLongestSearch)))
      for (const watch::WatchedProcess& rank : found->ranks) reader_.add_rank(rank);
  }

  // The job by one of its ranks that still lives.
  Options asked() const {
    Options asked = options_;
    for (std::size_t rank = 0; asked.live.job && rank < reader_.ranks(); ++rank)
      if (reader_.end_of(rank) == watch::End::kLives) {
        const auto& process = reader_.processes_of_ranks()[rank];
        asked.live.job = capture::JobChoice::of_process(process.pid, process.start_ticks);
        break;
      }
    return asked;
  }

  bool some_rank_lives() const {
    for (std::size_t rank = 0; rank < reader_.ranks(); ++rank)
      if (reader_.end_of(rank) == watch::End::kLives) return true;
    return false;
  }

  // Returns at the deadline, or at a signal. A rank that ends meanwhile is seen to at once. False: all have ended.
  bool sleep_until(const Deadline& deadline) {
    while (!deadline.passed() && !signals_.has_come()) {
      std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}};
      std::vector<std::size_t> ranks;
      for (std::size_t rank = 0; rank < reader_.ranks(); ++rank)
        if (reader_.end_descriptor(rank).is_open() && (rank >= ended_.size() || !ended_[rank])) {
          polled.push_back({reader_.end_descriptor(rank).get(), POLLIN, 0});
          ranks.push_back(rank);
        }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
      if (poll(polled.data(), polled.size(), static_cast<int>(std::min<long>(left.count(), 60'000))) <= 0) continue;
      for (std::size_t i = 0; i < ranks.size(); ++i)
        if (polled[i + 1].revents != 0 && !on_end_of(ranks[i])) return false;
    }
    return true;
  }

  bool on_end_of(std::size_t rank) {
    ended_.resize(std::max(ended_.size(), rank + 1));
    ended_[rank] = true;
    return act(decision_->ended(rank), reader_.end_of(rank));
  }

  // False: the watch is over.
  bool act(Action action, std::optional<watch::End> end) {
    switch (action) {
      case Action::kNone: break;
      case Action::kAllEnded: tell("the job has ended"); return false;
      case Action::kLightLook: look_whether_it_hangs(); break;
      case Action::kFullLooks: take_full_looks(); break;
      case Action::kBeforeTimeout: look_before_timeout(); break;
      case Action::kRankEnded:
        if (end != watch::End::kNormally) look_at_the_rest(end.value_or(watch::End::kUnknown));
        break;
    }
    return true;
  }

  std::optional<LookResult> look(LookKind kind, const std::string& name, bool unless_healthy, const WorkLimit& limit) {
    const Look look = look_at_ranks(asked(), kind, store_, name, unless_healthy, limit);
    cost_of_look_ = look.cost;
    return look.result;
  }

  void look_whether_it_hangs() {
    const auto stood = decision_->stood_for();
    const auto light = look(LookKind::kLight, "", false, limit(kLongestLook));
    const watch::Seen seen = light ? light->seen : watch::Seen::kUndecided;
    if (decision_->looked(seen, light ? light->places : std::nullopt, cost_of_look_) != Action::kFullLooks)
      return tell_no_hang(stood, seen);
    take_full_looks();
  }

  void take_full_looks() {
    if (!may_write(Event::kHang)) return;
    const auto stood = decision_->stood_for();
    event_ = store_.event(WallClock::now(), word_of(Event::kHang));
    watch::FullLooks looks;
    while (looks.goes_on()) {
      const std::string name = name_of_look(looks.number());
      const bool decides = looks.next_decides();
      const auto result = look(LookKind::kFull, name, decides, limit(kLongestLook));
      const bool hangs =
          decides && result && decision_->looked(result->seen, result->places, cost_of_look_) == Action::kFullLooks;
      const watch::Found found = looks.looked(full_look(result, hangs));
      if (found == watch::Found::kNoHang) {
        remove(name);
        return tell_no_hang(stood, result->seen);
      }
      note(result, name);
      if (found == watch::Found::kHangs) {
        count(Event::kHang);
        tell(fmt::format("the job makes no progress, and had made none for {:.0f} s when this was noticed: {}.json.zst",
                         stood.count(), store_.path_of(name)));
      }
      if (signals_.has_come()) break;
      if (looks.goes_on() &&
          !sleep_until(Deadline::after(std::min<Clock::duration>(options_.watch.period, kBetweenLooks))))
        break;
    }
    if (const auto newest = looks.newest()) call(Event::kHang, name_of_look(*newest));
  }

  std::string name_of_look(int number) const { return fmt::format("{}-{}", event_, number); }

  static std::optional<watch::FullLook> full_look(const std::optional<LookResult>& result, bool hangs) {
    if (!result) return std::nullopt;
    return watch::FullLook{.hangs = hangs, .ranks = result->ranks, .written = result->not_written == 0};
  }

  void tell_no_hang(watch::Seconds stood, watch::Seen seen) {
    static constexpr std::array kFinds = {"at work", "standing", "undecided"};  // as in Seen
    tell(fmt::format("no rank has moved for {:.0f} s; a look finds the job {}", stood.count(),
                     kFinds[static_cast<std::size_t>(seen)]));
  }

  void look_before_timeout() {
    const std::string name = event_ + "-timeout";
    if (note(look(LookKind::kShort, name, false, limit(kLongestLook)), name))
      report_event(Event::kHang, name, "the job still stands, and its own watchdog is about to end it");
  }

  // The other ranks wait for the one that is gone, or find out that it is, or are ended by their launcher at once. If
  // all of them are gone by then and none is known to have failed, the job has come to its end.
  void look_at_the_rest(watch::End end) {
    constexpr std::chrono::seconds kForEnd{2};
    if (!some_rank_lives() || !may_write(Event::kRankEnded)) return;
    count(Event::kRankEnded);
    const std::string event = store_.event(WallClock::now(), word_of(Event::kRankEnded));
    const std::string name = event + "-1";
    const auto result = look(LookKind::kShort, name, false, limit(kLongestLook));
    if (!result || result->ranks == 0) return remove(name);
    const Deadline deadline = Deadline::after(kForEnd);
    while (end == watch::End::kUnknown && !deadline.passed() && some_rank_lives() && !signals_.has_come()) {
      pollfd signal{signals_.descriptor(), POLLIN, 0};
      poll(&signal, 1, 50);
      for (std::size_t rank = 0; rank < reader_.ranks(); ++rank)
        if (reader_.end_of(rank) == watch::End::kFailed) end = watch::End::kFailed;
    }
    if (end == watch::End::kUnknown && !some_rank_lives()) return remove(name);
    if (note(result, name)) report_event(Event::kRankEnded, name, "a rank has ended while others live");
  }

  void look_for_the_last_time() {
    if (!some_rank_lives()) return;
    is_last_look_ = true;
    const std::string name = store_.event(WallClock::now(), word_of(Event::kStop)) + "-1";
    const auto result = look(LookKind::kShort, name, false, {Deadline::after(options_.watch.grace)});
    if (result && result->ranks == 0) return remove(name);
    if (note(result, name)) report_event(Event::kStop, name, "the watch was asked to end");
  }

  void remove(const std::string& name) const { store_.remove_all(name); }

  // Whether a look has left reports; says why not.
  bool note(const std::optional<LookResult>& result, const std::string& name) {
    if (!result && signals_.has_come() && !is_last_look_) {
      remove(name);
      return false;
    }
    if (!result || result->not_written != 0) {
      all_written_ = false;
      tell(result ? fmt::format("{}: cannot be written: {}", store_.path_of(name), std::strerror(result->not_written))
                  : std::string("the look at the ranks was not done in time"));
      remove(name);
      return false;
    }
    store_.clean();
    return true;
  }

  // Whether there may be one more report of that kind.
  bool may_write(Event event) {
    const auto now = Clock::now();
    std::erase_if(events_, [&](const auto& other) { return now - other.second > std::chrono::hours(1); });
    const bool too_soon = std::any_of(events_.begin(), events_.end(), [&](const auto& other) {
      return other.first == event && now - other.second < kBetweenEvents;
    });
    return !too_soon && events_.size() < kMaxEventsInAnHour;
  }
  void count(Event event) { events_.emplace_back(event, Clock::now()); }

  void report_event(Event event, const std::string& name, const std::string& what) {
    tell(fmt::format("{}: {}.json.zst", what, store_.path_of(name)));
    call(event, name);
  }

  void call(Event event, const std::string& name) {
    const std::string path = store_.path_of(name);
    command_.start({{"RANKSTACKS_EVENT", word_of(event)},
                    {"RANKSTACKS_REPORT", path + ".json.zst"},
                    {"RANKSTACKS_REPORT_TEXT", path + ".txt"}});
  }

  Options options_;
  watch::ReportStore store_;
  std::ostream& err_;
  EndSignals signals_;
  watch::ProcessReader reader_;
  std::optional<watch::Decision> decision_;
  WatchCommandRunner command_;
  std::vector<bool> ended_;  // by rank: its end was seen to
  std::vector<std::pair<Event, Clock::time_point>> events_;
  std::string event_;               // the newest hang
  watch::Seconds cost_of_look_{0};  // of the newest
  Clock::time_point find_again_{};
  Clock::duration gap_{};
  bool is_last_look_ = false;
  bool all_written_ = true;
};

}  // namespace

int run_watch(const Options& options, std::ostream& err) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  auto store = watch::ReportStore::open(options.watch.directory, host.data(),
                                        {.keep = options.watch.keep, .max_bytes = options.watch.max_bytes});
  if (!store) {
    print_error(err, report::sanitize(store.error().message()), store.error().hint);
    return 2;
  }
  warn_if_others_write(options.watch.directory, err);
  return Watch(options, std::move(*store), err).run();
}

}  // namespace rankstacks::cli
