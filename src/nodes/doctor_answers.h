// What the doctor says on many nodes, each finding once with the nodes that have it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/snapshot.h"
#include "nodes/ask_nodes.h"

namespace rankstacks::nodes {

struct SharedFinding {
  std::string subject, check, area, status, found;  // as in docs/json.md, "The doctor's findings"
  std::vector<std::string> mends;
  std::vector<std::string> nodes;  // in their order
  bool operator==(const SharedFinding&) const = default;
};

struct DoctorAnswers {
  JobSnapshot job;                      // only `nodes`: those that have not answered have a fault
  std::size_t answered = 0;             // nodes
  std::vector<SharedFinding> findings;  // problems first, then notes; findings of fewer nodes before those of more
  bool ok() const;                      // every node has answered, and no finding is a problem
};

// Reads what `rankstacks doctor --format json` has printed on the nodes. The input is untrusted: an answer that is
// malformed, or has more than 100,000 findings, is its node's fault.
DoctorAnswers join_doctors(std::vector<NodeAnswer> answers);

std::string json_of(const DoctorAnswers& answers);
// Findings that are all well on every node are left out.
std::string text_of(const DoctorAnswers& answers);

}  // namespace rankstacks::nodes
