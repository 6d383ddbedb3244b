#include "watch/decision.h"

#include <algorithm>
#include <vector>

#include <catch2/catch.hpp>

namespace rankstacks::watch {
namespace {

struct Work {
  double cpu = 0;  // processors
  double runs = 0, reads = 0, writes = 0, bytes = 0;
};
constexpr Work kTrains{0.9, 400, 50, 2}, kWaits{0.001, 10, 0, 0}, kPolls{1, 12, 0, 0}, kComputes{1, 20, 0, 0};

constexpr int kEarlyLooks = 3;

// A job whose readings are made up, and the decision about it.
class Job {
 public:
  explicit Job(std::size_t ranks = 4, DecisionSettings settings = {}) : decision(settings), period_(settings.period) {
    reading_.ranks = ranks;
    for (std::size_t r = 0; r < ranks; ++r)
      reading_.processes.push_back({.pid = static_cast<Pid>(100 + r), .start_ticks = 1, .rank = r});
    decision.next(reading_);
  }

  Action step(const std::vector<Work>& of_ranks) {
    reading_.at += period_;
    for (std::size_t r = 0; r < of_ranks.size(); ++r) {
      Counters& counters = reading_.processes[r].counters;
      const double seconds = period_.count();
      counters.cpu_ms += of_ranks[r].cpu * 1000 * seconds;
      counters.runs += static_cast<std::int64_t>(of_ranks[r].runs * seconds);
      counters.reads += static_cast<std::int64_t>(of_ranks[r].reads * seconds);
      counters.bytes += static_cast<std::int64_t>(of_ranks[r].bytes * seconds);
      counters.writes += static_cast<std::int64_t>(of_ranks[r].writes * seconds);
    }
    return decision.next(reading_);
  }
  Action all(const Work& work) { return step(std::vector<Work>(reading_.ranks, work)); }

  // The number of periods until something else than kNone; `most` if nothing comes.
  int until(Action action, const std::vector<Work>& work, int most = 1000) {
    for (int n = 1; n <= most; ++n)
      if (const Action done = step(work); done != Action::kNone) return done == action ? n : -n;
    return most;
  }
  int until(Action action, const Work& work, int most = 1000) {
    return until(action, std::vector<Work>(reading_.ranks, work), most);
  }
  void train(int periods = 20) {
    for (int n = 0; n < periods; ++n) REQUIRE(all(kTrains) == Action::kNone);
  }
  // The looks at a job before it has stood for a minute from its beginning. Returns the number of periods until the
  // first look after these.
  int pass_early_looks(const std::vector<Work>& work) {
    int periods = 0;
    for (int n = 0; n < kEarlyLooks; ++n) {
      periods += until(Action::kLightLook, work);
      REQUIRE(decision.looked(Seen::kHealthy) == Action::kNone);
    }
    return periods + until(Action::kLightLook, work);
  }
  int pass_early_looks(const Work& work) { return pass_early_looks(std::vector<Work>(reading_.ranks, work)); }
  // The first looks at a job that does this from its beginning.
  void find_healthy_at_start(const Work& work) {
    for (int n = 0; n < kEarlyLooks + 3; ++n) {
      REQUIRE(until(Action::kLightLook, work) > 0);
      decision.looked(Seen::kHealthy);
    }
  }
  void end(std::size_t rank) { reading_.processes[rank].ended = true; }

  Decision decision;

 private:
  Seconds period_;
  Reading reading_;
};

TEST_CASE("a job that trains is not looked at") {
  Job job;
  job.train(2000);
  CHECK_FALSE(job.decision.is_suspicious());
}

TEST_CASE("a job that stands is noticed within two periods, whether its ranks sleep or poll") {
  for (const Work& hangs : {kWaits, kPolls}) {
    Job job;
    job.train();
    CHECK(job.until(Action::kLightLook, hangs) <= 3);  // it hangs within the first of these periods
    CHECK(job.decision.looked(Seen::kStands) == Action::kFullLooks);
    CHECK(job.decision.is_hung());
  }
}

TEST_CASE("the last look comes once, before the timeout") {
  Job job(4, {.period = Seconds(5), .timeout = Seconds(600)});
  job.train();
  const int first = job.until(Action::kLightLook, kWaits);
  job.decision.looked(Seen::kStands);
  const int second = job.until(Action::kBeforeTimeout, kWaits);
  CHECK((first + second) * 5 < 600);
  CHECK((first + second) * 5 >= 550);
  CHECK(job.until(Action::kNone, kWaits, 200) == 200);
}

TEST_CASE("a timeout of a minute leaves time for all of it") {
  Job job(2, {.period = Seconds(2), .timeout = Seconds(60)});
  job.train();
  const int first = job.until(Action::kLightLook, kPolls);
  CHECK(first * 2 <= 6);
  job.decision.looked(Seen::kStands);
  CHECK((first + job.until(Action::kBeforeTimeout, kPolls)) * 2 <= 50);
}

TEST_CASE("looks that find a job healthy become rarer") {
  Job job;
  job.train();
  int last = job.until(Action::kLightLook, kWaits);
  CHECK(job.decision.looked(Seen::kHealthy) == Action::kNone);
  for (int n = 0; n < 4; ++n) {
    const int next = job.until(Action::kLightLook, kWaits);
    CHECK(next > last);
    job.decision.looked(Seen::kHealthy);
    last = next;
  }
  for (int n = 0; n < 10; ++n) {  // but not rarer than the timeout allows
    CHECK(job.until(Action::kLightLook, kWaits) * 5 <= 300);
    job.decision.looked(Seen::kHealthy);
  }
}

TEST_CASE("looks that cost much are rarer") {
  constexpr DecisionSettings kLong{.timeout = Seconds(7200)};
  const auto looks_in_an_hour = [&](Seconds cost) {
    Job job(4, kLong);
    std::vector<int> at;
    for (int period = 1; period <= 720; ++period) {
      if (job.all(kWaits) != Action::kLightLook) continue;
      at.push_back(period);
      job.decision.looked(Seen::kHealthy, std::nullopt, cost);
    }
    return at;
  };
  const std::vector<int> cheap = looks_in_an_hour(Seconds(0.02)), dear = looks_in_an_hour(Seconds(0.8));
  CHECK(cheap.size() > 15);
  CHECK(static_cast<double>(dear.size()) * 0.8 < 4 * (1 + 0.0002 * 3600) + 0.8);
  REQUIRE(dear.size() >= 8);
  CHECK(std::equal(dear.begin(), dear.begin() + 5, cheap.begin()));
  // However dear, half of the timeout is the longest time without one.
  Job job(4, kLong);
  job.train();
  REQUIRE(job.until(Action::kLightLook, kWaits) == 2);
  job.decision.looked(Seen::kHealthy, std::nullopt, Seconds(1000));
  CHECK(job.until(Action::kLightLook, kWaits) == 720);
}

TEST_CASE("dear looks at a job of unknown rhythm are repeated soon, unless two in a row were healthy") {
  const auto next_two = [&](Seen seen, Seconds cost) {
    Job unknown(4, {.timeout = Seconds(7200)});
    REQUIRE(unknown.pass_early_looks(kComputes) > 0);
    std::vector<int> after;
    for (int n = 0; n < 2; ++n) {
      unknown.decision.looked(seen, std::nullopt, cost);
      after.push_back(unknown.until(Action::kLightLook, kComputes));
    }
    return after;
  };
  CHECK(next_two(Seen::kHealthy, Seconds(1)) == std::vector{2, 2});
  CHECK(next_two(Seen::kUndecided, Seconds(1000)) == std::vector{2, 2});
  CHECK(next_two(Seen::kHealthy, Seconds(4.5)).front() > 2);
}

TEST_CASE("a dear look at the start puts the next one off for half of the timeout at most") {
  for (const Seen seen : {Seen::kHealthy, Seen::kUndecided})
    for (const bool trains : {false, true}) {
      Job job(4, {.timeout = Seconds(600)});
      REQUIRE(job.until(Action::kLightLook, kComputes) == 2);
      job.decision.looked(seen, std::nullopt, Seconds(1000));
      if (trains) job.train();
      const int next = job.until(Action::kLightLook, kComputes);
      CHECK(next > 0);
      CHECK(next * 5 <= 300);
    }
}

TEST_CASE("after two looks that found the job healthy, dear ones are rarer") {
  // The third early one is left out, and the one at the end of the minute is not.
  for (const Seen second : {Seen::kHealthy, Seen::kUndecided}) {
    Job job(4, {.timeout = Seconds(7200)});
    int periods = job.until(Action::kLightLook, kComputes);
    job.decision.looked(Seen::kHealthy, std::nullopt, Seconds(1.5));
    periods += job.until(Action::kLightLook, kComputes);
    job.decision.looked(second, std::nullopt, Seconds(1.5));
    periods += job.until(Action::kLightLook, kComputes);
    CHECK(periods == (second == Seen::kHealthy ? 12 : 8));
  }
  // The longest time without one is three quarters of the timeout, but half where little would be left.
  for (const int timeout : {600, 240}) {
    Job job(4, {.timeout = Seconds(timeout)});
    job.train();
    REQUIRE(job.until(Action::kLightLook, kComputes) > 0);
    for (const double part : {0.5, timeout == 600 ? 0.75 : 0.5}) {
      job.decision.looked(Seen::kHealthy, std::nullopt, Seconds(1000));
      CHECK(job.until(Action::kLightLook, kComputes) * 5 == part * timeout);
    }
    // A job that has moved since then is another matter.
    job.decision.looked(Seen::kHealthy, std::nullopt, Seconds(1000));
    job.train(1);
    CHECK(job.until(Action::kLightLook, kComputes) * 5 < 0.6 * timeout);
  }
}

TEST_CASE("a pause that the job has made before is no hang") {
  Job job;
  job.train();
  CHECK(job.until(Action::kLightLook, kWaits) == 2);
  job.decision.looked(Seen::kHealthy);
  for (int n = 0; n < 3; ++n) job.all(kWaits);
  job.train();
  for (int n = 0; n < 5; ++n) CHECK(job.all(kWaits) == Action::kNone);
  job.train();
  CHECK(job.until(Action::kLightLook, kWaits) > 5);
}

TEST_CASE("one rank that moves data keeps the job from standing") {
  Job job;
  job.train();
  CHECK(job.until(Action::kNone, {kTrains, kWaits, kWaits, kWaits}, 500) == 500);
}

TEST_CASE("one rank that computes while the others wait has longer, and then is looked at") {
  Job job;
  job.train();
  const int periods = job.until(Action::kLightLook, {kComputes, kWaits, kWaits, kWaits});
  // With reads and writes to compare, a rank that only computes spins: all of it stands.
  CHECK(periods <= 3);
  Job computing;
  computing.find_healthy_at_start(kComputes);
  for (int n = 0; n < 20; ++n) REQUIRE(computing.all(kComputes) == Action::kNone);
  const int longer = computing.until(Action::kLightLook, {kComputes, kWaits, kWaits, kWaits});
  CHECK(longer * 5 >= 150);
  CHECK(longer * 5 <= 300);
  CHECK(computing.decision.looked(Seen::kUndecided) == Action::kNone);
}

TEST_CASE("a job of which the counters say nothing is looked at before its timeout") {
  Job job;
  const int first = job.pass_early_looks(kComputes);
  CHECK(first * 5 >= 60);
  CHECK(first * 5 <= 70);
  // A look may find it at work by chance.
  for (int n = 0; n < 2; ++n) {
    job.decision.looked(Seen::kHealthy);
    CHECK(job.until(Action::kLightLook, kComputes) == 2);
  }
  job.decision.looked(Seen::kHealthy);
  CHECK(job.until(Action::kLightLook, kComputes) * 5 >= 150);
  job.decision.looked(Seen::kHealthy);
  for (int n = 0; n < 5; ++n) {
    CHECK(job.until(Action::kLightLook, kComputes) * 5 <= 300);
    job.decision.looked(Seen::kHealthy);
  }
}

TEST_CASE("a job that stands from its beginning is looked at after a minute") {
  Job job;
  const int periods = job.pass_early_looks(kWaits);
  CHECK(periods * 5 >= 60);
  CHECK(periods * 5 <= 70);
  CHECK(job.decision.looked(Seen::kUndecided) == Action::kFullLooks);
  // Event loops that wake by a timer, one rank that polls, and a start that has read its modules.
  for (const Work& other : {Work{0.004, 300, 0, 0}, kPolls}) {
    Job started;
    for (int n = 0; n < 3; ++n) REQUIRE(started.all({1, 500, 3000, 10}) == Action::kNone);
    const int after = started.pass_early_looks({other, kWaits, kWaits, kWaits});
    CHECK(after * 5 >= 60);
    CHECK(after * 5 <= 70);
  }
}

TEST_CASE("a job that several looks show to hang is noticed as soon as it has stood for a minute from its beginning") {
  Job job;
  int periods = 0;
  const auto look = [&](const Work& work, Seen seen, std::optional<std::size_t> places = std::nullopt) {
    periods += job.until(Action::kLightLook, work);
    CHECK(job.decision.looked(seen, places) == Action::kNone);
    CHECK_FALSE(job.decision.is_hung());
  };
  SECTION("ranks that poll, and are where they were") {
    for (int n = 0; n < kEarlyLooks; ++n) look(kPolls, Seen::kUndecided, 7);
    CHECK(periods * 5 < 60);
    periods += job.until(Action::kFullLooks, kPolls);
    CHECK(periods * 5 == 60);
    CHECK(job.decision.is_hung());
    CHECK(job.decision.stood_for() == Seconds(60));
  }
  SECTION("ranks that sleep") {
    look(kWaits, Seen::kHealthy);
    look(kWaits, Seen::kHealthy);
    look(kWaits, Seen::kUndecided);
    CHECK(periods + job.until(Action::kFullLooks, kWaits) == 12);
  }
  SECTION("two looks in a row are enough") {
    look(kPolls, Seen::kHealthy);
    look(kPolls, Seen::kStands);
    look(kPolls, Seen::kStands);
    CHECK(periods + job.until(Action::kFullLooks, kPolls) == 12);
  }
  SECTION("one is enough where looks take long") {
    periods = job.until(Action::kLightLook, kPolls);
    for (; periods < 9; ++periods) job.all(kPolls);  // while that look goes on
    CHECK(job.decision.looked(Seen::kStands) == Action::kNone);
    CHECK(periods + job.until(Action::kFullLooks, kPolls) == 12);
  }
  SECTION("ranks that poll, and then sleep") {
    look(kPolls, Seen::kStands);
    look(kPolls, Seen::kStands);
    CHECK(periods * 5 < 40);
    while (++periods < 11) CHECK(job.all(kPolls) == Action::kNone);
    CHECK(job.all(kWaits) == Action::kNone);
    CHECK(job.all(kWaits) == Action::kFullLooks);
    CHECK(job.decision.stood_for() == Seconds(60));
    CHECK(job.decision.looked(Seen::kStands) == Action::kFullLooks);  // the first full look
    CHECK(job.decision.stood_for() == Seconds(60));
  }
  SECTION("one rank of four that computes meanwhile shows no progress") {
    look(kWaits, Seen::kStands);
    look(kWaits, Seen::kStands);
    CHECK(job.step({kComputes, kWaits, kWaits, kWaits}) == Action::kNone);
    CHECK(periods + 1 + job.until(Action::kFullLooks, kWaits) == 12);
  }
  SECTION("only the last early look counts") {
    look(kPolls, Seen::kStands);
    look(kPolls, Seen::kHealthy);
    look(kPolls, Seen::kHealthy);
    CHECK(periods + job.until(Action::kLightLook, kPolls) == 12);
    CHECK(job.decision.looked(Seen::kUndecided, 7) == Action::kNone);
  }
  SECTION("a job that is less still since is looked at once more") {
    for (int n = 0; n < 2; ++n) look(kWaits, Seen::kStands);
    CHECK(periods + job.until(Action::kLightLook, kComputes) == 12);
    CHECK(job.decision.looked(Seen::kHealthy) == Action::kNone);
    CHECK(job.until(Action::kLightLook, kComputes) > 1);
  }
  SECTION("one that goes on is not") {
    for (int n = 0; n < 2; ++n) look(kWaits, Seen::kStands);
    job.train(100);
  }
  SECTION("ranks that poll, and then move data") {
    for (int n = 0; n < kEarlyLooks; ++n) look(kPolls, Seen::kUndecided, 7);
    const Work moves{.cpu = 1, .runs = 12, .bytes = 5e6};
    CHECK(job.all(moves) == Action::kNone);
    CHECK(job.until(Action::kLightLook, kPolls) * 5 >= 60);
    CHECK(job.decision.looked(Seen::kHealthy) == Action::kNone);
  }
  SECTION("it goes on once, and its minute begins anew") {
    for (int n = 0; n < 2; ++n) look(kWaits, Seen::kStands);
    REQUIRE(job.all(kTrains) == Action::kNone);
    for (int n = 0; n < 2; ++n) look(kWaits, Seen::kStands);
    CHECK(job.until(Action::kFullLooks, kWaits) * 5 >= 10);
    CHECK(job.decision.stood_for() >= Seconds(60));
  }
}

TEST_CASE("a job whose ranks are where they were in the undecided look before stands") {
  Job job;
  job.pass_early_looks(kPolls);
  CHECK(job.decision.looked(Seen::kUndecided, 7) == Action::kNone);
  CHECK(job.until(Action::kLightLook, kPolls) == 2);
  SECTION("they are") { CHECK(job.decision.looked(Seen::kUndecided, 7) == Action::kFullLooks); }
  SECTION("they are not, twice, and the next look comes later") {
    CHECK(job.decision.looked(Seen::kUndecided, 8) == Action::kNone);
    CHECK(job.until(Action::kLightLook, kPolls) == 2);
    CHECK(job.decision.looked(Seen::kUndecided, 9) == Action::kNone);
    CHECK(job.until(Action::kLightLook, kPolls) * 5 >= 150);
    CHECK(job.decision.looked(Seen::kUndecided, 9) == Action::kFullLooks);
  }
  SECTION("that is not known of the second look") {
    CHECK(job.decision.looked(Seen::kUndecided) == Action::kNone);
    CHECK(job.until(Action::kLightLook, kPolls) == 2);
    CHECK(job.decision.looked(Seen::kUndecided) == Action::kNone);
  }
}

TEST_CASE("a job that never moves, and now and then half stands, is not looked at all the time") {
  Job job;
  job.pass_early_looks(kComputes);
  job.decision.looked(Seen::kHealthy);
  int looks = 1;
  for (int n = 0; n < 360; ++n) {  // half an hour
    const bool half = n % 4 < 2;
    const Action action = half ? job.step({kComputes, kWaits, kWaits, kWaits}) : job.all(kComputes);
    if (action != Action::kLightLook) continue;
    ++looks;
    job.decision.looked(Seen::kHealthy);
  }
  CHECK(looks >= 4);
  CHECK(looks <= 14);
}

TEST_CASE("after a hang the job is watched again") {
  Job job;
  job.train();
  job.until(Action::kLightLook, kWaits);
  job.decision.looked(Seen::kStands);
  job.train();
  CHECK_FALSE(job.decision.is_hung());
  CHECK(job.until(Action::kLightLook, kWaits) <= 10);
}

TEST_CASE("a rank that ends is reported once, and the end of all of them") {
  Job job(3);
  job.train();
  job.end(1);
  CHECK(job.all(kTrains) == Action::kRankEnded);
  CHECK(job.all(kTrains) == Action::kNone);
  job.end(0);
  job.end(2);
  CHECK(job.all(kTrains) == Action::kAllEnded);
}

TEST_CASE("an end that is known before the next reading is reported once") {
  Job job(2);
  job.train();
  CHECK(job.decision.ended(1) == Action::kRankEnded);
  CHECK(job.decision.ended(1) == Action::kNone);
  CHECK(job.decision.ended(7) == Action::kNone);
  job.end(1);
  CHECK(job.all(kTrains) == Action::kNone);
  CHECK(job.decision.ended(0) == Action::kAllEnded);
}

TEST_CASE("full looks that find the job healthy end the suspicion") {
  Job job;
  job.train();
  const int first = job.until(Action::kLightLook, kWaits);
  CHECK(job.decision.looked(Seen::kStands) == Action::kFullLooks);
  CHECK(job.decision.looked(Seen::kHealthy) == Action::kNone);
  CHECK_FALSE(job.decision.is_hung());
  CHECK(job.until(Action::kLightLook, kWaits) > first);
}

TEST_CASE("a full look shows by the same rules as a light one that the job hangs") {
  Job job;
  job.pass_early_looks(kPolls);
  SECTION("it is not sure of what the light look has seen") {
    CHECK(job.decision.looked(Seen::kStands) == Action::kFullLooks);
    CHECK(job.decision.looked(Seen::kUndecided, 7) == Action::kNone);
    CHECK_FALSE(job.decision.is_hung());
    CHECK(job.until(Action::kLightLook, kPolls) == 2);
    CHECK(job.decision.looked(Seen::kUndecided, 7) == Action::kFullLooks);
  }
  SECTION("the ranks are still there") {
    CHECK(job.decision.looked(Seen::kUndecided, 7) == Action::kNone);
    CHECK(job.until(Action::kLightLook, kPolls) == 2);
    CHECK(job.decision.looked(Seen::kUndecided, 7) == Action::kFullLooks);
    CHECK(job.decision.looked(Seen::kUndecided, 7) == Action::kFullLooks);
    CHECK(job.decision.is_hung());
  }
}

TEST_CASE("ranks that come later are ranks of the job") {
  Decision decision({});
  Reading reading{Seconds(0), 1, {{.pid = 1, .start_ticks = 1, .rank = 0}}};
  decision.next(reading);
  reading.at = Seconds(5);
  reading.ranks = 2;
  reading.processes.push_back({.pid = 2, .start_ticks = 3, .rank = 1});
  CHECK(decision.next(reading) == Action::kNone);
  reading.at = Seconds(10);
  reading.processes[1].ended = true;
  CHECK(decision.next(reading) == Action::kRankEnded);
}

}  // namespace
}  // namespace rankstacks::watch
