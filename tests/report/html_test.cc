#include "report/html_report.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "report/html_data.h"
#include "report/report.h"
#include "report/report_file.h"
#include "support/literal_job.h"
#include "support/many_ranks.h"

using namespace rankstacks;
using namespace rankstacks::report;
using namespace rankstacks::testing;
using nlohmann::json;

namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string page_of(const JobSnapshot& job) { return html_report(job, analyzers::analyze(job), {}); }
json data_of(const JobSnapshot& job) { return json::parse(html_data(job, analyzers::analyze(job), false)); }

std::string between(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t at = text.find(begin);
  REQUIRE(at != std::string_view::npos);
  const std::size_t from = at + begin.size(), to = text.find(end, from);
  REQUIRE(to != std::string_view::npos);
  return std::string(text.substr(from, to - from));
}

LiteralJob hung_job() {
  LiteralJob made;
  for (int r = 0; r < 4; ++r) made.rank(r, 4, r == 2 ? in_getitem() : waits_in_backward());
  return made;
}

JobSnapshot saved(const std::filesystem::path& path) {
  return *read_json_report(*read_report_file(path.string()), path.string());
}

const json& threads_of(const json& data, std::size_t rank) {
  return data["rank_kinds"][data["ranks"][rank]["like"].get<std::size_t>()]["threads"];
}

// The names of a thread's frames, innermost first, as the page finds them.
std::vector<std::string> stack_of(const json& data, std::size_t rank, std::size_t thread) {
  const json& kind = data["thread_kinds"][threads_of(data, rank)[thread].get<std::size_t>()];
  std::vector<std::string> names;
  for (int at = kind[3]; at >= 0; at = data["stacks"]["parents"][static_cast<std::size_t>(at)]) {
    const std::size_t frame = data["stacks"]["frames"][static_cast<std::size_t>(at)];
    names.push_back(data["strings"][data["frames"][frame][2].get<std::size_t>()]);
  }
  return names;
}

}  // namespace

TEST_CASE("the policy names the script and the style of the page, and allows nothing else") {
  const std::string page = page_of(hung_job().job);
  const std::string policy = between(page, "<meta http-equiv=\"Content-Security-Policy\" content=\"", "\">");
  const std::string style = between(page, "<style>", "</style>"), script = between(page, "<script>", "</script>");
  CHECK(style == kHtmlStyle);
  CHECK(script == kHtmlScript);
  CHECK(policy ==
        "default-src 'none'; script-src '" + html_source_hash(script) + "'; style-src '" + html_source_hash(style) +
            "'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'");
  // The policy comes before everything that it is for.
  CHECK(page.find("Content-Security-Policy") < page.find("<style"));
  CHECK(count_of(page, "<script") == 2);
  CHECK(count_of(page, "</script>") == 2);
  CHECK(count_of(page, "<style") == 1);
}

TEST_CASE("the page's sources load nothing and make no HTML of a text") {
  for (const std::string_view source : {kHtmlScript, kHtmlStyle, kHtmlBody}) {
    REQUIRE(source.size() > 1000);
    for (const std::string_view part :
         {"@import", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
          "fetch(", "XMLHttpRequest", "import(", "</script", "</style"}) {
      CAPTURE(part);
      CHECK_FALSE(has(source, part));
    }
    // The name of SVG's namespace is no address.
    const std::string text = std::regex_replace(std::string(source), std::regex("http://www\\.w3\\.org/2000/svg"), "");
    CHECK_FALSE(std::regex_search(text, std::regex("https?:|url\\((?!#)")));
  }
  CHECK_FALSE(std::regex_search(std::string(kHtmlBody), std::regex("\\s(on[a-z]+|style|src|href)\\s*=")));
}

TEST_CASE("hostile names cannot leave the block of data") {
  const std::string hostile[] = {"</script><script>alert(1)</script>",
                                 "<!--<script>",
                                 "]]>",
                                 "\"},{\"",
                                 "</pre></noscript><img src=x onerror=alert(1)>",
                                 "&lt;&amp;",
                                 "\xff\xfe",
                                 "\u2028\u202e",
                                 "\x1b[2J\n",
                                 "\\u003c/script>"};
  LiteralJob made;
  for (int r = 0; r < 4; ++r) {
    Stack stack = r == 2 ? in_getitem() : waits_in_backward();
    for (const std::string& name : hostile) {
      stack.insert(stack.end() - 1, py(name, "/x/" + name, 1));
      stack.push_back(nat(name, name));
    }
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
  const std::string page = page_of(made.job);
  const std::string block = between(page, "<script type=\"application/json\" id=\"report\">", "</script>");
  CHECK_FALSE(has(block, "<"));
  const json data = json::parse(block);
  const auto& strings = data["strings"];
  CHECK(std::find(strings.begin(), strings.end(), "</script><script>alert(1)</script>") != strings.end());
  CHECK(std::find(strings.begin(), strings.end(), "\\u003c/script>") != strings.end());
  // The rest of the page is the page's own, and the text report, in which nothing is a tag.
  CHECK(count_of(page, "<script") == 2);
  const std::string plain = between(page, "<noscript><pre>", "</pre></noscript>");
  CHECK_FALSE(std::regex_search(plain, std::regex("[<>\"']")));
  CHECK(has(plain, "CULPRIT"));
  CHECK_FALSE(has(page, "\x1b"));
  CHECK_FALSE(has(page, "\u202e"));
  CHECK_FALSE(has(page, "\xff"));
}

TEST_CASE("all threads of all ranks are in the data, with their whole stacks") {
  LiteralJob made = hung_job();
  made.thread(made.job.ranks[1], 777, "worker", {libc("poll"), nat("loop()", "/x/libx.so")});
  made.thread(made.job.ranks[1], 778, "worker", {libc("poll"), nat("loop()", "/x/libx.so")});
  made.thread(made.job.ranks[1], 779, "empty", {});
  const json data = data_of(made.job);
  REQUIRE(data["ranks"].size() == 4);
  const json &threads = threads_of(data, 1), &tids = data["ranks"][1]["tids"];
  REQUIRE(threads.size() == 4);
  REQUIRE(tids.size() == 4);
  CHECK(tids[0] == 0);  // the main thread's number is the pid
  CHECK(tids[1] == 777 - made.job.ranks[1].pid);
  CHECK(tids[2] == 1);
  CHECK(threads[1] == threads[2]);                              // threads that are alike are of one kind
  CHECK(data["ranks"][0]["like"] == data["ranks"][3]["like"]);  // and so are ranks
  CHECK(data["ranks"][0]["like"] != data["ranks"][2]["like"]);
  CHECK(stack_of(data, 1, 1) == std::vector<std::string>{"poll", "loop()"});
  CHECK(stack_of(data, 1, 3).empty());
  CHECK(stack_of(data, 2, 0) ==
        std::vector<std::string>{"read", "__getitem__", "fetch", "_next_data", "__next__", "main", "<module>"});
  CHECK(data["strings"][data["verdict"]["status"].get<std::size_t>()] == "culprit");
  CHECK(data["verdict"]["suspects"][0]["rank"] == 2);
  CHECK(data["waits"]["chains"][0]["links"].size() >= 3);
}

TEST_CASE("a stack that is not whole says so") {
  LiteralJob made;
  RankSnapshot& rank = made.rank(0, 1, {nat("inner()"), nat("outer()")});
  rank.threads[0].stack_end = StackEnd::kNoUnwindInfo;
  rank.threads[0].omitted = OmittedFrames{1, 500};
  CHECK(stack_of(data_of(made.job), 0, 0) == std::vector<std::string>{"inner()", "500 frames left out here", "outer()",
                                                                      "the stack ends here: no unwind information"});
}

TEST_CASE("every index of the data is in its table") {
  const std::filesystem::path fixtures = RANKSTACKS_FIXTURES;
  for (const char* name : {"nccl/data-loader", "verdicts/loader-worker", "verdicts/group-cycle",
                           "verdicts/cores-crashed", "gpu_jobs/loader-workers-with-gpus"}) {
    CAPTURE(name);
    const JobSnapshot job = saved(fixtures / (std::string(name) + ".json.gz"));
    const json data = data_of(job);
    const auto within = [](const json& index, std::size_t size) {
      return index >= -1 && index < static_cast<int>(size);
    };
    const std::size_t strings = data["strings"].size(), frames = data["frames"].size();
    const std::size_t stacks = data["stacks"]["frames"].size(), tree = data["tree"]["frames"].size();
    bool good = data["stacks"]["parents"].size() == stacks && data["tree"]["parents"].size() == tree;
    for (const json& frame : data["frames"]) {
      good = good && frame.size() == 6 && frame[0] < data["frame_kinds"].size();
      for (std::size_t i = 1; i < 5; ++i) good = good && within(frame[i], strings);
    }
    // A parent comes before its children, so that the page needs one pass.
    for (std::size_t i = 0; i < stacks; ++i)
      good = good && within(data["stacks"]["parents"][i], i) && within(data["stacks"]["frames"][i], frames);
    for (std::size_t i = 0; i < tree; ++i)
      good = good && within(data["tree"]["parents"][i], i) && within(data["tree"]["frames"][i], frames);
    for (const json& kind : data["thread_kinds"])
      good = good && kind.size() == 7 && within(kind[0], strings) && kind[1] < data["roles"].size() &&
             within(kind[2], data["clusters"].size()) && within(kind[3], stacks);
    for (const json& cluster : data["clusters"]) good = good && within(cluster["end"], tree);
    for (const json& edge : data["waits"]["edges"])
      good = good && edge[0] < data["waits"]["groups"].size() && edge[1] < data["waits"]["groups"].size();
    CHECK(good);
    std::size_t threads = 0, expected = 0;
    for (std::size_t r = 0; r < data["ranks"].size(); ++r) {
      REQUIRE(within(data["ranks"][r]["like"], data["rank_kinds"].size()));
      CHECK(data["ranks"][r]["tids"].size() == threads_of(data, r).size());
      threads += threads_of(data, r).size();
    }
    for (const RankSnapshot& rank : job.ranks) expected += rank.threads.size();
    CHECK(threads == expected);
  }
}

TEST_CASE("the size grows with the number of different stacks, not with the number of ranks or threads") {
  const std::filesystem::path fixtures = RANKSTACKS_FIXTURES;
  const JobSnapshot seed = saved(fixtures / "nccl" / "data-loader.json.gz");
  const JobSnapshot some = many_ranks(seed, 64, 30, 0), many = many_ranks(seed, 1024, 30, 0);
  const json small = data_of(some), large = data_of(many);
  CHECK(small["frames"] == large["frames"]);  // their addresses differ
  CHECK(small["stacks"] == large["stacks"]);
  CHECK(small["tree"] == large["tree"]);
  const std::size_t bytes = page_of(many).size();
  CHECK(bytes < 2'000'000);
  // Ranks that all differ: 1,024 ranks of which each is at a line of its own.
  LiteralJob made;
  for (int r = 0; r < 1024; ++r) {
    RankSnapshot& rank = made.rank(r, 1024, waits_in_backward(r));
    for (int t = 1; t < 30; ++t)
      made.thread(rank, rank.pid + 5000 + t, "w" + std::to_string(t),
                  {libc("poll"), nat("f" + std::to_string(t * 1024 + r) + "()"), nat("loop()")});
  }
  CHECK(page_of(made.job).size() < 10'000'000);
}

TEST_CASE("versions, and what differs between ranks") {
  LiteralJob made = hung_job();
  for (RankSnapshot& rank : made.job.ranks) {
    rank.modules = {{"NCCL", "/v/libnccl.so.2", "aa11", "2.28.9", VersionFrom::kText, "13.0"}};
    rank.environment.emplace().kernel = "6.8.0";
  }
  CHECK_FALSE(data_of(made.job).contains("differences"));
  made.job.ranks[1].modules.edit()[0].version = "2.27.3";
  const json data = data_of(made.job);
  const auto text = [&](const json& id) { return data["strings"][id.get<std::size_t>()].get<std::string>(); };
  CHECK(has(text(data["versions"]), "NCCL 2.28.9"));
  REQUIRE(data["differences"].size() == 1);
  const json& difference = data["differences"][0];
  CHECK(text(difference["kind"]) == "version");
  CHECK(has(text(difference["summary"]), "NCCL 2.27.3 on rank 1"));
  CHECK(difference["communication"] == true);
  REQUIRE(difference["sides"].size() == 2);
  CHECK(text(difference["sides"][0]["value"]) == "2.27.3");
  CHECK(difference["sides"][0]["ranks"] == json({1, 1}));
  CHECK(difference["sides"][1]["ranks"] == json({0, 0, 2, 3}));
}

TEST_CASE("redaction is said") {
  const LiteralJob made = hung_job();
  const analyzers::Analysis analysis = analyzers::analyze(made.job);
  CHECK(json::parse(html_data(made.job, analysis, true))["redacted"] == true);
  CHECK(json::parse(html_data(made.job, analysis, false))["redacted"] == false);
}
