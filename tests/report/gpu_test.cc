#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "report/report.h"
#include "report/sanitize.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::report;
using namespace rankstacks::testing;
using Json = nlohmann::json;

namespace {

// Sets every member of the model to a value that differs from the default.
LiteralJob everything() {
  LiteralJob literal;
  RankSnapshot& rank = literal.rank(0, 2, in_main(3));
  GpuSnapshot& gpu = rank.gpus.emplace_back();
  gpu.pci = "0000:0a:00.0";
  gpu.index = 1;
  gpu.uuid = "GPU-1";
  gpu.name = "NVIDIA H200";
  GpuHealth& h = gpu.health.emplace();
  h.utilization_mean = 99.5, h.utilization_variance = 0.25, h.memory_utilization_mean = 12.5;
  h.memory_used = std::uint64_t{1} << 40, h.memory_total = std::uint64_t{1} << 41, h.process_memory = 5;
  h.sm_clock = 1980, h.sm_clock_max = 1981, h.memory_clock = 3201, h.memory_clock_max = 3202;
  h.throttle = {"hw-slowdown", "sw-power-cap"};
  h.power_w = 350.5, h.power_mean_w = 340.5, h.power_limit_w = 700, h.temperature_c = 60;
  h.ecc_corrected = 1, h.ecc_uncorrected = 2, h.remapped_rows = 3;
  h.remap_pending = h.remap_failed = true;
  h.nvlinks = 18, h.nvlinks_up = 17, h.nvlinks_down = {3}, h.nvlink_errors = 4;
  h.pcie_width = 8, h.pcie_width_max = 16, h.pcie_generation = 4, h.pcie_generation_max = 5;
  h.xids = {31, 79};
  h.other_processes = {4242};
  h.driver = "580.159.04";
  GpuExecution& execution = gpu.execution.emplace();
  execution.source = GpuSource::kCore;
  execution.path = "/cores/gpucore.7";
  execution.held_ms = 11.5;
  execution.contexts = 2;
  GpuKernel& kernel = execution.kernels.emplace_back();
  kernel.grid_id = 0xffffffffffffffff;  // of a kernel that a kernel launched
  kernel.function = "spin(int*)";
  kernel.entry = 0x7f00;
  kernel.grid = {1, 2, 3}, kernel.block = {4, 5, 6};
  kernel.blocks = 7, kernel.sms = 8, kernel.warps = 9, kernel.lanes = 10, kernel.more_places = 11;
  const FrameId inner = gpu_frame(literal, "helper(int)", 0x7f40, 0x10),
                outer = gpu_frame(literal, "spin(int*)", 0x7f80, 0x80);
  kernel.places = {{inner, 6}, {outer, 3}};
  kernel.frames = {inner, outer};
  execution.kernels.emplace_back();  // nothing known
  GpuException& exception = execution.exceptions.emplace_back();
  exception.kind = "illegal address";
  exception.frame = outer;
  exception.grid_id = 7;
  exception.kernel = "spin(int*)";
  exception.block = GpuDim{1, 0, 0}, exception.thread = GpuDim{2, 0, 0};
  exception.warps = 1;
  rank.gpus.emplace_back().pci = "0000:0b:00.0";
  literal.rank(1, 2, in_main(3));
  return literal;
}

std::string json_of(const JobSnapshot& job) { return json_report(job, analyzers::analyze(job)); }
std::string text_of(const JobSnapshot& job, TextOptions options = {}) {
  return text_report(job, analyzers::analyze(job), options);
}

// The GPUs' frames compared by content, since another table has other ids.
Json gpus_of(const JobSnapshot& job, std::size_t rank) { return Json::parse(json_of(job))["ranks"][rank]["gpus"]; }

std::string error_of(const std::string& gpus) {
  const std::string text =
      R"({"schema": 1, "captured_at": "", "ranks": [{"host": "a", "pid": 1, "source": "live", "status": "complete", "threads": [], "gpus": )" +
      gpus + "}]}";
  const auto read = read_json_report(text, "x.json");
  return read ? "" : read.error().message();
}

// Four ranks that all wait for their GPUs; that of rank 3 runs another kernel, and is at rest.
LiteralJob hang(int ranks = 4) {
  LiteralJob literal;
  for (int r = 0; r < ranks; ++r) {
    RankSnapshot& rank = nccl_rank(literal, r, ranks, waits_for_gpu());
    const bool odd = r == ranks - 1;
    health_of(rank, odd ? 0 : 100);
    runs(literal, rank, odd ? "spin(int*)" : kAllReduce, odd ? 1 : 13, odd ? 32 : 512);
  }
  return literal;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the GPUs of a rank as JSON") {
  const LiteralJob literal = everything();
  const Json json = Json::parse(json_of(literal.job));
  CHECK_FALSE(json["ranks"][1].contains("gpus"));
  CHECK(json["ranks"][0]["gpus"] ==
        Json::parse(R"x([{"pci": "0000:0a:00.0", "index": 1, "uuid": "GPU-1", "name": "NVIDIA H200",
    "health": {"utilization_mean": 99.5, "utilization_variance": 0.25, "memory_utilization_mean": 12.5, "memory_used": 1099511627776, "memory_total": 2199023255552, "process_memory": 5,
      "sm_clock": 1980, "sm_clock_max": 1981, "memory_clock": 3201, "memory_clock_max": 3202, "throttle": ["hw-slowdown", "sw-power-cap"],
      "power_w": 350.5, "power_mean_w": 340.5, "power_limit_w": 700.0, "temperature_c": 60.0, "ecc_corrected": 1, "ecc_uncorrected": 2, "remapped_rows": 3, "remap_pending": true, "remap_failed": true,
      "nvlinks": 18, "nvlinks_up": 17, "nvlinks_down": [3], "nvlink_errors": 4, "pcie_width": 8, "pcie_width_max": 16, "pcie_generation": 4, "pcie_generation_max": 5,
      "xids": [31, 79], "other_processes": [4242], "driver": "580.159.04"},
    "execution": {"source": "core", "path": "/cores/gpucore.7", "held_ms": 11.5, "contexts": 2, "kernels": [
      {"grid_id": 18446744073709551615, "function": "spin(int*)", "entry": "0x7f00", "grid": {"x": 1, "y": 2, "z": 3}, "block": {"x": 4, "y": 5, "z": 6},
       "blocks": 7, "sms": 8, "warps": 9, "lanes": 10, "more_places": 11,
       "places": [{"warps": 6, "frame": {"kind": "gpu", "function": "helper(int)", "module": null, "file": null, "line": null, "address": "0x7f40", "offset": "0x10", "inlined": false}},
                  {"warps": 3, "frame": {"kind": "gpu", "function": "spin(int*)", "module": null, "file": null, "line": null, "address": "0x7f80", "offset": "0x80", "inlined": false}}],
       "frames": [{"kind": "gpu", "function": "helper(int)", "module": null, "file": null, "line": null, "address": "0x7f40", "offset": "0x10", "inlined": false},
                  {"kind": "gpu", "function": "spin(int*)", "module": null, "file": null, "line": null, "address": "0x7f80", "offset": "0x80", "inlined": false}]},
      {"grid_id": 0, "function": null, "grid": {"x": 1, "y": 1, "z": 1}, "block": {"x": 1, "y": 1, "z": 1}, "blocks": 0, "sms": 0, "warps": 0, "lanes": 0, "places": [], "frames": []}],
     "exceptions": [{"kind": "illegal address", "kernel": "spin(int*)", "grid_id": 7, "block": {"x": 1, "y": 0, "z": 0}, "thread": {"x": 2, "y": 0, "z": 0}, "warps": 1,
       "frame": {"kind": "gpu", "function": "spin(int*)", "module": null, "file": null, "line": null, "address": "0x7f80", "offset": "0x80", "inlined": false}}]}},
    {"pci": "0000:0b:00.0"}])x"));
}

TEST_CASE("ranks whose GPUs do the same, as JSON") {
  LiteralJob literal = hang(6);
  looked_at(literal.job.ranks[0]).exceptions.emplace_back().kind = "assert";
  looked_at(literal.job.ranks[1]).kernels.clear();
  looked_at(literal.job.ranks[2]).kernels.front().function.reset();
  CHECK(Json::parse(json_of(literal.job))["gpu_clusters"] == Json::parse(R"x([
    {"state": "exception", "exception": "assert", "ranks": [0]}, {"state": "kernel", "kernel": "spin(int*)", "ranks": [5]}, {"state": "idle", "ranks": [1]}, {"state": "unknown", "ranks": [2]},
    {"state": "collective", "collectives": ["AllReduce"], "kernel": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ranks": [3, 4]}])x"));
  for (RankSnapshot& rank : literal.job.ranks) rank.gpus[0].execution.reset();
  CHECK_FALSE(Json::parse(json_of(literal.job)).contains("gpu_clusters"));
}

TEST_CASE("GPUs are read back as they were") {
  const LiteralJob literal = everything();
  const std::string text = json_of(literal.job);
  const auto read = read_json_report(text, "x.json");
  REQUIRE(read);
  REQUIRE(read->ranks[0].gpus.size() == 2);
  const GpuSnapshot &was = literal.job.ranks[0].gpus[0], &is = read->ranks[0].gpus[0];
  CHECK(is.health == was.health);
  CHECK((is.pci == was.pci && is.index == was.index && is.uuid == was.uuid && is.name == was.name));
  CHECK(read->ranks[0].gpus[1] == literal.job.ranks[0].gpus[1]);
  CHECK(read->ranks[1].gpus.empty());
  CHECK(json_of(*read) == text);
}

TEST_CASE("the GPUs' frames survive merging") {
  LiteralJob other;
  other.rank(7, 8, in_getitem()).host = "node-b";
  runs(other, other.job.ranks[0], kAllReduce);
  const LiteralJob first = everything();
  const Json expected[] = {gpus_of(first.job, 0), gpus_of(other.job, 0)};
  const JobSnapshot merged = merge_snapshots({first.job, other.job});
  REQUIRE(merged.ranks.size() == 3);
  CHECK(gpus_of(merged, 0) == expected[0]);
  CHECK(gpus_of(merged, 2) == expected[1]);
}

TEST_CASE("what is wrong with the GPUs of a report is said with its place") {
  CHECK(error_of("[]").empty());
  CHECK(error_of("null").empty());
  CHECK(error_of(R"([{"unknown member": 1}])").empty());
  CHECK(error_of("{}") == "x.json: ranks[0].gpus: expected an array, found an object");
  CHECK(error_of("[1]") == "x.json: ranks[0].gpus[0]: expected an object, found a number");
  CHECK(error_of(R"([{"health": {"memory_used": -1}}])") ==
        "x.json: ranks[0].gpus[0].health.memory_used: a number from 0 expected");
  CHECK(error_of(R"([{"health": {"memory_used": 0.5}}])") ==
        "x.json: ranks[0].gpus[0].health.memory_used: expected a whole number, found a number");
  CHECK(error_of(R"([{"health": {"sm_clock": 4294967296}}])") ==
        "x.json: ranks[0].gpus[0].health.sm_clock: a number from 0 to 4294967295 expected");
  CHECK(error_of(R"([{"execution": {"source": "guess", "kernels": []}}])") ==
        "x.json: ranks[0].gpus[0].execution.source: expected one of debugger, core");
  CHECK(error_of(R"([{"execution": {"source": "core"}}])") == "x.json: ranks[0].gpus[0].execution.kernels: missing");
  CHECK(error_of(R"([{"execution": {"source": "core", "kernels": [{"grid": {"x": 1}}]}}])") ==
        "x.json: ranks[0].gpus[0].execution.kernels[0].grid.y: missing");
  CHECK(error_of(R"([{"execution": {"source": "core", "kernels": [{"places": [{"warps": 1}]}]}}])") ==
        "x.json: ranks[0].gpus[0].execution.kernels[0].places[0].frame: missing");
  CHECK(error_of(R"([{"execution": {"source": "core", "kernels": [{"frames": [{"kind": "native"}]}]}}])") ==
        "x.json: ranks[0].gpus[0].execution.kernels[0].frames[0].kind: expected gpu");
  CHECK(error_of(R"([{"execution": {"source": "core", "kernels": [], "exceptions": [{}]}}])") ==
        "x.json: ranks[0].gpus[0].execution.exceptions[0].kind: missing");
  std::string many = "[{}";
  for (int i = 0; i < 1024; ++i) many += ",{}";
  CHECK(error_of(many + "]") == "x.json: ranks[0].gpus: 1025 elements, more than 1024");
}

TEST_CASE("GPUs that are alike share a line") {
  const std::string text = text_of(hang().job);
  INFO(text);
  CHECK(contains(
      text,
      "\nGPUs\n"
      "  3 (1 rank): NVIDIA H200, 0 %, 71.0 of 141.0 GiB  <- 0 % used, the others 100 %\n"
      "  0-2 (3 ranks): NVIDIA H200, 100 %, 71.0 of 141.0 GiB\n"
      "  > 3 (1 rank): spin, 1 block of 32, 1 warp, at +0x1230\n"
      "  > 0-2 (3 ranks): ncclDevKernel_AllReduce_Sum_f32_RING_LL, 13 blocks of 512, 208 warps, at +0x1230\n"));
}

TEST_CASE("the place of a kernel is left out where there is no room for it") {
  TextOptions options;
  options.width = 90;
  const std::string text = text_of(hang().job, options);
  CHECK(contains(text, "  > 0-2 (3 ranks): ncclDevKernel_AllReduce_Sum_f32_RING_LL, 13 blocks of 512, 208 warps\n"));
}

TEST_CASE("nothing known of GPUs, nothing said") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, waits_in_all_reduce()).gpus.resize(1);
  CHECK_FALSE(contains(text_of(literal.job), "GPUs\n"));
}

TEST_CASE("exceptions are listed before kernels, and ranks that run nothing before those in a collective") {
  LiteralJob literal = hang();
  GpuException& exception = looked_at(literal.job.ranks[1]).exceptions.emplace_back();
  exception.kind = "misaligned address";
  looked_at(literal.job.ranks[0]).kernels.clear();
  literal.job.ranks[2].gpus[0].execution.reset();
  const std::string text = text_of(literal.job);
  INFO(text);
  const std::size_t fault = text.find("> 1 (1 rank): exception: misaligned address"),
                    kernel = text.find("> 3 (1 rank): spin"), idle = text.find("> 0 (1 rank): no kernel"),
                    unknown = text.find("> 2 (1 rank): kernels unknown"),
                    collective = text.find("> 1 (1 rank): ncclDevKernel");
  REQUIRE(collective != std::string::npos);
  CHECK((fault < kernel && kernel < idle && idle < unknown && unknown < collective));
}

TEST_CASE("a hang of eight ranks with their GPUs on one screen") {
  LiteralJob literal = hang(8);
  for (RankSnapshot& rank : literal.job.ranks) {
    health_of(rank).xids = {static_cast<unsigned>(*rank.rank)};  // no two alike
    looked_at(rank).kernels.front().block.x = 32 * static_cast<unsigned>(*rank.rank + 1);
    for (int t = 0; t < 6; ++t)
      literal.thread(
          rank, 100000 + *rank.rank * 10 + t, "x",
          Stack{libc("poll"), py("f" + std::to_string(t * *rank.rank), "/home/u/a.py", t)} + in_main(50 + *rank.rank));
  }
  const std::string text = text_of(literal.job);
  INFO(text);
  CHECK(lines_of(text).size() <= 40);
  for (const std::string& line : lines_of(text)) CHECK(columns_of(line) <= 100);
  CHECK(contains(text, "more lines: --threads all"));
}

TEST_CASE("names of kernels move no cursor") {
  LiteralJob literal = hang();
  GpuSnapshot& gpu = literal.job.ranks[3].gpus[0];
  gpu.name = "H\x1b[2J200";
  gpu.execution->kernels[0].function = "ev\x1b[31mil\n(int)";
  gpu.execution->exceptions.emplace_back().kind = "bad\r";
  gpu.health->throttle = {
      "a\x07"
      "b"};
  gpu.health->driver = "\xff";
  TextOptions options;
  options.all_threads = true;
  for (const char c : text_of(literal.job, options)) CHECK((c == '\n' || static_cast<unsigned char>(c) >= 0x20));
}

TEST_CASE("numbers of a hostile report stay short") {
  LiteralJob literal = hang();
  GpuHealth& health = health_of(literal.job.ranks[3]);
  health.utilization_mean = 1e300;
  health.utilization_variance = -1e300;
  health.power_w = 1e300;
  looked_at(literal.job.ranks[3]).held_ms = 1e300;
  GpuKernel& kernel = looked_at(literal.job.ranks[3]).kernels.front();
  kernel.grid = kernel.block = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
  kernel.blocks = kernel.warps = kernel.lanes = kernel.sms = UINT32_MAX;
  TextOptions options;
  options.all_threads = true;
  for (const std::string& line : lines_of(text_of(literal.job, options))) CHECK(columns_of(line) < 300);
}

TEST_CASE("one rank's GPUs in full") {
  TextOptions options;
  options.ranks = {"0"};
  const std::string text = text_of(everything().job, options);
  INFO(text);
  CHECK(contains(text, "  GPU 1  0000:0a:00.0  NVIDIA H200  GPU-1\n"));
  CHECK(contains(text,
                 "    100 % (variance 0), memory accessed 12 %, memory 1024.0 of 2048.0 GiB, 0.0 GiB of this process, "
                 "SM clock 1980 of 1981 MHz, memory clock 3201 of 3202 MHz, throttled by hw-slowdown, sw-power-cap, "
                 "power 350 W, mean power 340 W"));
  CHECK(contains(text, "    from /cores/gpucore.7, held for 11.5 ms: 2 contexts, 2 kernels\n"));
  CHECK(contains(text,
                 "    exception: illegal address in kernel spin, block (1,0,0) thread (2,0,0)\n      at "
                 "0x0000000000007f80 spin(int*)+0x80\n"));
  CHECK(contains(
      text,
      "    kernel spin(int*)\n      (1,2,3) blocks of (4,5,6); resident: 7 blocks on 8 SMs, 9 warps, 10 threads\n"
      "      6 warps at 0x0000000000007f40 helper(int)+0x10\n      3 warps at 0x0000000000007f80 spin(int*)+0x80\n     "
      " ... and at 11 more places\n"
      "      device stack at the first of these:\n      #0   0x0000000000007f40 helper(int)+0x10\n      #1   "
      "0x0000000000007f80 spin(int*)+0x80\n"));
}
