// PyTorch's Flight Recorder as it lies in a process's memory: what a dump would say, without a dump, of live processes
// and of cores.
//
//     libtorch_cuda.so: c10d::FlightRecorder<...>::get()::instance          a local symbol of .symtab, in .bss
//        -> FlightRecorder { bool enabled_, capture_cpp_stack_; mutex; vector<Entry> entries_; size_t max_entries_, next_,
//                            id_; ...; map<id, status>; map<tuple<name, desc>, vector<uint64_t>> pg_name_to_ranks_ }
//             -> Entry { size_t id_ [, reset_epoch_], pg_id_; tuple<string, string> pg_name_; size_t collective_seq_id_,
//                        p2p_seq_id_, op_id_; string profiling_name_; shared_ptr; Event *start_, *end_; int64 created,
//                        timeout; bool isP2P_; optional<float>; optional<int64> started, completed; SmallVector input_dims_;
//                        vector types; SmallVector output_dims_; vector types; SmallVector<int64, 8> sizes_
//                        [; thread id, string thread_name_]; bool retired_ }
//
// Source: torch/csrc/distributed/c10d/NCCLUtils.hpp (2.5), FlightRecorder.hpp (2.6 and newer), read from the headers of
// the wheels of 2.5.1, 2.6.0, 2.7.1, 2.8.0, 2.9.1, 2.10.0, 2.11.0 and 2.15.0, which have these four forms of Entry;
// libstdc++ of GCC (std::tuple keeps its last element first; std::string, std::map, std::vector);
// c10/util/SmallVector.h. It records without being asked to since 2.11 (TORCH_FR_BUFFER_SIZE, 2,000 operations);
// before, that variable or TORCH_NCCL_TRACE_BUFFER_SIZE has to be set.
//
// The layout is the one of the four in which every entry that is read is sound: numbers that follow each other, flags
// that are 0 or 1, texts and sizes within their bounds. If that holds for none, there is no record.
//
// What a process has not noted is not there: an operation counts as ended when its watchdog has seen that (ten times a
// second), and whether it was started is never known.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "elf/image.h"
#include "model/flight_record.h"
#include "target/modules.h"

namespace rankstacks::flight_recorder {

struct RecorderPlace {
  Address instance = 0;  // of the pointer to the recorder
  bool of_nccl = true;   // else of gloo, and of other libraries
};

// Finds them by the symbols of the modules that are called libtorch*, which takes some milliseconds for each file: each
// is searched once, for all processes. Thread-safe.
class RecorderSymbols {
 public:
  // `which`: those of the libraries that the process uses.
  struct Which {
    bool nccl = true, gloo = true;
  };
  std::vector<RecorderPlace> find(const target::ModuleMap& modules, Which which);

 private:
  struct Found {
    std::shared_ptr<const elf::Image> image;  // keeps the address, by which it is found again, taken
    std::vector<RecorderPlace> places;        // without the module's bias
  };
  std::mutex mutex_;
  std::map<const elf::Image*, Found> found_;
};

// False if not all of it can be read.
using ReadMemory = std::function<bool(Address, std::span<std::byte>)>;

// The newest: a group that has called nothing for longer is not known.
inline constexpr std::size_t kMaxEntries = 2048;

// Bytes of a process that are read for a recorder: a sound one has some megabytes, of which nearly all are entries.
inline constexpr std::size_t kMaxRead = 64 << 20;

// std::nullopt: it has recorded nothing, is not sound, or has changed while it was read. path and age_ms are not set.
std::optional<FlightRecord> read_recorder(const ReadMemory& read, const RecorderPlace& place);

// All of them together: NCCL's groups first.
std::optional<FlightRecord> read_recorders(const ReadMemory& read, std::span<const RecorderPlace> places);

}  // namespace rankstacks::flight_recorder
