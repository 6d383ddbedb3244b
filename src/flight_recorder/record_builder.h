// What decides something of the operations that a Flight Recorder has, whether they come from a dump or from a
// process's memory: those that have not ended and the last ones that have, by group.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/flight_record.h"

namespace rankstacks::flight_recorder {

// Of one group: operations that have not ended (the oldest), and the last ones that have.
inline constexpr std::size_t kMaxPending = 32, kMaxEnded = 4;
inline constexpr std::size_t kMaxRecentCalls = 128;
inline constexpr std::size_t kMaxGroups = 4096, kMaxMembers = 1 << 17, kMaxText = 256, kMaxThreads = 1024;
inline constexpr std::size_t kMaxTensors = 8, kMaxDimensions = 8;  // of an operation, of a tensor

struct RecorderEntry {
  std::int64_t group = 0;  // pg_id: the process's own number
  std::string group_name, group_description;
  std::int64_t collective = 0, message = 0;  // its numbers: collective_seq_id, p2p_seq_id
  bool is_message = false;
  std::string profiling_name;  // "nccl:all_reduce"
  RecordedState state = RecordedState::kScheduled;
  bool retired = false;
  std::int64_t called_ns = 0;  // time_created_ns, since 1970; 0: not known
  std::size_t index = 0;       // the caller's
};

class RecordBuilder {
 public:
  // Groups that are known apart from their operations; kMaxGroups of them.
  void add_group(RecordedGroup group);
  // In the order in which they were called. Those of more than kMaxGroups groups are left out.
  void add(RecorderEntry entry);
  void add_thread(std::uint64_t pthread_self);

  // `add_details`: sizes, types and frames of the entry `index`. Call it once.
  FlightRecord build(const std::function<void(std::size_t index, RecordedOperation&)>& add_details);

  // After build(): the group of that number as an index into its groups, if it has operations and no messages.
  std::optional<std::size_t> group_of_collectives(std::int64_t id) const;

 private:
  struct Entry {
    RecorderEntry entry;
    std::string name;  // without the library's
  };
  bool find_group(const RecorderEntry& entry, const std::string& library);
  void take_state_of_batches();
  void take_times();
  void take_recent_calls();
  void count(const Entry& entry);
  void keep(const std::function<void(std::size_t, RecordedOperation&)>& add_details);

  FlightRecord record_;
  std::vector<Entry> entries_;
  std::map<std::int64_t, std::size_t> group_of_;  // pg_id to index in record_.groups
  std::map<std::int64_t, bool> has_messages_;
};

}  // namespace rankstacks::flight_recorder
