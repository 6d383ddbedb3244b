// Reads and writes the bytes of a saved report: of a file, or of a pipe (`ssh node cat hang.json.zst |`). A packed one
// (packed.h) is unpacked.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace rankstacks::report {

// A larger file is not a report: 512 ranks of 1,000 threads make about 200 MB.
inline constexpr std::size_t kMaxReportBytes = std::size_t{1} << 30;

// Reads the file to its end; "-" is the standard input. Waits for the process that writes to a pipe. Errors: kLimit, if
// there are more than `limit` bytes (no more are read, or unpacked); kMalformed, if packed data is damaged;
// kUnsupported, for a directory, or a device, which may have no end; else the errno of the call that failed.
Result<std::string> read_report_file(const std::string& path, std::size_t limit = kMaxReportBytes);

// The same for a rules file, of at most kMaxRulesBytes; here "-" is a file of that name.
Result<std::string> read_rules_file(const std::string& path);

// Returns 0, or the errno of the call that failed. A new file can be read by its owner alone (mode 0600, whatever the
// umask allows); an existing file is overwritten and keeps its owner and mode. Pipes and devices (/dev/stdout,
// /dev/null) are simply written to.
int write_report_file(const std::string& path, std::string_view text);

}  // namespace rankstacks::report
