// Writes a job snapshot and its analysis, as text and as JSON, and reads the JSON back.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analyzers/analysis.h"
#include "base/result.h"
#include "model/snapshot.h"

namespace rankstacks::report {

struct TextOptions {
  bool color = false;
  bool all_threads = false;        // --threads all: every thread in full
  std::vector<std::string> ranks;  // --rank: only these (by label, or host:pid, or pid); empty: all
  int width = 100;
};

std::string text_report(const JobSnapshot& job, const analyzers::Analysis& analysis, const TextOptions& options);

// The report as docs/json.md describes it: one object, UTF-8, ends with a newline.
std::string json_report(const JobSnapshot& job, const analyzers::Analysis& analysis);

// The same for a reader who merges it with other parts of the job, and finds anew what a comparison of ranks shows: it
// lacks clusters, verdict, chains and differences.
std::string json_part(const JobSnapshot& job, analyzers::Analysis analysis);

// Reads one JSON report, as a text or in its compact form (compact_form.h). The input is untrusted: kMalformed names
// the file and the JSON path; depth, counts and string lengths are bounded.
Result<JobSnapshot> read_json_report(std::string_view text, const std::string& subject);

// Merges several snapshots of one job (one per node), each as it comes: concatenates the ranks and re-interns the
// frames. The earliest captured_at is kept, and the offsets are shifted to it. Of duplicates (same host, pid and
// source) the first is kept, with a problem. A snapshot that is alone stays as it is.
class JobMerger {
 public:
  // Each process has its libraries at addresses of its own, and with them the frames of a job grow with its ranks. Of
  // more ranks than these, a frame that has a place within its module (Frame::offset) has the address 0.
  static constexpr std::size_t kMaxRanksWithAddresses = 16384;

  JobMerger();
  ~JobMerger();
  JobMerger(const JobMerger&) = delete;
  JobMerger& operator=(const JobMerger&) = delete;

  void add(JobSnapshot snapshot);
  JobSnapshot take();  // once, at the end

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::optional<JobSnapshot> alone_;
};

// Takes their absolute addresses from frames that have a place within their module, so that ranks with the same stacks
// have the same frames: of a part of a job of more than JobMerger::kMaxRanksWithAddresses, before it is sent.
void drop_addresses(JobSnapshot& job);

JobSnapshot merge_snapshots(std::vector<JobSnapshot> snapshots);

}  // namespace rankstacks::report
