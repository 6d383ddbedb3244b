// What a command prints on stderr, and where its report goes.
#pragma once

#include <iosfwd>
#include <string>

#include "cli/options.h"
#include "model/snapshot.h"

namespace rankstacks::cli {

// Both texts may hold data of a target: what would affect a terminal is escaped here.
void print_error(std::ostream& err, const std::string& message, const std::string& hint);

// Warns if other users than root may replace or remove what is written into the directory.
void warn_if_others_write(const std::string& directory, std::ostream& err);

// What went wrong with single targets is in the report; it is also printed on stderr, where a script's log shows it.
// Returns the exit status that follows: 0, 1 if some rank is partial or failed, 2 if all have failed. `of` precedes
// each rank: "OLD: ".
int report_problems(const JobSnapshot& job, std::ostream& err, const std::string& of = "");

// Writes to stdout, or to the file of -o. Returns false if that failed, after a message.
bool write_report(const Options& options, const std::string& text, std::ostream& out, std::ostream& err);

}  // namespace rankstacks::cli
