// What an engine runs on a node: a line for its POSIX shell, which looks for the tool there, or takes it from the
// standard input, and lets it answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rankstacks::nodes {

inline constexpr std::string_view kAgentOption = "--internal-node";

struct ToolFile {
  std::string path;      // of this machine
  std::string sha256;    // in hex
  std::size_t size = 0;  // in bytes
};

// A common start is not waited for any longer than this: the node's clock differs from this machine's then.
inline constexpr std::chrono::seconds kMaxStartDelay{10};

struct NodeTask {
  std::string nonce;               // which this run's answers carry
  std::chrono::seconds limit{45};  // until the node ends by itself
  // When all nodes begin, by their clocks; one that is ready later begins at once. std::nullopt: each when it is ready.
  std::optional<std::chrono::system_clock::time_point> start_at;
  std::vector<std::string> words;  // the tool's arguments there
};

// Runs the tool that is at the same path as here, or that PATH names, if it is the same file by its hash; otherwise
// says that there is none ("lacks").
std::vector<std::string> find_and_run(const ToolFile& tool, const NodeTask& task);

// Writes the packed tool (gzip), which is the standard input, into a new directory of mode 0700 with enough room,
// checks its hash and runs it. The tool removes the directory before anything else (agent.h).
std::vector<std::string> copy_and_run(const ToolFile& tool, const NodeTask& task);

// For a container that is started for this: what is printed before somebody reads it is lost, so it waits for the first
// line of its standard input. Runs the tool that the image has in PATH, if it is the same file; otherwise, if `copies`,
// takes it from the rest of the input as above, or says that there is none.
std::vector<std::string> await_and_run(const ToolFile& tool, const NodeTask& task, bool copies);

}  // namespace rankstacks::nodes
