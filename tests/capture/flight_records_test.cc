#include "capture/flight_records.h"

#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace rankstacks;
using namespace rankstacks::capture;

namespace {

using Paths = std::vector<std::string>;
using Clock = std::chrono::system_clock;
constexpr std::chrono::seconds kLimit{10};

class Directory {
 public:
  Directory() {
    char name[] = "/tmp/rankstacks-dumps-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  std::string put(const std::string& name, const std::string& text = R"({"version": "2.10", "entries": []})") const {
    std::ofstream(path_ + "/" + name) << text;
    return path_ + "/" + name;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<RankSnapshot> two_ranks() {
  std::vector<RankSnapshot> ranks(2);
  for (int r = 0; r < 2; ++r) ranks[static_cast<std::size_t>(r)].rank = r;
  return ranks;
}

}  // namespace

TEST_CASE("a dump's rank is the number at the end of its name") {
  CHECK(rank_of_dump("/tmp/nccl_trace_rank_12") == 12);
  CHECK(rank_of_dump("node-3/trace_0.json") == 0);
  CHECK_FALSE(rank_of_dump("/tmp/trace_3/pipe_3.pipe"));
  CHECK_FALSE(rank_of_dump("trace_"));
  CHECK_FALSE(rank_of_dump("trace_99999999999"));
}

TEST_CASE("where torch writes a dump") {
  CHECK(dump_paths({{"TORCH_FR_DUMP_TEMP_FILE", "/d/a_"}, {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/d/b_"}}, 3) ==
        Paths{"/d/a_3"});
  CHECK(dump_paths({{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/d/b_"}}, 3) == Paths{"/d/b_3"});
  CHECK(dump_paths({{"HOME", "/home/u"}}, 0) ==
        Paths{"/home/u/.cache/torch/comm_lib_trace_rank_0", "/tmp/nccl_trace_rank_0"});
  CHECK(dump_paths({{"HOME", "/home/u"}, {"XDG_CACHE_HOME", "/c"}}, 0).front() == "/c/torch/comm_lib_trace_rank_0");
  CHECK(dump_paths({{"TORCH_FR_DUMP_TEMP_FILE", "relative_"}}, 0).empty());
}

TEST_CASE("dumps that are named") {
  const Directory directory;
  directory.put("trace_0"), directory.put("trace_1"), directory.put("notes.txt", "x");
  REQUIRE(mkfifo((directory.path() + "/pipe_0").c_str(), 0600) == 0);  // nothing waits for it
  std::vector<RankSnapshot> ranks = two_ranks();
  add_named_dumps(ranks, {directory.path()}, Clock::now(), kLimit);
  REQUIRE(ranks[0].flight_record);
  CHECK(ranks[0].flight_record->path == directory.path() + "/trace_0");
  CHECK(ranks[0].flight_record->age_ms);
  CHECK(ranks[1].flight_record);
  CHECK(ranks[0].problems.empty());
  SECTION("of a rank that is not there, or no dump") {
    add_named_dumps(ranks,
                    {directory.put("trace_7"),
                     directory.put("trace_2",
                                   "\x80\x02"
                                   "c"),
                     directory.path() + "/pipe_0"},
                    Clock::now(), kLimit);
    REQUIRE(ranks[0].problems.size() == 3);
    CHECK(ranks[0].problems[0].message.find("none of these ranks") != std::string::npos);
    CHECK(ranks[0].problems[1].message.find("not one of plain data") != std::string::npos);
    CHECK(ranks[0].problems[2].message.find("found a pipe") != std::string::npos);
  }
}

TEST_CASE("a page of torch's debug server with the dumps of all ranks") {
  const Directory directory;
  const std::string heading = "Rank 1: http://node-a:58935/handler/fr_trace_json?";
  const std::string of_one =
      "{\n  \"entries\": [{\"pg_id\": 0, \"collective_seq_id\": 3, \"profiling_name\": "
      "\"gloo:all_reduce\", \"process_group\": [\"0\", \"a&b <c>\"]}],\n  \"version\": \"2.10\"\n}";
  std::vector<RankSnapshot> ranks = two_ranks();
  const auto read = [&](const std::string& text) {
    add_named_dumps(ranks, {directory.put("fr_trace.html", text)}, Clock::now(), kLimit);
  };
  SECTION("as the server writes it") {
    read(
        "\n<!doctype html>\n<head><style>body { margin: 0; }</style></head>\n<section>\n"
        "        <h2>Rank 0: http://node-a:1/handler/fr_trace_json?</h2>\n        \n"
        "            <p>Failed to fetch: status=408</p>\n            <pre>Timeout: read</pre>\n"
        "        <h2>" +
        heading + "</h2>\n            <pre>" + of_one + "</pre>\n        \n    \n</section>\n    ");
    REQUIRE(ranks[0].problems.size() == 1);
    CHECK(ranks[0].problems[0].message.find("rank 0 did not answer torch's debug server (Error: 408)") !=
          std::string::npos);
  }
  SECTION("as a browser saves it") {
    std::string escaped = of_one;
    escaped.replace(escaped.find("&"), 1, "&amp;");
    escaped.replace(escaped.find("<c>"), 3, "&lt;c&gt;");
    read("<!DOCTYPE html>\n<h2>" + heading + "</h2>\n<pre>" + escaped + "</pre></section></body></html>");
    CHECK(ranks[0].problems.empty());
  }
  SECTION("as it is copied") {
    read("Torch Distributed Debug Server\nFlightRecorder\n" + heading + "\n" + of_one + "\n");
    CHECK(ranks[0].problems.empty());
  }
  CHECK_FALSE(ranks[0].flight_record);
  REQUIRE(ranks[1].flight_record);
  REQUIRE(ranks[1].flight_record->groups.size() == 1);
  CHECK(ranks[1].flight_record->groups[0].description == "a&b <c>");
}

TEST_CASE("a page of torch's debug server with answers that are no dumps, or of no rank") {
  const Directory directory;
  std::vector<RankSnapshot> ranks = two_ranks();
  const std::string page =
      "<h2>Rank 0: http://a:1/handler/dump_traceback?</h2>\n<pre>no dump</pre>\n"
      "<h2>Rank 1: http://a:1/handler/fr_trace_json?</h2>\n<pre>}{</pre>\n"
      "<h2>Rank 7: http://a:1/handler/fr_trace_json?</h2>\n<pre>{\"entries\": []}</pre>\n";
  add_named_dumps(ranks, {directory.put("page_0", page)}, Clock::now(), kLimit);  // the page's name states no rank
  REQUIRE(ranks[0].problems.size() == 3);
  CHECK(ranks[0].problems[0].message.find("page_0, rank 0: neither a pickle nor JSON") != std::string::npos);
  CHECK(ranks[0].problems[1].message.find("page_0, rank 1: neither a pickle nor JSON") != std::string::npos);
  CHECK(ranks[0].problems[2].message.find("none of these ranks") != std::string::npos);
  CHECK((!ranks[0].flight_record && !ranks[1].flight_record));
}

TEST_CASE("a dump that is named, of another process") {
  const Directory directory;
  directory.put("trace_0", R"({"entries": [{"pg_id": 0, "thread_id": "4096"}]})");
  std::vector<RankSnapshot> ranks = two_ranks();
  ranks[0].threads.resize(1);
  ranks[0].threads[0].thread_pointer = 8192;
  add_named_dumps(ranks, {directory.path()}, Clock::now(), kLimit);
  CHECK_FALSE(ranks[0].flight_record);
  REQUIRE(ranks[0].problems.size() == 1);
  CHECK(ranks[0].problems[0].message.find("a dump of another process than rank 0's") != std::string::npos);
}

TEST_CASE("dumps that are found count only if they are this process's") {
  const Directory directory;
  const std::string path = directory.put("trace_0");
  DumpPlace place{.root = "/", .paths = {path}, .owner = geteuid(), .after = Clock::now() - std::chrono::minutes(1)};
  RankSnapshot rank;
  bool counts = false;
  SECTION("it is") { counts = true; }
  SECTION("of another user") { ++place.owner; }
  SECTION("from before the process began") { place.after = Clock::now() + std::chrono::minutes(1); }
  SECTION("a symbolic link") {
    REQUIRE(symlink(path.c_str(), (directory.path() + "/link_0").c_str()) == 0);
    place.paths = {directory.path() + "/link_0"};
  }
  SECTION("below a root directory, out of which a link leads") {
    REQUIRE(mkdir((directory.path() + "/root").c_str(), 0700) == 0);
    REQUIRE(symlink(directory.path().c_str(), (directory.path() + "/root/away").c_str()) == 0);
    place.root = directory.path() + "/root";
    place.paths = {"/away/trace_0"};
  }
  SECTION("a pipe, which nobody writes to") {
    REQUIRE(mkfifo((directory.path() + "/pipe_0").c_str(), 0600) == 0);
    place.paths = {directory.path() + "/pipe_0"};
  }
  SECTION("not there") { place.paths = {directory.path() + "/none_0"}; }
  SECTION("with the threads that have called its operations") {
    directory.put("trace_0", R"({"entries": [{"pg_id": 0, "thread_id": "4096"}, {"pg_id": 0, "thread_id": "8192"}]})");
    rank.threads.resize(2);
    SECTION("none of which is known") { counts = true; }
    SECTION("one of which is the rank's") {
      rank.threads[1].thread_pointer = 8192;
      counts = true;
    }
    SECTION("none of which is the rank's: another job of the user's has written it") {
      rank.threads[0].thread_pointer = 12288;
    }
  }
  std::vector<RankSnapshot> ranks{rank, rank};  // the second one has no place
  ranks[1].rank = 1;
  const auto place_of = [&](const RankSnapshot& of) { return of.rank == 1 ? std::nullopt : std::optional(place); };
  add_found_dumps(ranks, place_of, Clock::now(), kLimit);
  CHECK(ranks[0].flight_record.has_value() == counts);
  CHECK(ranks[0].problems.empty());
  CHECK_FALSE(ranks[1].flight_record);
}

TEST_CASE("how long ago a rank has called something") {
  const auto at = std::chrono::system_clock::time_point(std::chrono::seconds(1000));
  FlightRecord record;
  take_time_of_last_call(record, at);
  CHECK_FALSE(record.last_call_ms);
  record.last_call_ns = 940'000'000'000;
  take_time_of_last_call(record, at);
  CHECK(record.last_call_ms == 60'000.0);
  SECTION("the clock has been set back since then") {
    FlightRecord later;
    later.last_call_ns = 1'001'000'000'000;
    take_time_of_last_call(later, at);
    CHECK_FALSE(later.last_call_ms);
  }
}
