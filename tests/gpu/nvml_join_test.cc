// Which GPU belongs to which process, for literal answers and literal processes.
#include <catch2/catch.hpp>

#include "gpu/nvml_join.h"

namespace rankstacks::gpu {
namespace {

struct Processes {
  std::map<Pid, Pid> parents;
  std::map<Pid, DeviceFiles> files;  // those not in it may not be seen
  ProcessFacts facts() const {
    return {[this](Pid pid) { return parents.contains(pid) ? std::optional(parents.at(pid)) : std::nullopt; },
            [this](Pid pid) { return files.contains(pid) ? std::optional(files.at(pid)) : std::nullopt; }};
  }
};

NvmlDevice device(unsigned index, std::optional<std::vector<NvmlProcess>> processes) {
  NvmlDevice d;
  d.gpu.index = index;
  d.gpu.pci = full_pci_address(0, index + 1, 0);
  d.gpu.health.emplace();
  d.minor = index;
  d.processes = std::move(processes);
  return d;
}

NvmlAnswer answer(std::vector<NvmlDevice> devices) {
  return {.outcome = NvmlOutcome::kAnswered, .devices = std::move(devices)};
}

const DeviceFiles kBoth{true, {0, 1}};

}  // namespace

TEST_CASE("by the list of processes, whatever files they have open") {
  const Processes p{{{10, 1}, {11, 1}, {50, 1}}, {{10, kBoth}, {11, kBoth}}};
  const auto joined = join_gpus(answer({device(0, {{{10, 100}, {50, 5}}}), device(1, {{{11, 200}}})}),
                                {{10, true}, {11, true}}, p.facts(), false);
  CHECK(joined.problems.empty());
  REQUIRE(joined.of.size() == 2);
  REQUIRE(joined.of.at(10).size() == 1);
  CHECK(joined.of.at(10)[0].index == 0u);
  CHECK(joined.of.at(10)[0].health->process_memory == 100u);
  CHECK(joined.of.at(10)[0].health->other_processes == std::vector<Pid>{50});
  REQUIRE(joined.of.at(11).size() == 1);
  CHECK(joined.of.at(11)[0].index == 1u);
  CHECK(joined.of.at(11)[0].health->other_processes.empty());
}

TEST_CASE("two ranks on one GPU, one rank on two") {
  const Processes p{{{10, 1}, {11, 1}}, {}};
  const auto joined = join_gpus(answer({device(1, {{{10, 1}, {11, 2}}}), device(0, {{{10, 3}}})}),
                                {{10, true}, {11, true}}, p.facts(), false);
  REQUIRE(joined.of.at(10).size() == 2);
  CHECK(joined.of.at(10)[0].pci == "0000:01:00.0");
  CHECK(joined.of.at(10)[1].health->other_processes == std::vector<Pid>{11});
  CHECK(joined.of.at(11)[0].health->other_processes == std::vector<Pid>{10});
}

TEST_CASE("Xid events count since the rank was started") {
  const Processes p{{{10, 1}, {11, 1}}, {{10, kBoth}, {11, kBoth}}};
  NvmlDevice one = device(0, {{{10, 100}, {11, 100}}});
  const std::string pci = one.gpu.pci.substr(0, one.gpu.pci.rfind('.'));
  one.xids = {{pci, 31, 9, 50.0}, {pci, 13, 10, 150.0}, {pci, 79, std::nullopt, 20.0}, {pci, 43, 9, std::nullopt}};
  const auto joined = join_gpus(answer({one}), {{10, true, 100.0}, {11, true}}, p.facts(), false);
  // The work of a process that has ended since is no matter of this rank; a GPU without its bus is.
  CHECK(joined.of.at(10)[0].health->xids == std::vector<unsigned>{13, 43, 79});
  CHECK(joined.of.at(11)[0].health->xids == std::vector<unsigned>{31, 43, 79});  // it is not known since when it runs
}

TEST_CASE("Xid events of another process's work") {
  const Processes p{{{10, 1}, {11, 1}, {20, 10}, {99, 1}}, {{10, kBoth}, {11, kBoth}}};
  NvmlDevice one = device(0, {{{10, 100}, {11, 100}}});
  const std::string pci = one.gpu.pci.substr(0, one.gpu.pci.rfind('.'));
  const auto xids_with = [&](const XidEvent& event, bool own_namespace = false) {
    one.xids = {event};
    const auto joined = join_gpus(answer({one}), {{10, true, 100.0}, {11, true, 100.0}}, p.facts(), own_namespace);
    return std::pair(joined.of.at(10)[0].health->xids.size(), joined.of.at(11)[0].health->xids.size());
  };
  CHECK(xids_with({pci, 31, 10, 150.0}) == std::pair<std::size_t, std::size_t>(1, 0));
  CHECK(xids_with({pci, 31, 20, 150.0}) == std::pair<std::size_t, std::size_t>(1, 0));  // a child of the rank
  CHECK(xids_with({pci, 31, 99, 150.0}) == std::pair<std::size_t, std::size_t>(0, 0));
  CHECK(xids_with({pci, 31, 98, 150.0}) == std::pair<std::size_t, std::size_t>(1, 1));  // ended: whose child it was
  CHECK(xids_with({pci, 79, 10, 150.0}) == std::pair<std::size_t, std::size_t>(1, 1));  // the device's
  CHECK(xids_with({pci, 31, std::nullopt, 150.0}) == std::pair<std::size_t, std::size_t>(1, 1));
  CHECK(xids_with({pci, 31, 99, 150.0}, true) == std::pair<std::size_t, std::size_t>(1, 1));  // another numbering
}

TEST_CASE("children count for their rank") {
  const Processes p{{{10, 1}, {20, 10}, {21, 20}, {30, 1}}, {}};
  const auto joined =
      join_gpus(answer({device(0, {{{10, 100}, {21, 7}, {30, std::nullopt}}})}), {{10, true}}, p.facts(), false);
  REQUIRE(joined.of.size() == 1);
  CHECK(joined.of.at(10)[0].health->process_memory == 107u);
  CHECK(joined.of.at(10)[0].health->other_processes == std::vector<Pid>{30});

  const Processes circle{{{10, 1}, {40, 41}, {41, 40}}, {}};
  CHECK(join_gpus(answer({device(0, {{{40, 1}}})}), {{10, false}}, circle.facts(), false).of.empty());
}

TEST_CASE("a number of another pid namespace is not taken for a process here") {
  // In a container: pid 11 of the list is a pid of the machine; here pid 11 is a rank that has no device of NVIDIA
  // open.
  const Processes p{{{10, 1}, {11, 1}}, {{10, kBoth}, {11, {}}}};
  const auto joined = join_gpus(answer({device(0, {{{11, 100}, {4711, 5}}}), device(1, {{{0, 1}}})}),
                                {{10, true}, {11, false}}, p.facts(), true);
  CHECK(joined.of.empty());
  REQUIRE(joined.problems.size() == 1);
  CHECK(joined.problems[0].message ==
        "NVML: which GPUs pid 10 uses is not known: the driver names its processes by numbers of another pid "
        "namespace, or not at all");
  CHECK(joined.problems[0].hint->find("--pid=host") != std::string::npos);
}

TEST_CASE("without a list, by the one device file that a process has open") {
  const Processes p{{{10, 1}, {11, 1}, {12, 1}, {13, 1}},
                    {{10, {true, {0}}}, {11, {true, {1}}}, {12, kBoth}, {13, {}}}};
  const auto joined = join_gpus(answer({device(0, std::nullopt), device(1, std::nullopt)}),
                                {{10, true}, {11, true}, {12, true}, {13, true}}, p.facts(), false);
  REQUIRE(joined.of.size() == 2);
  CHECK(joined.of.at(10)[0].index == 0u);
  CHECK(joined.of.at(11)[0].index == 1u);
  CHECK_FALSE(joined.of.at(11)[0].health->process_memory);
  REQUIRE(joined.problems.size() == 1);
  CHECK(joined.problems[0].message ==
        "NVML: which GPUs pid 12 uses is not known: the driver gives this user no list of processes");
}

TEST_CASE("a process of which the list says that it has no context is none of the unknown") {
  const Processes p{{{10, 1}, {12, 1}}, {{10, kBoth}, {12, kBoth}}};
  const auto joined =
      join_gpus(answer({device(0, {{{10, 1}}}), device(1, {{}})}), {{10, true}, {12, true}}, p.facts(), false);
  CHECK(joined.of.size() == 1);
  CHECK(joined.problems.empty());
}

TEST_CASE("no device: the answer's own problems are all that is said") {
  const Processes p{{{10, 1}}, {{10, kBoth}}};
  NvmlAnswer none{.outcome = NvmlOutcome::kRefused, .problems = {{"NVML does not start: x", "y"}}};
  CHECK(join_gpus(none, {{10, true}}, p.facts(), true).problems == none.problems);
}

}  // namespace rankstacks::gpu
