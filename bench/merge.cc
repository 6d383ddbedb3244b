// Measures what the answers of many nodes cost the machine that asks them, on a saved report that is multiplied.
//
//     zcat fixtures/nccl/data-loader.json.gz | build/bench_merge [NODES] [RANKS] [THREADS] [STACKS]
//
// Makes an answer as each of NODES (512) has it, with RANKS (8) of THREADS (30), reads and merges all of them on one
// core as `rankstacks job` does, and analyses them. Addresses differ from rank to rank, as in a real job; in very large
// ones nodes do not send them. With STACKS
// there are about so many different ones: the threads of a rank are called from other functions of the report than
// those of other ranks. Answers of the same node as JSON text are read as well, 64 of them, for comparison.
#include <sys/resource.h>

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "analyzers/analysis.h"
#include "report/compact_form.h"
#include "report/packed.h"
#include "report/report.h"
#include "tests/support/many_ranks.h"

using namespace rankstacks;

namespace {

constexpr std::size_t kTexts = 64;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Another way for thread `t` to come to where it is: two callers, one of `ways`, of the frames of the report.
void add_callers(ThreadSnapshot& thread, std::size_t t, std::size_t rank, std::size_t ways, const FrameTable& of,
                 FrameTable& frames) {
  // Ranks that follow one another differ, and each way is taken by about as many.
  const std::size_t way = rank * 2654435761u % ways;
  if (ways < 2 || of.size() < 2) return;
  for (const std::size_t which : {way % of.size(), (way / of.size() + t) % of.size()})
    thread.frames.push_back(frames.intern(of[static_cast<FrameId>(which)]));
}

// The job's ranks, in one report for each node.
JobSnapshot node_of(const JobSnapshot& ranks, std::size_t node, std::size_t world, std::size_t ways,
                    const FrameTable& callers) {
  JobSnapshot job = ranks;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    RankSnapshot& rank = job.ranks[r];
    rank.rank = static_cast<int>(node * job.ranks.size() + r);
    rank.world_size = static_cast<int>(world);
    rank.host = fmt::format("node-{}", node);
  }
  FrameTable frames;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    for (ThreadSnapshot& thread : job.ranks[r].threads)
      for_each_frame(thread, [&](FrameId& id) {
        Frame frame = job.frames[id];
        if (frame.kind == FrameKind::kNative) frame.address += (node * job.ranks.size() + r) << 12;
        id = frames.intern(std::move(frame));
      });
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    for (std::size_t t = 0; t < job.ranks[r].threads.size(); ++t)
      add_callers(job.ranks[r].threads[t], t, node * job.ranks.size() + r, ways, callers, frames);
  job.frames = std::move(frames);
  return job;
}

std::string number_at(int argc, char** argv, int at, const char* otherwise) { return argc > at ? argv[at] : otherwise; }

}  // namespace

int main(int argc, char** argv) {
  const std::size_t nodes = std::strtoul(number_at(argc, argv, 1, "512").c_str(), nullptr, 10),
                    ranks = std::strtoul(number_at(argc, argv, 2, "8").c_str(), nullptr, 10),
                    threads = std::strtoul(number_at(argc, argv, 3, "30").c_str(), nullptr, 10),
                    stacks = std::strtoul(number_at(argc, argv, 4, "0").c_str(), nullptr, 10);
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const auto seed = report::read_json_report(text, "stdin");
  if (!seed || nodes == 0 || ranks == 0 || threads == 0 ||
      std::none_of(seed->ranks.begin(), seed->ranks.end(),
                   [](const RankSnapshot& r) { return r.kind == RankKind::kRank && !r.threads.empty(); })) {
    fmt::print(stderr, "bench_merge: a saved report is expected on stdin, and numbers above 0\n");
    return 2;
  }
  // Of the ranks that wait, but on the first node, which has all.
  std::vector<std::string> answers, texts;
  std::size_t bytes = 0;
  for (std::size_t node = 0; node < nodes; ++node) {
    JobSnapshot many = testing::many_ranks(*seed, ranks, threads,
                                           node == 0 ? std::optional<std::size_t>() : std::optional<std::size_t>(0));
    if (node != 0)
      for (RankSnapshot& rank : many.ranks) {
        rank.threads = many.ranks.front().threads;
        for (std::size_t t = 0; t < rank.threads.size(); ++t) rank.threads[t].tid = rank.pid + static_cast<Tid>(t);
      }
    JobSnapshot one = node_of(many, node, nodes * ranks, stacks / threads, seed->frames);
    if (nodes * ranks > report::JobMerger::kMaxRanksWithAddresses) report::drop_addresses(one);
    std::string json = report::json_part(one, analyzers::analyze(one));
    if (texts.size() < kTexts) texts.push_back(json);
    answers.push_back(*report::pack(report::as_compact_form(std::move(json), report::kMaxReportDepth),
                                    report::Packing::kZstd, "answer"));
    bytes += answers.back().size();
  }
  fmt::print("{} ranks of {} threads on {} nodes; {:.1f} kB an answer\n", nodes * ranks, threads, nodes,
             static_cast<double>(bytes) / 1000 / static_cast<double>(nodes));
  double begin = now();
  for (const std::string& json : texts) (void)report::read_json_report(json, "text");
  fmt::print("read as text       {:8.3f} ms a node\n", (now() - begin) * 1000 / static_cast<double>(texts.size()));
  texts.clear();

  begin = now();
  report::JobMerger merger;
  for (const std::string& answer : answers) {
    auto one = report::read_json_report(*report::unpack(answer, std::size_t{1} << 30, "answer"), "answer");
    if (!one) return 1;
    merger.add(*std::move(one));
  }
  const JobSnapshot job = merger.take();
  const double read = now() - begin;
  fmt::print("read and merged    {:8.3f} ms a node, {:.2f} s in all\n", read * 1000 / static_cast<double>(nodes), read);
  begin = now();
  const analyzers::Analysis analysis = analyzers::analyze(job);
  fmt::print("analysed           {:8.2f} s\n", now() - begin);
  begin = now();
  report::text_report(job, analysis, {});
  fmt::print("as text            {:8.2f} s\n", now() - begin);
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  fmt::print("most memory        {:8.2f} GB\nverdict: {}\n", static_cast<double>(used.ru_maxrss) / 1e6,
             analysis.verdict.summary.substr(0, 160));
  return 0;
}
