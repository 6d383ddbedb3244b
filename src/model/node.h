// A node of the job that was asked for its ranks by another tool (ssh, srun, ...), and why one has not answered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rankstacks {
inline namespace model {

enum class NodeFault : std::uint8_t {
  kNone,            // it has answered
  kOther,           // the engine, or the node, said something that is not known
  kUnknownHost,     // no address belongs to the name
  kNoRoute,         // the network has no way to it, or it does not answer on any
  kConnectTimeout,  // it does not answer the attempt to connect
  kRefused,         // it runs, but nothing listens there
  kConnectionLost,  // the connection ended before the answer did
  kHostKey,         // the node's key is not the known one
  kLogin,           // it does not let this user in
  kNotPermitted,    // the engine does not permit the call, or the kernel no look at the processes there
  kNoTarget,        // there is no such job, step, pod or container
  kNodeDown,        // the engine says that it is down or drained, or that the container does not run
  kBusy,            // the engine has no room for another step there
  kNoEngine,        // the engine is not on this machine, or does not work at all
  kTimeout,         // it was asked, and the answer did not come in time
  kInterrupted,     // the user did not wait for it
  kCannotRun,       // the tool does not start there
  kCannotCopy,      // the tool could not be copied there
  kMalformed,       // its answer is damaged, cut off, or too large
  kNoRanks,         // no rank of the job runs there
  kSeveralJobs,     // several jobs run there, and it was not said which is meant
  kTool,            // the tool itself has failed there
};

// Whether a node with that fault may have died, or lost its network: its ranks then take no part in the job any more.
constexpr bool may_be_dead(NodeFault fault) {
  return fault == NodeFault::kNoRoute || fault == NodeFault::kConnectTimeout || fault == NodeFault::kNodeDown ||
         fault == NodeFault::kTimeout;
}

struct NodeSnapshot {
  std::string name;  // as the host list, or the engine, names it
  NodeFault fault = NodeFault::kNone;
  std::string engine;      // the command by which it was asked: "ssh"
  std::string said = {};   // of a fault: the engine's or node's own words, at most 512 bytes
  std::string hint = {};   // of a fault: what a person can do; may be empty
  std::vector<int> ranks;  // a node that has not answered: its ranks, as far as the other nodes show; else empty
  // The node's clock less this machine's, by the line that it sent first; it is known up to `clock_error_ms`.
  std::optional<double> clock_offset_ms = {}, clock_error_ms = {};
  // Where all nodes were to begin at one moment: by how much it began after that, 0 if it did not. std::nullopt: there
  // was no such moment, or the node's clock is not this machine's.
  std::optional<double> late_ms = {};
  bool operator==(const NodeSnapshot&) const = default;
};

}  // namespace model
}  // namespace rankstacks
