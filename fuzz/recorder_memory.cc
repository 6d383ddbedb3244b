// A process's memory with PyTorch's Flight Recorder in it, damaged: any word of it may become any number or point to
// any other part, may be cut off, and may change while it is read.
//
// The input is what lies in memory from kBase on, behind a few bytes that say how it is read (Way). Its first word is
// the pointer to the recorder. Nothing else can be read. fuzz/recorder_memory_seeds.cc writes the seeds.
#include <algorithm>
#include <vector>

#include "flight_recorder/memory.h"
#include "flight_recorder/record_builder.h"
#include "input.h"
#include "recorder_image.h"

using namespace rankstacks;
using fuzz::kBase;

namespace {

class Memory {
 public:
  Memory(const fuzz::Way& way, std::span<const std::byte> image) : way_(way), image_(image.begin(), image.end()) {}

  bool read(Address at, std::span<std::byte> into) {
    if (++reads_ == way_.changes_before) change();
    bytes_ += into.size();
    if (into.empty()) return true;
    if (at < kBase || at - kBase > kLargest || into.size() > kLargest) return false;
    std::size_t from = at - kBase;
    if (!way_.repeats && (from > image_.size() || into.size() > image_.size() - from)) return false;
    while (!into.empty()) {
      from %= image_.size();
      const std::size_t n = std::min(into.size(), image_.size() - from);
      std::memcpy(into.data(), image_.data() + from, n);
      into = into.subspan(n);
      from += n;
    }
    return true;
  }

  std::size_t bytes_read() const { return bytes_; }

 private:
  // More than what the input has: it is repeated, so that a few bytes make a large vector or a long ring.
  static constexpr std::size_t kLargest = 1 << 26;

  void change() {
    const std::size_t at = std::size_t{way_.changed_word} * sizeof way_.value;
    if (at + sizeof way_.value <= image_.size()) std::memcpy(image_.data() + at, &way_.value, sizeof way_.value);
  }

  fuzz::Way way_;
  std::vector<std::byte> image_;
  std::size_t reads_ = 0, bytes_ = 0;
};

void check(const RecordedOperation& operation) {
  using namespace flight_recorder;
  fuzz::require(operation.name.size() <= kMaxText && operation.sequence >= 0, "an operation's name and number");
  for (const auto* sizes : {&operation.input_sizes, &operation.output_sizes}) {
    fuzz::require(sizes->size() <= kMaxTensors, "the tensors of an operation are bounded");
    for (const auto& tensor : *sizes)
      fuzz::require(tensor.size() <= kMaxDimensions, "the dimensions of a tensor are bounded");
  }
  for (const auto* types : {&operation.input_types, &operation.output_types})
    fuzz::require(types->size() <= kMaxTensors, "the types of an operation are bounded");
}

void check(const FlightRecord& record) {
  using namespace flight_recorder;
  fuzz::require(record.from_memory && record.groups.size() <= kMaxGroups && record.thread_ids.size() <= kMaxThreads,
                "the groups and the threads are bounded");
  std::size_t members = 0, operations = 0;
  for (const RecordedGroup& group : record.groups) {
    fuzz::require(group.name.size() <= kMaxText && group.description.size() <= kMaxText, "a group's names are bounded");
    fuzz::require(!group.library.empty() || group.operations.empty(), "a group with operations has a library");
    const auto at_most = [](const auto& one, const auto& other) { return !one || (other && *one <= *other); };
    fuzz::require(at_most(group.last_completed, group.last_started) && at_most(group.last_started, group.last_enqueued),
                  "what has ended was started, and what was started was called");
    for (const int rank : group.ranks) fuzz::require(rank >= 0, "members have numbers");
    members += group.ranks.size(), operations += group.operations.size() + group.left_out;
    for (const RecordedOperation& operation : group.operations) check(operation);
  }
  fuzz::require(members <= kMaxMembers && operations <= kMaxEntries, "the members and the operations are bounded");
  fuzz::require(record.recent_calls.size() <= kMaxRecentCalls, "the calls are bounded");
  for (const std::uint32_t group : record.recent_calls)
    fuzz::require(group < record.groups.size(), "calls are of groups");
  fuzz::require(!record.longest_gap_ms || (*record.longest_gap_ms >= 0 && record.last_call_ns), "times");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto way = input.take<fuzz::Way>();
  if (input.empty()) return 0;
  Memory memory(way, input.rest());
  const auto record = flight_recorder::read_recorder(
      [&](Address at, std::span<std::byte> into) { return memory.read(at, into); }, {kBase, way.of_gloo == 0});
  fuzz::require(memory.bytes_read() <= flight_recorder::kMaxRead, "what is read of a process is bounded");
  if (record) check(*record);
  return 0;
}
