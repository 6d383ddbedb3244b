// Dumps of PyTorch's Flight Recorder, pickle or JSON: the first byte distinguishes them.
#include "flight_recorder/dump.h"
#include "flight_recorder/record_builder.h"
#include "input.h"

using namespace rankstacks;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto record = flight_recorder::read_dump({reinterpret_cast<const char*>(data), size}, "dump_0");
  if (!record) {
    fuzz::require(!record.error().what.empty(), "an error says what is wrong");
    return 0;
  }
  for (const RecordedGroup& group : record->groups)
    fuzz::require(group.operations.size() <= flight_recorder::kMaxPending * 2 * record->groups.size() + 4096,
                  "the operations that are kept are bounded");
  return 0;
}
