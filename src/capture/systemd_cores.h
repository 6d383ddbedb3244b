// The cores that systemd-coredump keeps as files, found by their names. No journal is read: a core that is in the
// journal alone (Storage=journal) is not among them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "base/types.h"

namespace rankstacks::capture {

// A file core.COMM.UID.BOOTID.PID.TIMESTAMP, perhaps with .zst, .lz4 or .xz behind it.
struct SystemdCore {
  std::string name;     // of the file
  std::string command;  // COMM, without its escapes
  long uid = 0;
  std::string boot;
  Pid pid = 0;
  std::chrono::system_clock::time_point time;
};
// std::nullopt: not such a name.
std::optional<SystemdCore> parse_systemd_core(std::string_view name);

struct SystemdChoice {
  static constexpr const char* kDirectory = "/var/lib/systemd/coredump";
  std::string directory = kDirectory;
  std::vector<Pid> pids;  // of each the newest core
  std::string user;       // a name or number; empty: all users
  std::string job;        // a job's name, as `attach --job` lists them; empty: all jobs
  std::optional<std::chrono::system_clock::time_point> since;
};
// "101,102", "pid:101", "user:NAME", or the name of a job. Errors: other forms, which cores cannot answer.
Result<SystemdChoice> parse_systemd_choice(std::string_view word);

// "2026-01-31", "2026-01-31 12:00", "...:30", with a T and a Z (UTC; else local time), "@1769860800", or how long ago:
// "90s", "10min", "2h", "1d".
std::optional<std::chrono::system_clock::time_point> parse_since(std::string_view text,
                                                                 std::chrono::system_clock::time_point now);

// The paths, in the order of time. Errors: no such directory, or no core in it that was asked for.
Result<std::vector<std::string>> find_systemd_cores(const SystemdChoice& choice, const Deadline& deadline);

}  // namespace rankstacks::capture
