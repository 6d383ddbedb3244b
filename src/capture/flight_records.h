// Finds the dump of PyTorch's Flight Recorder of each rank, and reads it.
//
//     named   --flight-recorder PATH...: files, and the files of directories; a file's rank is the number at the end of
//             its name, or the file is a page of torch's debug server with the answers of all ranks
//     found   at the place that the rank's environment gives, if it was written after the process began, and belongs to
//             the process's user; for a core, if it names a thread of the core, and was written shortly before it
//     asked   --flight-recorder ask: the rank is asked to write one (ask_flight_recorders.h)
//
// The second and third are at a path that the process chose. It is resolved within the process's own root directory,
// symbolic links included (openat2(2), RESOLVE_IN_ROOT), and leads to a regular file (open_regular_file), no longer
// than kMaxBytes, not to a link. Nothing here waits for a file to appear.
#pragma once

#include <sys/types.h>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "model/snapshot.h"

namespace rankstacks::capture {

// Where torch writes the dump of this rank, as the process names it; first what takes precedence.
std::vector<std::string> dump_paths(const std::map<std::string, std::string>& environment, int rank);

// "comm_lib_trace_rank_12", "trace_3.json": the number at the end of the name, without the ending.
std::optional<int> rank_of_dump(const std::string& path);

// What a file has of one rank.
struct NamedRecord {
  std::string path;
  std::optional<int> rank;
  Result<FlightRecord> record;  // without times
};

// A page of torch's debug server with the answers of all ranks; empty if the text is none.
std::vector<NamedRecord> records_of_page(std::string_view text, const std::string& path);

// What is needed to find the dump of a rank that was not named.
struct DumpPlace {
  std::string root;                               // the process's root directory, as this tool opens it
  std::vector<std::string> paths;                 // absolute, below that
  uid_t owner = 0;                                // who must own the file
  std::chrono::system_clock::time_point after{};  // when the process began
};

using Limit = std::chrono::steady_clock::duration;

// Reads the dumps of `named` for ranks without one. A file that cannot be read, or has no rank among these, is a
// problem of the first rank. `captured`: when the stacks were copied.
void add_named_dumps(std::vector<RankSnapshot>& ranks, const std::vector<std::string>& named,
                     std::chrono::system_clock::time_point captured, Limit limit);

// Sets `last_call_ms` of a record that was read or written at `at`, unless the clock has been set back since the call.
void take_time_of_last_call(FlightRecord& record, std::chrono::system_clock::time_point at);

// The place for a live process; std::nullopt if its rank or its start is unknown.
std::optional<DumpPlace> dump_place_of(const RankSnapshot& rank, const std::map<std::string, std::string>& environment);

// What the path leads to within that root directory, not opened. Linux 5.6; before, nothing is found.
FileDescriptor find_below(const FileDescriptor& root, const std::string& path);

// Reads the first of the place's files that counts; std::nullopt if none does.
std::optional<Result<FlightRecord>> read_dump_at(const DumpPlace& place,
                                                 std::chrono::system_clock::time_point captured);

// Whether the process has one of the threads that the dump names. A dump that names none may be of any process.
bool may_be_of(const FlightRecord& record, const RankSnapshot& rank);

// For each rank that has no dump yet, reads the first of its place's files that counts. A rank stays without one if
// there is none, or if the dump names threads and the rank has none of them: jobs of one user write to the same place.
// A damaged one is a problem of the rank.
void add_found_dumps(std::vector<RankSnapshot>& ranks,
                     const std::function<std::optional<DumpPlace>(const RankSnapshot&)>& place,
                     std::chrono::system_clock::time_point captured, Limit limit);

// What is needed to find the dump of a core's process.
struct CoreDumpPlace {
  std::vector<std::string> paths;  // as the process named them
  std::string core;                // the file of the core; empty: the kernel has handed it to the tool
  std::optional<uid_t> user;       // of the process, as the core says
};

// For a core, written at `written`: the first of the paths, below `sysroot` if that is not empty, at which there is a
// dump that names a thread of the core and was written in the minutes before it (or right after it). Dumps that name no
// threads may be of any job, and others do not matter. The dump has to belong to the user who owns the core; of a core
// that root or the tool's user owns, to the user that the core says.
void add_dump_of_core(RankSnapshot& rank, const CoreDumpPlace& place, const std::string& sysroot,
                      std::chrono::system_clock::time_point written, Limit limit);

}  // namespace rankstacks::capture
