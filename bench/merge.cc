// Measures what the answers of many nodes cost the machine that asks them, on a saved report that is multiplied.
//
//     zcat fixtures/nccl/data-loader.json.gz | build/bench_merge [NODES] [RANKS] [THREADS] [STACKS] [PAGE]
//
// Makes an answer as each of NODES (512) has it, with RANKS (8) of THREADS (30), reads and merges all of them on one
// core, one after another, as `rankstacks job` does, and analyses them. Addresses differ from rank to rank, as in a
// real job; in very large ones nodes do not send them. With STACKS there are about so many different ones: the threads
// of a rank are called from other functions of the report than those of other ranks. Child processes are repeated as
// they are, with each rank. Answers of the same node as JSON text are read as well, 64 of them, for comparison. PAGE:
// the report as HTML is written there.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "analyzers/analysis.h"
#include "report/compact_form.h"
#include "report/html_report.h"
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
  if (ways < 2 || of.size() < 2) return;
  // Ranks that follow one another differ, and each way is taken by about as many.
  const std::size_t way = rank * 2654435761u % ways;
  for (const std::size_t which : {way % of.size(), (way / of.size() + t) % of.size()})
    thread.frames.push_back(frames.intern(of[static_cast<FrameId>(which)]));
}

// The processes of a node as those of node `node`, which has `ranks_per_node` of the `world`.
JobSnapshot node_of(const JobSnapshot& processes, std::size_t node, std::size_t ranks_per_node, std::size_t world,
                    std::size_t ways, const FrameTable& callers) {
  JobSnapshot job = processes;
  for (RankSnapshot& process : job.ranks) {
    process.host = fmt::format("node-{}", node);
    if (process.pid_space) process.pid_space->boot_id = process.host;
    if (process.kind != RankKind::kRank) continue;
    *process.rank += static_cast<int>(node * ranks_per_node);
    process.world_size = static_cast<int>(world);
  }
  FrameTable frames;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const auto renumber = [&](FrameId& id) {
      Frame frame = job.frames[id];
      if (frame.kind == FrameKind::kNative) frame.address += (node * job.ranks.size() + r) << 12;
      id = frames.intern(std::move(frame));
    };
    for (ThreadSnapshot& thread : job.ranks[r].threads) for_each_frame(thread, renumber);
    for (GpuSnapshot& gpu : job.ranks[r].gpus) for_each_frame(gpu, renumber);
  }
  for (RankSnapshot& process : job.ranks)
    for (std::size_t t = 0; process.kind == RankKind::kRank && t < process.threads.size(); ++t)
      add_callers(process.threads[t], t, static_cast<std::size_t>(*process.rank), ways, callers, frames);
  job.frames = std::move(frames);
  return job;
}

// The report's first rank, with its children.
JobSnapshot first_rank_alone(const JobSnapshot& seed) {
  JobSnapshot job = seed;
  bool has_one = false;
  std::erase_if(job.ranks, [&](const RankSnapshot& process) {
    return process.kind == RankKind::kRank && !process.threads.empty() && std::exchange(has_one, true);
  });
  return job;
}

std::string number_at(int argc, char** argv, int at, const char* otherwise) { return argc > at ? argv[at] : otherwise; }

// Writes the answers of all nodes, one after another, each behind its size. In a process of its own: what the whole job
// takes before it is packed is no memory of the machine that asks.
void make_answers(const JobSnapshot& seed, std::size_t nodes, std::size_t ranks, std::size_t threads,
                  std::size_t stacks, std::FILE* into) {
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  const JobSnapshot waiting = first_rank_alone(seed);
  for (std::size_t node = 0; node < nodes; ++node) {
    // The first node has all of the report's ranks, the others only that which waits.
    JobSnapshot one = node_of(testing::many_ranks(node == 0 ? seed : waiting, ranks, threads, {}, true), node, ranks,
                              nodes * ranks, stacks / threads, seed.frames);
    if (nodes * ranks > report::JobMerger::kMaxRanksWithAddresses) report::drop_addresses(one);
    std::string json = report::json_part(one, analyzers::analyze(one));
    if (texts.size() < kTexts) texts.push_back(json);
    const std::string answer = *report::pack(report::as_compact_form(std::move(json), report::kMaxReportDepth),
                                             report::Packing::kZstd, "answer");
    const std::size_t size = answer.size();
    std::fwrite(&size, sizeof size, 1, into);
    std::fwrite(answer.data(), 1, size, into);
    bytes += size;
  }
  fmt::print("{} ranks of {} threads on {} nodes; {:.1f} kB an answer\n", nodes * ranks, threads, nodes,
             static_cast<double>(bytes) / 1000 / static_cast<double>(nodes));
  const double begin = now();
  for (const std::string& json : texts) (void)report::read_json_report(json, "text");
  fmt::print("read as text       {:8.3f} ms a node\n", (now() - begin) * 1000 / static_cast<double>(texts.size()));
}

// The next of them, as it comes from a node; empty: that was the last.
std::string next_answer(std::FILE* from) {
  std::size_t size = 0;
  if (std::fread(&size, sizeof size, 1, from) != 1) return {};
  std::string answer(size, '\0');
  return std::fread(answer.data(), 1, size, from) == size ? answer : std::string();
}

// Whether they were made.
bool made_answers(const std::string& text, std::size_t nodes, std::size_t ranks, std::size_t threads,
                  std::size_t stacks, std::FILE* into) {
  const pid_t child = fork();
  if (child == 0) {
    const auto seed = report::read_json_report(text, "stdin");
    const bool usable = seed && nodes != 0 && ranks != 0 && threads != 0 &&
                        std::any_of(seed->ranks.begin(), seed->ranks.end(), [](const RankSnapshot& r) {
                          return r.kind == RankKind::kRank && !r.threads.empty();
                        });
    if (usable) make_answers(*seed, nodes, ranks, threads, stacks, into);
    else fmt::print(stderr, "bench_merge: a saved report is expected on stdin, and numbers above 0\n");
    const bool written = std::fflush(into) == 0 && std::fflush(stdout) == 0;
    _exit(!usable ? 2 : written ? 0 : 1);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t nodes = std::strtoul(number_at(argc, argv, 1, "512").c_str(), nullptr, 10),
                    ranks = std::strtoul(number_at(argc, argv, 2, "8").c_str(), nullptr, 10),
                    threads = std::strtoul(number_at(argc, argv, 3, "30").c_str(), nullptr, 10),
                    stacks = std::strtoul(number_at(argc, argv, 4, "0").c_str(), nullptr, 10);
  std::FILE* answers = std::tmpfile();
  if (answers == nullptr ||
      !made_answers(std::string(std::istreambuf_iterator<char>(std::cin), {}), nodes, ranks, threads, stacks, answers))
    return 2;
  std::rewind(answers);

  double begin = now();
  report::JobMerger merger;
  for (std::string answer = next_answer(answers); !answer.empty(); answer = next_answer(answers)) {
    auto one = report::read_json_report(*report::unpack(answer, std::size_t{1} << 30, "answer"), "answer");
    if (!one) {
      fmt::print(stderr, "bench_merge: {}\n", one.error().what);
      return 1;
    }
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
  fmt::print("most memory        {:8.2f} GB\n", static_cast<double>(used.ru_maxrss) / 1e6);
  fmt::print("verdict: {}\n", analysis.verdict.summary.substr(0, 160));
  if (argc > 5) {
    begin = now();
    const std::string page = report::html_report(job, analysis, {});
    std::ofstream(argv[5]) << page;
    fmt::print("as a page          {:8.2f} s, {:.1f} MB\n", now() - begin, static_cast<double>(page.size()) / 1e6);
  }
  return 0;
}
