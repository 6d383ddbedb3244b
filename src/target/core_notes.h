// What the notes of a core say about its process: threads, signal, mapped files, auxiliary vector.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/snapshot.h"
#include "target/core_file.h"
#include "target/initial_block.h"
#include "target/own_notes.h"
#include "target/target.h"

namespace rankstacks::target {

// One entry of NT_FILE.
struct CoreFileMapping {
  Range range;
  std::uint64_t file_offset = 0;  // in bytes
  std::string path;               // " (deleted)" cut off
  bool deleted = false;
};

struct CoreNotes {
  std::vector<ThreadInfo> threads;    // in the order of the notes, each tid once
  std::optional<SignalInfo> signal;   // fatal signals only, not one that stopped the process for a tool
  std::optional<Pid> pid, parent;     // NT_PRPSINFO
  std::optional<std::uint32_t> user;  // pr_uid: the real user
  std::string name;                   // pr_fname
  std::string arguments;              // pr_psargs: the first 80 characters of the command line
  AuxiliaryVector auxv;
  std::vector<CoreFileMapping> files;  // by address, without overlaps
  bool has_files = false;              // there is an NT_FILE
  OwnNotes own;                        // of a capture
  std::vector<Problem> problems;       // one for each thing that could not be read
};

CoreNotes parse_notes(std::span<const CoreNoteSegment> segments);

}  // namespace rankstacks::target
