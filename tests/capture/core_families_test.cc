#include <catch2/catch.hpp>

#include "capture/core_families.h"

using namespace rankstacks;
using namespace rankstacks::capture;

namespace {

// "10=0 11<10": pids with their rank numbers, and children with their parents.
std::string families(std::vector<std::tuple<Pid, int, Pid>> cores) {  // pid, number, parent
  std::vector<RankSnapshot> snapshots(cores.size());
  std::vector<CoreProcess> processes;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    const auto [pid, number, parent] = cores[i];
    snapshots[i].pid = pid;
    snapshots[i].host = "node-a";
    if (number >= 0) snapshots[i].rank = number;
    processes.push_back({&snapshots[i], parent});
  }
  adopt_children(processes);
  std::string text;
  for (const RankSnapshot& s : snapshots) {
    text += (text.empty() ? "" : " ") + std::to_string(s.pid);
    if (s.rank) text += "=" + std::to_string(*s.rank);
    if (s.parent) text += "<" + std::to_string(*s.parent);
    CHECK((s.kind == RankKind::kChild) == s.parent.has_value());
  }
  return text;
}

}  // namespace

TEST_CASE("cores of a rank's workers are its children") {
  CHECK(families({{11, 0, 10}, {10, 0, 5}, {20, 1, 5}, {12, 0, 11}}) == "11<10 10=0 20=1 12<10");
  CHECK(families({{10, 0, 5}, {11, 1, 10}}) == "10=0 11=1");  // started by rank 0, but a rank of its own
  CHECK(families({{10, -1, 5}, {11, -1, 10}}) == "10 11");    // without rank numbers it is not known
  CHECK(families({{11, 0, 10}}) == "11=0");
  CHECK(families({{10, 0, 11}, {11, 0, 10}}) == "10=0 11=0");  // damaged
  CHECK(families({{10, 0, 10}}) == "10=0");
}
