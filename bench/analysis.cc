// Measures how long the analysis of a large job takes, on a saved report that is multiplied.
//
//     zcat fixtures/nccl/data-loader.json.gz | build/bench_analysis [RANKS] [THREADS]
//
// The report's ranks are repeated under new numbers until there are RANKS (1024), and the threads of each rank until it
// has THREADS (30). Addresses differ from rank to rank, as in a real job. Prints the time of each part, the best of
// five.
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "analyzers/analysis.h"
#include "analyzers/rank_state.h"
#include "model/families.h"
#include "report/report.h"
#include "tests/support/many_ranks.h"

using namespace rankstacks;

namespace {

template <class F>
void measure(const char* what, F&& part) {
  double best = 1e9;
  for (int n = 0; n < 5; ++n) {
    const auto begin = std::chrono::steady_clock::now();
    part();
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  fmt::print("{:<28} {:8.1f} ms\n", what, best);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t ranks = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1024,
                    threads = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 30;
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const auto seed = report::read_json_report(text, "stdin");
  if (!seed || ranks == 0 || threads == 0 ||
      std::none_of(seed->ranks.begin(), seed->ranks.end(),
                   [](const RankSnapshot& r) { return r.kind == RankKind::kRank && !r.threads.empty(); })) {
    fmt::print(stderr, "bench_analysis: a saved report is expected on stdin, and numbers above 0\n");
    return 2;
  }
  const JobSnapshot job = testing::many_ranks(*seed, ranks, threads);
  fmt::print("{} ranks of {} threads, {} different frames\n", ranks, threads, job.frames.size());
  const auto roles = analyzers::assign_roles(job);
  const auto clusters = analyzers::cluster_threads(job, roles);
  const Families families(job);
  measure("families", [&] { (void)Families(job); });
  measure("roles", [&] { analyzers::assign_roles(job); });
  measure("clusters", [&] { analyzers::cluster_threads(job, roles); });
  measure("states", [&] { analyzers::states_of(job, roles, clusters, families); });
  measure("analysis in all", [&] { analyzers::analyze(job); });
  const analyzers::Analysis analysis = analyzers::analyze(job);
  measure("text report", [&] { report::text_report(job, analysis, {}); });
  fmt::print("verdict: {}: {}\n", analyzers::to_string(analysis.verdict.status),
             analysis.verdict.summary.substr(0, 160));
  return 0;
}
