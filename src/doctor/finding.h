// What the doctor found: one fact in each finding, and for a problem the command that fixes it.
//
//     Examination
//       sections: "this machine", then one for each process and each core
//         findings: ok | note | problem
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"

namespace rankstacks::doctor {

enum class Severity {
  kOk,
  kNote,     // worth knowing; nothing stops working because of it
  kProblem,  // an attach, or a core, would not work or lack what belongs in it
};

// What the finding is about.
enum class Area { kAttach, kCores, kNames, kGpu };

// What would be left of a process that dies: of the check "core-size".
struct CoreOutlook {
  enum class Fate { kUnknown, kWhole, kCut, kDropped, kSmall };
  std::uint64_t bytes = 0, data = 0, shared = 0;  // CoreSize
  Fate fate = Fate::kUnknown;
  // What cuts it, or drops it, and from how many bytes on: "RLIMIT_CORE", "ExternalSizeMax", "free space", ...
  std::string limit;
  std::optional<std::uint64_t> limit_bytes;
  std::string directory;  // where it would be written; "" if that is not known
  std::optional<std::uint64_t> free_bytes;
  std::optional<std::uint64_t> device;  // of that directory
  std::uint64_t room = 0;               // what it would take of it
};

struct Finding {
  std::string check;  // a stable word: scripts search for it
  Area area = Area::kAttach;
  Severity severity = Severity::kOk;
  std::string found;
  // Each is a command or a setting that helps by itself, ready to be copied; anything in it that comes from elsewhere
  // is a shell_quoted() word. kPid is a placeholder for the process's number.
  std::vector<std::string> mends;
  std::optional<CoreOutlook> core = std::nullopt;
};

// Used in `mends`, so that processes with the same finding share one text.
inline constexpr std::string_view kPid = "{PID}";

struct Section {
  std::optional<Pid> pid;           // of a process
  std::optional<std::string> path;  // of a core; without pid and path: this machine
  std::string name;                 // the process's name
  std::vector<Finding> findings;
};

struct Examination {
  std::vector<Section> sections;
  bool has_problem(Area area) const;
  int exit_status() const;  // 0: all is well; 1: there is a problem
};

inline Finding ok(std::string check, Area area, std::string found) {
  return {std::move(check), area, Severity::kOk, std::move(found), {}, std::nullopt};
}
inline Finding note(std::string check, Area area, std::string found, std::vector<std::string> mends = {}) {
  return {std::move(check), area, Severity::kNote, std::move(found), std::move(mends), std::nullopt};
}
inline Finding problem(std::string check, Area area, std::string found, std::vector<std::string> mends) {
  return {std::move(check), area, Severity::kProblem, std::move(found), std::move(mends), std::nullopt};
}

}  // namespace rankstacks::doctor
