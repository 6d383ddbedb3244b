// What PyTorch's Flight Recorder has written down of one rank: which operations it has called in which process group,
// and which of them have not ended. A dump has the last 2,000 operations; this has those that decide something.
//
//     FlightRecord
//       groups: RecordedGroup[]            as the rank names them
//         operations: RecordedOperation[]  those that have not ended, and the last ones that have; in order
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace rankstacks {
inline namespace model {

enum class RecordedState : std::uint8_t {
  kScheduled,  // called; whether the GPU has begun with it is not known, unless the job records times
  kStarted,
  kCompleted,
};

struct RecordedFrame {
  std::string function, file;
  int line = 0;
  bool operator==(const RecordedFrame&) const = default;
};

struct RecordedOperation {
  // The number of a collective in its group; of a message: among the group's messages of this rank.
  std::int64_t sequence = 0;
  bool is_message = false;
  std::string name;  // "all_reduce", "send 0->1": without the library's name, the ranks are those in the group
  RecordedState state = RecordedState::kScheduled;
  std::vector<std::vector<std::int64_t>> input_sizes, output_sizes;  // a list of dimensions for each tensor
  std::vector<std::string> input_types, output_types;                // "Float", for each tensor
  std::vector<RecordedFrame> frames;                                 // where it was called, innermost first
  bool operator==(const RecordedOperation&) const = default;
};

struct RecordedGroup {
  std::string name;         // "0": the same on all of its ranks, but two groups may have one name
  std::string description;  // "default_pg"
  std::string library;      // "nccl", "gloo"; "" if it has no operations
  std::vector<int> ranks;   // its members, as ranks of the job; empty: unknown
  // Numbers of collectives; std::nullopt: not known.
  std::optional<std::int64_t> last_enqueued, last_started, last_completed;
  std::vector<RecordedOperation> operations;
  std::size_t left_out = 0;  // operations that have not ended, beyond those that are kept
  bool operator==(const RecordedGroup&) const = default;
};

struct FlightRecord {
  std::string path;     // the dump's
  std::string version;  // of its format: "2.10"
  // How long before the stacks the file was last written; negative: after them. std::nullopt: not known.
  std::optional<double> age_ms;
  bool from_memory = false;  // of the process, or of its core: no dump was written
  // How long before the record was read, or the dump was written, the last operation was called; and the longest time
  // between two calls in succession, of the newer half of the calls. std::nullopt: not known, or there are too few.
  std::optional<double> last_call_ms, longest_gap_ms;
  std::vector<RecordedGroup> groups;
  // The last collectives that were called, oldest first: the group of each, an index into `groups`. A batch counts
  // once.
  std::vector<std::uint32_t> recent_calls;
  // pthread_self() of the threads that have called the operations: torch 2.9 and newer. Not part of reports.
  std::set<std::uint64_t> thread_ids;
  std::optional<std::int64_t> last_call_ns;  // since 1970. Not part of reports.
  bool operator==(const FlightRecord&) const = default;
};

}  // namespace model
}  // namespace rankstacks
