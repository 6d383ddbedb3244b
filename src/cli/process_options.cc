#include "cli/process_options.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <utility>

#include "report/sanitize.h"

namespace rankstacks::cli {
namespace {

// Parses "101,102" and "101 102", in any mixture. A word may contain blanks too: --pids "$(pgrep -f train.py)".
std::vector<Pid> parse_pids(const std::vector<std::string>& words) {
  std::vector<Pid> pids;
  for (const std::string& word : words) {
    std::size_t at = 0;
    while (at <= word.size()) {
      std::size_t comma = word.find_first_of(", \t\n", at);
      if (comma == std::string::npos) comma = word.size();
      const char* begin = word.data() + at;
      const char* end = word.data() + comma;
      Pid pid = 0;
      const auto [p, e] = std::from_chars(begin, end, pid);
      if (begin != end) {
        if (e != std::errc() || p != end || pid <= 0)
          throw CLI::ValidationError("--pids",
                                     fmt::format("expected process ids, found \"{}\"", std::string(begin, end)));
        if (std::find(pids.begin(), pids.end(), pid) == pids.end()) pids.push_back(pid);
      }
      at = comma + 1;
    }
  }
  if (pids.empty()) throw CLI::ValidationError("--pids", "expected process ids, found none");
  return pids;
}

bool is_core(const std::string& word) {
  return word.find_first_not_of("0123456789,") != std::string::npos && access(word.c_str(), F_OK) == 0;
}

}  // namespace

void ProcessOptions::add_to(CLI::App& command, const char* text) {
  pids_ = command.add_option("--pids", pid_words_, text)->type_name("PID");
  job_ =
      command
          .add_option("--job", job_name_,
                      "the ranks of the job on this machine, found by their environment; where there are several jobs, "
                      "they are listed, and JOB says which: its ID, pid:N of any of its processes, user:NAME, "
                      "cgroup:PATH")
          ->type_name("[JOB]")
          ->expected(0, 1);
  pids_->excludes(job_);
}

bool ProcessOptions::given() const { return pids_->count() != 0 || job_->count() != 0; }

void ProcessOptions::take() {
  if (job_->count() != 0) return take_job();
  if (pids_->count() != 0) options_.live.pids = parse_pids(pid_words_);
}

void ProcessOptions::take_required(const char* needed) {
  if (!given()) throw CLI::RequiredError(needed);
  take();
}

void ProcessOptions::take_with_cores() {
  if (job_->count() != 0 && is_core(job_name_))
    options_.paths.insert(options_.paths.begin(), std::exchange(job_name_, ""));
  const auto cores = std::stable_partition(pid_words_.begin(), pid_words_.end(),
                                           [](const std::string& word) { return !is_core(word); });
  options_.paths.insert(options_.paths.end(), cores, pid_words_.end());
  pid_words_.erase(cores, pid_words_.end());
  take();
}

void ProcessOptions::take_job() {
  auto choice = capture::parse_job_choice(job_name_);
  if (!choice)
    throw CLI::ValidationError("--job", fmt::format("{}, found {}", choice.error().what, report::in_quotes(job_name_)));
  options_.live.job = std::move(*choice);
}

}  // namespace rankstacks::cli
