// Reads what other tools have printed about processes: py-spy dump, pystack, gdb's backtraces, cuda-gdb, eu-stack,
// Python's faulthandler, coredumpctl. One text may have several processes, or, with a launcher's prefixes or the
// headings of torch's debug server, several ranks.
//
//     text ── prefixes, headings ──> one text for each rank
//          ── recogniser ──> its tool's reader ──> Draft ──> RankSnapshot*
//
// Such files are untrusted: every count and length is bounded (draft.h), and a text that was cut off, or has lines that
// no reader understands, gives what is there, with a problem.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/snapshot.h"

namespace rankstacks::dumps {

inline constexpr std::string_view kToolNames = "py-spy, pystack, gdb, cuda-gdb, eu-stack, faulthandler or coredumpctl";

// The tool that has printed the text: "py-spy"; "" if it is of none that this directory reads.
std::string_view tool_of(std::string_view text);
// Whether the text is a dump, or a log of several ranks of which one has a dump.
bool is_dump(std::string_view text);

// `rank`: of the only process in the text, where the text itself does not say it. Errors: kMalformed: no stack in it.
Result<JobSnapshot> read_dump(std::string_view text, const std::string& path, std::optional<int> rank);

// The rank that a dump's name states: the number after the word "rank", as in a core's name, else the number between
// the last two dots, or behind the last dot, "stacks.3.txt", "stacks.3". A name with neither states none.
std::optional<int> rank_from_dump_name(const std::string& path);

// Of several dumps of one process (the same rank and pid, or the same pid where no rank is known) the best is kept: one
// with Python and native frames, else one with Python frames; of equal ones the last. It gets the GPUs of another one,
// if it has none. Earlier ones of the same tool are samples of the process, and returned, oldest first, by the index of
// the process in job.ranks; of the others a problem says that they were left out. Every dump that has neither a rank
// nor a pid is one process.
std::map<std::size_t, std::vector<RankSnapshot>> keep_one_dump_of_each(JobSnapshot& job);

}  // namespace rankstacks::dumps
