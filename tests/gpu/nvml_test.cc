// Queries NVML with the real loading code and the real helper process. The library is a fake (fake_nvml.c) that reports
// what a scenario file says.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gpu/nvml_helper.h"
#include "gpu/nvml_library.h"
#include "gpu/nvml_query.h"
#include "support/temporary_directory.h"

namespace rankstacks::gpu {
namespace {

using testing::TemporaryDirectory;

// The files of a machine with NVIDIA's driver, as far as these tests need them.
struct PlayedMachine {
  explicit PlayedMachine(const std::string& scenario, const char* library = "libfake_nvml.so") {
    std::filesystem::copy_file(std::string(RANKSTACKS_BUILD "/tests/") + library, directory / "libnvidia-ml.so.1");
    testing::write_file(directory / "scenario", scenario);
    testing::write_file(directory / "nvidiactl", std::string_view(""));
    request.machine.directory = directory.path();
    request.helper = RANKSTACKS_BUILD "/tests/rankstacks_for_tests";
    request.timeout = std::chrono::seconds(60);  // for a busy machine; tests in which a call hangs set less
  }
  NvmlAnswer ask() const { return NvmlQuery(request).collect(); }

  TemporaryDirectory directory;
  NvmlRequest request;
};

// Whether the query has killed its helper. On a busy machine a killed helper may not have been reaped yet, which is
// harmless; a helper that ends by itself later was not killed.
bool no_helper_is_left() {
  int status = 0;
  while (::waitpid(-1, &status, 0) > 0)
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return false;
  return true;
}

const std::string kTwoGpus = R"(driver 580.159.04
gpu
pci 0 10 0
uuid GPU-aaaa
name NVIDIA H200
minor 0
mig 0
list 24
process 4711 1000000
process 4712 -1
samples 80 110 100
memory-samples 30 50
power-samples 100000 100000 400000 500000 600000
memory 2000000 500000 150000000000
clock 1 1980 1980
clock 2 3201 3201
throttle 1
power 650000 700000
temperature 61
ecc 0 0
rows 0 0 0 0
link 0 1 0
link 1 1 2
pcie 16 16 5 5
gpu
pci 1 202 0
uuid GPU-bbbb
name NVIDIA H200
minor 1
list 32
process 4713 3000000
process 4714 4000000
mps 4714 4000000
mps 4715 5
samples 0 0
memory 7 0 8
clock 1 345 1980
throttle 300
ecc 3 1
rows 1 2 1 1
link 0 1 1
link 1 0 9
link 2 1 0
pcie 8 16 1 5
)";

}  // namespace

TEST_CASE("two GPUs, with everything that the driver reports") {
  const NvmlAnswer answer = PlayedMachine(kTwoGpus).ask();
  REQUIRE(answer.outcome == NvmlOutcome::kAnswered);
  CHECK(answer.driver == "580.159.04");
  CHECK(answer.problems.empty());
  REQUIRE(answer.devices.size() == 2);

  NvmlDevice first{
      .gpu = {.pci = "0000:0a:00.0", .index = 0, .uuid = "GPU-aaaa", .name = "NVIDIA H200"}, .minor = 0, .mig = false};
  first.processes = {{4711, 1000000}, {4712, std::nullopt}};
  GpuHealth health;
  health.utilization_mean = 90;  // of 80 and 100: a value above 100 % is not a valid sample
  health.utilization_variance = 100;
  health.memory_utilization_mean = 40;
  health.memory_used = 2000000;
  health.memory_total = 150000000000;
  health.sm_clock = health.sm_clock_max = 1980;
  health.memory_clock = health.memory_clock_max = 3201;
  health.power_w = 650;
  health.power_mean_w = 500;  // of the last second: the samples before it are of an earlier time
  health.power_limit_w = 700;
  health.temperature_c = 61;
  health.ecc_corrected = health.ecc_uncorrected = 0;
  health.remapped_rows = 0;
  health.nvlinks = health.nvlinks_up = 2;
  health.nvlink_errors = 8;  // two in each of four counters
  health.pcie_width = health.pcie_width_max = 16;
  health.pcie_generation = health.pcie_generation_max = 5;
  health.driver = "580.159.04";
  first.gpu.health = health;
  CHECK(answer.devices[0] == first);

  const NvmlDevice& second = answer.devices[1];
  CHECK(second.gpu.pci == "0001:ca:00.0");
  CHECK(second.processes == std::vector<NvmlProcess>{{4713, 3000000}, {4714, 4000000, true}, {4715, 5, true}});
  CHECK_FALSE(second.mig);
  CHECK(second.gpu.health->utilization_mean == 0.0);
  CHECK(second.gpu.health->utilization_variance == 0.0);
  CHECK(second.gpu.health->throttle ==
        std::vector<std::string>{"sw-power-cap", "hw-slowdown", "sw-thermal-slowdown", "display-clocks"});
  CHECK(second.gpu.health->ecc_corrected == 3u);
  CHECK(second.gpu.health->ecc_uncorrected == 1u);
  CHECK(second.gpu.health->remapped_rows == 3u);
  CHECK(second.gpu.health->remap_pending);
  CHECK(second.gpu.health->remap_failed);
  CHECK(second.gpu.health->nvlinks == 3u);
  CHECK(second.gpu.health->nvlinks_up == 2u);
  CHECK(second.gpu.health->nvlinks_down == std::vector<unsigned>{1});
  CHECK(second.gpu.health->nvlink_errors == 4u);
  CHECK(second.gpu.health->pcie_width == 8u);
  CHECK(second.gpu.health->pcie_generation_max == 5u);
  CHECK_FALSE(second.gpu.health->power_w);
}

TEST_CASE("values that the driver does not report are empty, with old function names and without them") {
  for (const char* library : {"libfake_nvml.so", "libfake_nvml_old.so"}) {
    CAPTURE(library);
    const NvmlAnswer answer = PlayedMachine("gpu\n", library).ask();
    REQUIRE(answer.devices.size() == 1);
    NvmlDevice empty;
    empty.gpu.index = 0;
    empty.gpu.health.emplace();
    CHECK(answer.devices[0] == empty);
    CHECK(answer.problems.empty());
  }
  const NvmlAnswer old = PlayedMachine(kTwoGpus, "libfake_nvml_old.so").ask();
  REQUIRE(old.devices.size() == 2);
  CHECK(old.devices[0].processes == std::vector<NvmlProcess>{{4711, 1000000}, {4712, std::nullopt}});
  CHECK(old.devices[0].gpu.health->memory_used ==
        2500000u);  // the older call includes the memory that the driver reserves
  CHECK(old.devices[1].gpu.health->throttle.size() == 4);
}

TEST_CASE("process lists: refused, empty, longer than the first buffer") {
  CHECK_FALSE(PlayedMachine("gpu\nlist refused\n").ask().devices.at(0).processes);
  CHECK(PlayedMachine("gpu\nlist 24\n").ask().devices.at(0).processes == std::vector<NvmlProcess>{});
  for (const int row : {24, 32}) {
    std::string many = fmt::format("gpu\nlist {}\n", row);
    for (int pid = 1; pid <= 300; ++pid) many += fmt::format("process {} {}\n", pid, pid * 10);
    const auto processes = PlayedMachine(many).ask().devices.at(0).processes;
    REQUIRE(processes);
    REQUIRE(processes->size() == 300);
    CHECK(processes->back() == NvmlProcess{300, 3000});
  }
  // Rows of another length than the known ones are not read.
  CHECK_FALSE(PlayedMachine("gpu\nlist 40\nprocess 1 1\nprocess 2 2\nprocess 3 3\n").ask().devices.at(0).processes);
}

TEST_CASE("links that only field values report") {
  const GpuHealth health = *PlayedMachine("gpu\nfields\nlink 0 1 5\nlink 1 0 7\n").ask().devices.at(0).gpu.health;
  CHECK(health.nvlinks == 2u);
  CHECK(health.nvlinks_down == std::vector<unsigned>{1});
  CHECK(health.nvlink_errors == 15u);
}

TEST_CASE("the library does not start") {
  const NvmlAnswer answer = PlayedMachine("init 18\n").ask();
  CHECK(answer.outcome == NvmlOutcome::kRefused);
  REQUIRE(answer.problems.size() == 1);
  CHECK(answer.problems[0].message == "NVML does not start: Driver/library version mismatch");
  CHECK(answer.problems[0].hint->find("different versions") != std::string::npos);
  CHECK(PlayedMachine("init 4\n").ask().problems.at(0).hint->find("/dev/nvidiactl") != std::string::npos);
}

TEST_CASE("no library, no driver, no helper") {
  PlayedMachine machine("");
  std::filesystem::remove(machine.directory / "libnvidia-ml.so.1");
  const NvmlAnswer without = machine.ask();
  CHECK(without.outcome == NvmlOutcome::kNoLibrary);
  REQUIRE(without.problems.size() == 1);
  CHECK(without.problems[0].message ==
        "NVML: libnvidia-ml.so.1 cannot be loaded: libnvidia-ml.so.1: this machine has none");

  testing::write_file(machine.directory / "libnvidia-ml.so.1", std::string_view("no library"));
  CHECK(machine.ask().outcome == NvmlOutcome::kNoLibrary);

  machine.request.helper = machine.directory / "missing";
  CHECK(machine.ask().outcome == NvmlOutcome::kSilent);
  CHECK(machine.ask().problems.at(0).message.find("cannot be started: No such file") != std::string::npos);

  std::filesystem::remove(machine.directory / "nvidiactl");
  CHECK(machine.ask() == NvmlAnswer{});
}

TEST_CASE("a GPU that has fallen off its bus, and one that the container was not given") {
  const NvmlAnswer answer = PlayedMachine("driver 5\ngpu\npci 0 1 0\ngpu\nfails 15\ngpu\nfails 4\n").ask();
  CHECK(answer.outcome == NvmlOutcome::kAnswered);
  REQUIRE(answer.devices.size() == 1);
  REQUIRE(answer.problems.size() == 1);
  CHECK(answer.problems[0].message == "NVML: GPU 1: GPU is lost");
}

TEST_CASE("a call that never returns delays only its own GPU") {
  PlayedMachine machine("driver 5\ngpu\npci 0 1 0\ngpu\nfails hang\ngpu\npci 0 3 0\n");
  machine.request.timeout = std::chrono::seconds(2);
  const NvmlAnswer answer = machine.ask();
  CHECK(answer.outcome == NvmlOutcome::kAnswered);
  REQUIRE(answer.devices.size() == 2);
  CHECK(answer.devices[1].gpu.pci == "0000:03:00.0");
  REQUIRE(answer.problems.size() == 1);
  CHECK(answer.problems[0].message == "NVML: GPU 1 does not answer within 2 s");
  CHECK(no_helper_is_left());
}

TEST_CASE("a library that hangs at once") {
  PlayedMachine machine("init hang\n");
  machine.request.timeout = std::chrono::milliseconds(300);
  const NvmlAnswer answer = machine.ask();
  CHECK(answer.outcome == NvmlOutcome::kSilent);
  REQUIRE(answer.problems.size() == 1);
  CHECK(answer.problems[0].message == "NVML: the driver does not answer within 300 ms");
  CHECK(no_helper_is_left());
}

TEST_CASE("a query that nobody collects leaves nothing behind") {
  PlayedMachine machine("init hang\n");
  { const NvmlQuery query(machine.request); }
  CHECK(no_helper_is_left());
}

TEST_CASE("a library that crashes") {
  PlayedMachine machine("nonsense\n");  // the fake aborts at a line that it does not know
  rlimit before{};
  getrlimit(RLIMIT_CORE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_CORE, &none);
  const NvmlAnswer answer = machine.ask();
  setrlimit(RLIMIT_CORE, &before);
  CHECK(answer.outcome == NvmlOutcome::kSilent);
  CHECK(answer.problems.at(0).message == "NVML: the process that asks it ended without a whole answer");
}

TEST_CASE("Xid events are listed with their GPU") {
  PlayedMachine machine("gpu\npci 0 10 0\ngpu\npci 0 11 0\n");
  testing::write_file(
      machine.directory / "kmsg",
      std::string_view(
          "4,1,2,-;NVRM: Xid (PCI:0000:0A:00): 79, pid=1, GPU has fallen off the bus.\n"
          "4,2,3,-;NVRM: Xid (PCI:0000:0a:00): 31, pid=1, name=python3\n"
          "4,3,4,-;NVRM: Xid (PCI:0000:0a:00 GPU-I:05): 31, pid=1\n"
          "4,4,5,-;NVRM: Xid (PCI:0000:0b:00): , \n4,5,6,-;NVRM: Xid (PCI:0000:0b:00\n4,5,6,-;NVRM: Xid (PCI:"));
  const NvmlAnswer answer = machine.ask();
  REQUIRE(answer.devices.size() == 2);
  CHECK(answer.devices[0].xids ==
        std::vector<XidEvent>{{"0000:0a:00", 79, 1, 2e-6}, {"0000:0a:00", 31, 1, 3e-6}, {"0000:0a:00", 31, 1, 4e-6}});
  CHECK(answer.devices[1].xids.empty());
}

TEST_CASE("a GPU is the same after packing and unpacking") {
  NvmlDevice device{
      .gpu = {.pci = "0000:0a:00.0", .index = 3, .uuid = "GPU-aaaa", .name = "NVIDIA H200"}, .minor = 1, .mig = true};
  GpuHealth& health = device.gpu.health.emplace();
  health.utilization_mean = 0.5;
  health.memory_used = 150'000'000'000;
  health.throttle = {"hw-slowdown"};
  health.nvlinks_down = {7, 8};
  health.remap_failed = true;
  device.processes = {{4711, 1000000}, {4712, std::nullopt, true}};
  NvmlMessages messages;
  messages.add({'g', pack(device)});
  REQUIRE(messages.devices.size() == 1);
  CHECK(messages.devices[0] == device);

  // A list that the driver does not give differs from an empty list.
  device.processes.reset();
  device.gpu.name = "two\nlines\x01";
  messages.add({'g', pack(device)});
  CHECK_FALSE(messages.devices.at(1).processes);
  CHECK(messages.devices[1].gpu.name == "two?lines?");
}

TEST_CASE("invalid messages of the helper are ignored") {
  using nlohmann::json;
  NvmlMessages messages;
  const auto add = [&](char kind, const json& body) { messages.add({kind, json::to_msgpack(body)}); };

  for (const char kind : {'x', 'l', 'r', 'n', 'g', 'f'}) {
    CAPTURE(kind);
    messages.add({kind, {}});
    messages.add({kind, {0xc1}});                                     // no MessagePack
    messages.add({kind, {0xdf, 0xff, 0xff, 0xff, 0xff}});             // an object of 4,294,967,295 members
    messages.add({kind, std::vector<std::uint8_t>(1u << 20, 0x91)});  // an array of one array of one array ...
    add(kind, 7);
    add(kind, json::array({1, json::array({"0000:0a:00"}), json::array({7, 7}), json::array({"0000:0a:00", "x"}),
                           json::array({"0000:0a:00", -1})}));
  }
  add('?', json::object());
  CHECK_FALSE(messages.whole);
  CHECK_FALSE(messages.no_library);
  CHECK_FALSE(messages.refused);
  CHECK(messages.devices.empty());
  CHECK(messages.failed.empty());
  CHECK(messages.xids.empty());
  CHECK(messages.count == 0);

  add('n', {{"count", 4'000'000'000}, {"driver", 5}});
  CHECK(messages.count == kMaxDevices);
  CHECK(messages.driver.empty());
  add('n', {{"count", 1e300}});
  CHECK(messages.count == 0);
  add('r', {{"code", "x"}, {"words", std::string(5000, 'w')}});
  CHECK(messages.refused == -1);
  CHECK(messages.reason.size() == 1000);

  add('f', {{"index", 700}, {"code", 1}});
  add('f', {{"index", -1}, {"code", 1}});
  CHECK(messages.failed.empty());
  for (const json& index : {json("x"), json(70'000), json(-1), json(0.5), json(nullptr)}) add('g', {{"index", index}});
  CHECK(messages.devices.empty());

  add('g', {{"index", 1},
            {"minor", -1},
            {"mig", 1},
            {"pci", json::array({"a"})},
            {"health",
             {{"sm_clock", 99'999'999'999'999},
              {"nvlinks", 1.5},
              {"power_w", "650"},
              {"throttle", {1, "hw-slowdown"}},
              {"nvlinks_down", {"z", -1, 3}},
              {"remap_failed", "yes"}}},
            {"processes", {1, {{"pid", "y"}}, {{"pid", 1e12}}, {{"pid", 7}, {"memory", -1}, {"mps", 1}}}}});
  add('g', {{"index", 0}, {"health", 3}, {"processes", 5}});
  REQUIRE(messages.devices.size() == 2);
  NvmlDevice expected;
  expected.gpu.index = 1;
  expected.gpu.health.emplace();
  expected.gpu.health->throttle = {"hw-slowdown"};
  expected.gpu.health->nvlinks_down = {3};
  expected.processes = {{7, std::nullopt}};
  CHECK(messages.devices[0] == expected);
  CHECK_FALSE(messages.devices[1].processes);

  add('g', {{"index", 2}, {"processes", std::vector<json>(20'000, json{{"pid", 1}})}});
  CHECK(messages.devices.at(2).processes->size() == kMaxDeviceProcesses);
  for (int i = 0; i < 300; ++i) {
    add('g', {{"index", 3}});
    add('f', {{"index", 3}});
  }
  CHECK(messages.devices.size() == kMaxDevices);
  CHECK(messages.failed.size() == kMaxDevices);
}

}  // namespace rankstacks::gpu
