#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>

#include "report/markdown_graph.h"
#include "report/markdown_report.h"
#include "report/markdown_sections.h"
#include "report/markdown_text.h"
#include "report/report.h"
#include "report/report_file.h"
#include "support/literal_job.h"
#include "support/many_ranks.h"

using namespace rankstacks;
using namespace rankstacks::report;
using namespace rankstacks::testing;

namespace {

std::string markdown(const JobSnapshot& job, std::size_t max_bytes = 65536) {
  return markdown_report(job, analyzers::analyze(job), {.max_bytes = max_bytes});
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

LiteralJob hung_job() {
  LiteralJob made;
  for (int r = 0; r < 4; ++r) made.rank(r, 4, r == 2 ? in_getitem() : waits_in_backward());
  return made;
}

JobSnapshot saved(const std::filesystem::path& path) {
  return *read_json_report(*read_report_file(path.string()), path.string());
}

// The text without blocks and spans of code: nothing of the job may be in it that means anything.
std::string outside_of_code(const std::string& text) {
  std::string out, line;
  std::string fence;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    line = text.substr(at, end - at);
    at = end + 1;
    const std::string ticks = line.substr(0, std::min(line.find_first_not_of('`'), line.size()));
    if (fence.empty() && ticks.size() >= 3) fence = ticks;
    else if (!fence.empty() && line == fence) fence.clear();
    else if (fence.empty()) out += line + '\n';
  }
  return std::regex_replace(out, std::regex("`[^`\n]+`"), "");
}

}  // namespace

TEST_CASE("sentences: plain words stay, all else is code") {
  CHECK(markdown_sentence("rank 2 is in its data pipeline (Set.get at x.py:40, blocked in read(fd 1 -> /a b)) now") ==
        "rank 2 is in its data pipeline (`Set.get` at `x.py:40`, blocked in `read(fd 1 -> /a b)`) now");
  CHECK(markdown_sentence("in mov (%rdi,%rax,8),%xmm0 with rdi=0x0 (a note), (see b).") ==
        "in mov `(%rdi,%rax,8),%xmm0` with `rdi=0x0` (a note), (see b).");
  CHECK(markdown_sentence("skew 16.7 ms of 1.2.3, read(fd without end (a b) f(1, g(2) c)") ==
        "skew 16.7 ms of 1.2.3, `read(fd` without end (a b) `f(1`, `g(2)` c)");
  CHECK(markdown_sentence("ranks 0-1,3 wait in DDP's gradient all-reduce") ==
        "ranks 0-1,3 wait in DDP's gradient all-reduce");
  CHECK(
      markdown_sentence("@bob #1 GH-1 PROJ-12 https://x.y www.x.com a@b.c deadbeef 1234567 :smile: !2 <b> a*b") ==
      "`@bob` `#1` `GH-1` `PROJ-12` `https://x.y` `www.x.com` `a@b.c` `deadbeef` `1234567` `:smile`: `!2` `<b>` `a*b`");
  CHECK(markdown_sentence("_x_ ~~a~~ [a](b) \\ $x$ - + 1. # > |") ==
        "`_x_` `~~a~~` `[a](b)` `\\` `$x$` `-` `+` 1. `#` `>` `|`");
  CHECK(markdown_sentence("") == "");
  CHECK(markdown_sentence("a``b `x`") == "```a``b``` `` `x` ``");
}

TEST_CASE("sentences: an option, its value and the options behind it are one span") {
  CHECK(markdown_sentence("find it: --threads all --rank 3 shows every thread of this rank") ==
        "find it: `--threads all --rank 3` shows every thread of this rank");
  CHECK(markdown_sentence("look again (--threads all shows where it is), longer (--samples 40, --interval).") ==
        "look again (`--threads all` shows where it is), longer (`--samples 40`, `--interval`).");
  CHECK(markdown_sentence("look: --threads all shows where it is, with --gpu, or --samples 40; add --pids.") ==
        "look: `--threads all` shows where it is, with `--gpu`, or `--samples 40`; add `--pids`.");
  CHECK(markdown_sentence("name those of one (--pids, or its cores), or more samples (--samples 40)") ==
        "name those of one (`--pids`, or its cores), or more samples (`--samples 40`)");
  CHECK(markdown_sentence("--rank") == "`--rank`");
  // What a target may write there cannot leave the span, nor act behind it.
  CHECK(markdown_sentence("--x`y @bob") == "``--x`y`` `@bob`");
  CHECK(markdown_sentence("--rank @bob --rank #1") == "`--rank` `@bob` `--rank` `#1`");
  CHECK(markdown_sentence("--- -- --1") == "`---` `--` `--1`");
}

TEST_CASE("blocks: the fence is longer than any in the lines") {
  CHECK(markdown_block({"a", "b"}) == "```text\na\nb\n```\n");
  CHECK(markdown_block({"  ````", "/close", "```", "~~~"}) == "`````text\n  ````\n /close\n ```\n ~~~\n`````\n");
}

TEST_CASE("labels of Mermaid graphs have no characters that mean anything") {
  CHECK(mermaid_label("rank 0 in all_reduce (step at x.py:9)", 60) == "\"rank 0 in all_reduce (step at x.py:9)\"");
  CHECK(mermaid_label("\"]; click n0 <script> #35; `x` %%{init}%% @a", 60) ==
        "\"'], click n0 ‹script› ♯35, 'x' ％％(init)％％ ＠a\"");
}

TEST_CASE("cut between characters") {
  CHECK(cut_to_bytes("abc", 3) == "abc");
  CHECK(cut_to_bytes("abcdef", 5) == "ab…");
  CHECK(cut_to_bytes("äöü", 5) == "ä…");
}

TEST_CASE("a report: the verdict and its chain, versions, the job, the graph, the clusters; then sections") {
  const std::string text = markdown(hung_job().job);
  INFO(text);
  CHECK(text.starts_with("**CULPRIT:** rank 2 is in its data pipeline "));
  std::size_t at = 0;
  for (const std::string_view part :
       {"- **To do**: ", "- **Chain of waits**: rank 0 in", "- **Job**: 4 ranks on 1 host, 4 threads\n",
        "- **rankstacks**: 0.1.0", "- **Python**: 3.11.2\n", "```mermaid\ngraph LR\n", "stroke:#d00",
        "Main threads: 2 different stacks", "> 2 (1 rank)  ODD", "> 0-1,3 (3 ranks)",
        "<details><summary>Rank 2 in full</summary>", "<details><summary>All clusters</summary>",
        "<details><summary>How it was taken</summary>"}) {
    CAPTURE(part);
    at = text.find(part, at);
    REQUIRE(at != std::string::npos);
  }
  CHECK(has(text, "__getitem__"));
}

TEST_CASE("in the graph, ranks that wait alike are one node") {
  LiteralJob made;
  for (int r = 0; r < 64; ++r) made.rank(r, 64, r == 2 ? in_getitem() : waits_in_backward());
  const std::string graph = markdown_graph(made.job, analyzers::analyze(made.job));
  INFO(graph);
  CHECK(has(graph, "[\"ranks 0-1,3-63 in "));
  CHECK(std::count(graph.begin(), graph.end(), '[') <= 4);
}

TEST_CASE("a graph of more than 20 nodes is not drawn; the chain's is") {
  LiteralJob made;
  for (int r = 0; r < 64; ++r) {
    Stack stack = r == 2 ? in_getitem() : waits_in_backward();
    for (Frame& frame : stack)
      if (frame.kind == FrameKind::kPython && frame.line && frame.file && frame.file->starts_with("/home/u/"))
        frame.line = 100 + r;  // each waits at a place of its own
    made.rank(r, 64, stack);
  }
  const analyzers::Analysis analysis = analyzers::analyze(made.job);
  REQUIRE(analysis.waits.nodes().size() > kMaxNodes);
  const std::string graph = markdown_graph(made.job, analysis);
  CHECK(graph.starts_with("```mermaid\ngraph LR\n"));
  CHECK(std::count(graph.begin(), graph.end(), '[') <= static_cast<std::ptrdiff_t>(kMaxNodes));
}

TEST_CASE("sections share the room, and what is left out is said") {
  const std::vector<std::string> many(1000, std::string(90, 'x')), few(10, "y");
  const std::string text = markdown_sections({{"One", many, 4}, {"Two", few, 1}, {"Three", many, 4}}, 20'000);
  CHECK(text.size() <= 20'000);
  CHECK(text.size() > 18'000);
  CHECK(std::count(text.begin(), text.end(), 'y') >= 10);
  CHECK(has(text, " more lines left out"));
  CHECK(has(text, "the last lines of One, Three. `--max-bytes`"));
  CHECK(markdown_sections({{"One", many, 4}}, 500) ==
        "*Left out to keep the report short: all of One. `--max-bytes`, or `--format json`, shows them.*\n");
  CHECK_FALSE(has(markdown_sections({{"One", few, 4}}, 5000), "Left out"));
  SECTION("one that can be brief is, before it loses lines") {
    const std::vector<std::string> brief(100, "z");
    const std::string both = markdown_sections({{"One", many, 4}, {"Two", many, 4, brief}}, 20'000);
    CHECK(std::count(both.begin(), both.end(), 'z') == 100);
    CHECK(has(both, "the details of Two; the last lines of One. "));
    const std::string less = markdown_sections({{"Two", few, 1}, {"Three", many, 4, many}}, 9000);
    CHECK(has(less, " more lines left out"));
    CHECK(has(less, "short: the last lines of Three. "));
  }
}

TEST_CASE("where every rank has a stack of its own, each still has a line") {
  LiteralJob made;
  constexpr int kRanks = 400;
  for (int r = 0; r < kRanks; ++r) {
    Stack stack = r == 2 ? in_getitem() : waits_in_backward();
    for (Frame& frame : stack)
      if (frame.kind == FrameKind::kPython && frame.file && frame.file->starts_with("/home/u/")) frame.line = 100 + r;
    made.rank(r, kRanks, stack);
  }
  const std::string text = markdown(made.job);
  CHECK(text.size() <= 65536);
  const std::string part = text.substr(text.find("<summary>All clusters"));
  CHECK(std::count(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(part.find("</details>")), '\n') > kRanks);
  for (int r = 0; r < kRanks; ++r) CHECK(has(part, ":" + std::to_string(100 + r)));
  CHECK(has(text, "the details of All clusters"));
}

TEST_CASE("a report is never longer than asked for") {
  LiteralJob made = hung_job();
  for (RankSnapshot& rank : made.job.ranks)
    for (Tid tid = 5000; tid < 5100; ++tid)
      made.thread(rank, tid, std::string(200, '`'), {nat(std::string(300, '@')), nat("f" + std::to_string(tid))});
  for (const std::size_t most : {4096u, 6000u, 10'000u, 65536u, 1'000'000u}) {
    const std::string text = markdown(made.job, most);
    CAPTURE(most, text.size());
    CHECK(text.size() <= most);
    CHECK(has(text, "**CULPRIT:** rank 2"));
    CHECK(has(text, "> 2 (1 rank)"));
  }
}

TEST_CASE("hostile names stay where they are") {
  const std::string hostile[] = {"</details><script>alert(1)</script>",
                                 "@admin please see #1 and GH-2",
                                 "```\n/close\n```",
                                 "](http://evil) ![x](http://evil/x.png)",
                                 "https://evil.example www.evil.example",
                                 "deadbeefcafe0123",
                                 "<img src=x onerror=y>",
                                 "| a | b |\n|---|---|",
                                 "`` ` ```` ",
                                 "$$x$$ :tada: [^1] {{x}} &lt; &#64;admin"};
  LiteralJob made;
  for (int r = 0; r < 4; ++r) {
    Stack stack = r == 2 ? in_getitem() : waits_in_backward();
    for (const std::string& name : hostile)
      stack.insert(stack.end() - 1, py(name, "/x/" + name, 1)), stack.push_back(nat(name, name));
    RankSnapshot& rank = made.rank(r, 4, stack);
    rank.host = hostile[r];
    rank.command = {std::begin(hostile), std::end(hostile)};
    rank.python_version = hostile[r];
    rank.problems.push_back({hostile[r], hostile[r + 1], ProblemCode::kOther});
    rank.threads[0].name = hostile[r + 2];
    rank.threads[0].syscall = call("read", 3, hostile[r + 4]);
  }
  made.job.tool_version = hostile[0];
  made.job.captured_at = hostile[1];
  const std::string text = outside_of_code(markdown(made.job));
  INFO(text);
  for (const std::string_view part :
       {"@", "#", "http", "www", "GH-", "deadbeef", "alert", "onerror", "evil", "admin", "|", "$", "tada", "&", "["})
    CHECK_FALSE(has(text, part));
  CHECK_FALSE(std::regex_search(text, std::regex("<(?!/?(details|summary)>)")));
  CHECK_FALSE(std::regex_search(text, std::regex("\n/")));
}

TEST_CASE("reports of real jobs of 2, 256 and 4,096 ranks stay below 65,536 bytes, with culprit, chain and clusters") {
  const std::filesystem::path fixtures = RANKSTACKS_FIXTURES;
  for (const std::string name : {"data-loader", "lock", "asleep", "checkpoint", "exception"}) {
    const JobSnapshot seed = saved(fixtures / "nccl" / (name + ".json.gz"));
    const analyzers::Analysis small = analyzers::analyze(seed);
    REQUIRE_FALSE(small.verdict.suspects.empty());
    const std::size_t culprit = small.verdict.suspects.front().rank;
    std::size_t innocent = culprit;
    for (std::size_t r = 0; r < seed.ranks.size(); ++r)
      if (r != culprit && seed.ranks[r].kind == RankKind::kRank) innocent = r;
    for (const std::size_t ranks : {2u, 256u, 4096u}) {
      const JobSnapshot job = ranks == 2 ? seed : many_ranks(seed, ranks, 0, innocent);
      const analyzers::Analysis analysis = analyzers::analyze(job);
      const std::string text = markdown_report(job, analysis, {});
      CAPTURE(name, ranks, text.size(), text.substr(0, 3000));
      CHECK(text.size() < 65536);
      REQUIRE_FALSE(analysis.verdict.suspects.empty());
      const std::string who = std::to_string(*job.ranks[analysis.verdict.suspects.front().rank].rank);
      CHECK(text.starts_with("**CULPRIT:** rank " + who + " "));
      if (!analysis.verdict.chains.empty()) CHECK(has(text, "- **Chain of waits**: "));
      CHECK(has(text, "<details><summary>Rank " + who + " in full</summary>"));
      const std::string screen = text.substr(0, text.find("<details>"));
      CHECK_FALSE(has(screen, "more lines in the section"));
      for (const analyzers::Cluster& cluster : analysis.clusters)
        if (job.ranks[cluster.ranks.front()].kind == RankKind::kRank && cluster.role != known::Role::kMain)
          CHECK(has(screen, known::to_string(cluster.role)));
    }
  }
}

TEST_CASE("what NCCL says of its communicators is on the first screen") {
  const std::filesystem::path fixtures = RANKSTACKS_FIXTURES;
  const std::string text = markdown(saved(fixtures / "gpu_jobs" / "killed.json.gz"));
  CHECK(
      has(text.substr(0, text.find("<details>")),
          "\n- **By NCCL**: communicator of rank 0 and 1 other: ncclRemoteError at rank 0 (a connection to a peer has "
          "ended, or the network has failed)\n"));
}

TEST_CASE("versions and differences on the first screen, everything else in a section; hostile values are code") {
  LiteralJob made = hung_job();
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = made.job.ranks[r];
    rank.modules = {{"NCCL", "/v/libnccl.so.2", "aa11", r == 1 ? "2.27.3" : "2.28.9", VersionFrom::kText, "13.0"}};
    ProcessEnvironment& environment = rank.environment.emplace();
    environment.variables_known = true;
    environment.variables = {{"NCCL_DEBUG", "INFO"}};
    if (r == 3) environment.variables.emplace_back("TORCH_X", "@bob #1 </details> ```\n# x");
    environment.limits = {{"open-files", 1024, {}}};
  }
  const std::string text = markdown(made.job), first = text.substr(0, text.find("<details>"));
  CHECK(has(first, "- **Versions**: NCCL `2.28.9*`, CUDA 13.0, Python 3.11.2\n"));
  CHECK(has(first, "- **Differs**: NCCL 2.27.3 on rank 1, 2.28.9 on the 3 others\n"));
  CHECK(has(first, "- **Differs**: `TORCH_X="));
  const std::size_t section = text.find("<details><summary>Versions, settings and limits</summary>");
  REQUIRE(section != std::string::npos);
  const std::string rest = text.substr(section);
  CHECK(has(rest, "NCCL  /v/libnccl.so.2  2.27.3, built with CUDA 13.0, build-id aa11  (rank 1)\n"));
  CHECK(has(rest, "NCCL_DEBUG=INFO\n"));
  CHECK(has(rest, "limit open-files  1024 (hard: unlimited)\n"));
  const std::string outside = outside_of_code(text);
  for (const char* word : {"@bob", "#1"}) CHECK_FALSE(has(outside, word));
  std::size_t open = 0, close = 0;
  for (std::size_t at = 0; (at = outside.find("<details>", at)) != std::string::npos; ++at) ++open;
  for (std::size_t at = 0; (at = outside.find("</details>", at)) != std::string::npos; ++at) ++close;
  CHECK(open == close);
  for (const std::size_t most : {2000, 4000, 8000}) CHECK(markdown(made.job, most).size() <= most);
}
