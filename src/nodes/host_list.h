// Names of hosts as people and launchers write them: "a,b[1-64,70]", and the files of Open MPI and MPICH.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rankstacks::nodes {

inline constexpr std::size_t kMaxHosts = 65536;

// Expands a list: names separated by commas or blanks, each with any number of bracketed lists of numbers and ranges
// ("rack[1-2]-node[01-16,20]"). A range whose first number has leading zeros, "[01-16]", keeps that width. A name that
// is listed twice is kept once. kUsage: not such a list, or more than kMaxHosts hosts.
Result<std::vector<std::string>> parse_host_list(std::string_view text);

// Reads a hostfile: one host in each line, as Open MPI writes it ("node-1 slots=8 max_slots=8"), as MPICH does
// ("node-1:8"), or plain; the name may be a list as above; what follows "#" is a comment. Of "user@host" the host is
// taken. Open MPI's relative hosts ("+n0") and groups are kUsage. `subject`: the file's name.
Result<std::vector<std::string>> parse_hostfile(std::string_view text, const std::string& subject);

}  // namespace rankstacks::nodes
