// The bytes of a saved report, read and written: of a file, or of a pipe (`<(zcat hang.json.gz)`,
// `ssh node cat hang.json |`).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace rankstacks {

// A larger one is none: 512 ranks of 1,000 threads make about 200 MB.
inline constexpr std::size_t kMaxReportBytes = std::size_t{1} << 30;

// To its end; "-" is the standard input. Waits for whoever writes to a pipe. kLimit: more than `limit` bytes, of which no more were read; kUnsupported: a
// directory, or a device, which may have no end; else the errno of what failed.
Result<std::string> read_report_file(const std::string& path, std::size_t limit = kMaxReportBytes);

// The same of a file of rules, at most kMaxRulesBytes; "-" is a file of that name.
Result<std::string> read_rules_file(const std::string& path);

// 0, or the errno of what failed. A new file can be read by its owner alone (mode 0600, whatever the umask allows); one
// that is there is overwritten and keeps its owner and mode. Pipes and devices (/dev/stdout, /dev/null) are written to
// as they are.
int write_report_file(const std::string& path, std::string_view text);

}  // namespace rankstacks
