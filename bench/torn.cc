// Samples processes that change between two known states as often as they can, and counts the stacks that no moment of
// the process has had.
//
//     build/bench_torn [--samples 100000] [--stop auto|never|always] [BEHAVIOUR...]
//
// Without names: all behaviours, each with auto and never. The samples are taken by the capture's own code. Prints
// a table in Markdown; exit status 1 if a stack was wrong, 2 if a name is unknown.
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/two_states.h"

using namespace rankstacks;

int main(int argc, char** argv) {
  const std::pair<std::string, target::StopPolicy> kPolicies[] = {{"auto", target::StopPolicy::kAuto},
                                                                  {"never", target::StopPolicy::kNever},
                                                                  {"always", target::StopPolicy::kAlways}};
  int times = 100'000;
  std::string stop;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--samples" && i + 1 < argc) times = std::atoi(argv[++i]);
    else if (word == "--stop" && i + 1 < argc) stop = argv[++i];
    else names.push_back(word);
  }
  for (const std::string& name : names)
    if (std::none_of(testing::behaviours().begin(), testing::behaviours().end(),
                     [&](const testing::Behaviour& behaviour) { return behaviour.name == name; })) {
      fmt::print(stderr, "bench_torn: no behaviour is called {}\n", name);
      return 2;
    }
  fmt::print(
      "| process | --stop | samples | without a stop | some stopped | all stopped | stacks in one state | in the other "
      "| in neither | ran, left out | incomplete | wrong | ms of a sample |\n"
      "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
  bool any = false;
  for (const auto& behaviour : testing::behaviours()) {
    if (!names.empty() && std::find(names.begin(), names.end(), behaviour.name) == names.end()) continue;
    for (const auto& [word, policy] : kPolicies) {
      if (stop.empty() ? policy == target::StopPolicy::kAlways : stop != word) continue;
      const auto begin = std::chrono::steady_clock::now();
      const testing::Samples samples = testing::take_samples(behaviour, policy, times);
      const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() /
                        std::max(1, times);
      fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.2f} |\n", behaviour.what, word,
                 samples.done, samples.without_stop, samples.partly, samples.stopped, samples.seen[0], samples.seen[1],
                 samples.between, samples.left_out, samples.incomplete, samples.wrong.size(), ms);
      for (std::size_t i = 0; i < std::min<std::size_t>(samples.wrong.size(), 10); ++i)
        fmt::print(stderr, "{}, {}: {}\n", behaviour.name, word, samples.wrong[i]);
      std::fflush(stdout);
      any |= !samples.wrong.empty();
    }
  }
  return any ? 1 : 0;
}
