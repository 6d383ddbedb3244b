#include "model/families.h"

#include <catch2/catch.hpp>
#include <random>

#include "model/process_key.h"

namespace rankstacks {
namespace {

RankSnapshot process(std::string host, std::optional<PidSpace> space, Pid pid, std::optional<Pid> parent = {}) {
  RankSnapshot one;
  one.kind = parent ? RankKind::kChild : RankKind::kRank;
  one.host = std::move(host);
  one.pid_space = std::move(space);
  one.pid = pid;
  one.parent = parent;
  return one;
}

std::vector<std::size_t> listed(std::span<const std::size_t> list) { return {list.begin(), list.end()}; }

}  // namespace

TEST_CASE("families: children and parents are those that is_parent() names, in any order of processes") {
  std::mt19937 random(20);
  for (int round = 0; round < 200; ++round) {
    JobSnapshot job;
    const auto below = [&](unsigned n) { return random() % n; };
    for (unsigned i = 0; i < 40; ++i) {
      std::optional<PidSpace> space;
      if (below(3) != 0) space = PidSpace{"boot-" + std::to_string(below(2)), below(2)};
      std::optional<Pid> parent;
      if (below(3) != 0) parent = static_cast<Pid>(1 + below(6));
      job.ranks.push_back(process("node-" + std::to_string(below(2)), space, static_cast<Pid>(1 + below(6)), parent));
    }
    const Families families(job);
    for (std::size_t a = 0; a < job.ranks.size(); ++a) {
      std::vector<std::size_t> children, parents;
      for (std::size_t b = 0; b < job.ranks.size(); ++b) {
        if (job.ranks[b].kind == RankKind::kChild && is_parent(job.ranks[a], job.ranks[b])) children.push_back(b);
        if (job.ranks[a].kind == RankKind::kChild && is_parent(job.ranks[b], job.ranks[a])) parents.push_back(b);
      }
      REQUIRE(listed(families.children_of(a)) == children);
      REQUIRE(listed(families.parents_of(a)) == parents);
    }
  }
}

TEST_CASE("families: containers that each have a process 1 do not share its children") {
  JobSnapshot job;
  for (std::uint64_t container : {1, 2, 3}) {
    job.ranks.push_back(process("node", PidSpace{"boot", container}, 1));
    job.ranks.push_back(process("node", PidSpace{"boot", container}, 7, 1));
  }
  const Families families(job);
  CHECK(listed(families.children_of(2)) == std::vector<std::size_t>{3});
  CHECK(listed(families.parents_of(5)) == std::vector<std::size_t>{4});
  CHECK(families.parents_of(4).empty());
  CHECK(families.children_of(5).empty());
}

}  // namespace rankstacks
