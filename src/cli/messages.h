// What a command prints on stderr, and where its report goes.
#pragma once

#include <iosfwd>
#include <string>

#include "cli/options.h"
#include "model/snapshot.h"

namespace rankstacks::cli {

void print_error(std::ostream& err, const std::string& message, const std::string& hint);

// What went wrong with single targets is in the report; it is also printed on stderr, where a script's log shows it.
// Returns the exit status that follows: 0, 1 if some rank is partial or failed, 2 if all have failed. `of` precedes
// each rank: "OLD: ".
int report_problems(const JobSnapshot& job, std::ostream& err, const std::string& of = "");

// Writes to stdout, or to the file of -o. Returns false if that failed, after a message.
bool write_report(const Options& options, const std::string& text, std::ostream& out, std::ostream& err);

}  // namespace rankstacks::cli
