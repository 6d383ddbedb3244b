#include "cli/job_list.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <ctime>
#include <ostream>

#include "base/text.h"
#include "capture/job_processes.h"
#include "model/rank_set.h"
#include "report/sanitize.h"
#include "report/shell_quoted.h"

namespace rankstacks::cli {
namespace {

using capture::ListedJob;
using capture::NotChosen;
using capture::WhyNoJob;

// The command line with another --job.
std::string with_job(const std::vector<std::string>& words, const std::string& job) {
  std::string line = "rankstacks";
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--job" || words[i].starts_with("--job=")) {
      const bool value_follows = words[i] == "--job" && i + 1 < words.size() && !words[i + 1].starts_with('-');
      line += " --job " + report::shell_quoted(job);
      if (value_follows) ++i;
    } else {
      line += " " + report::shell_quoted(words[i]);
    }
  }
  return line;
}

// "ranks 0-3 of 8", "rank 0 of 1"
std::string ranks_of(const ListedJob& job) {
  if (job.numbers.empty()) return "ranks without a number";
  return fmt::format("rank{} {}{}", plural(job.numbers.size()), format_numbers(job.numbers),
                     job.world_size ? fmt::format(" of {}", *job.world_size) : "");
}

std::string command_of(const ListedJob& job) {
  constexpr std::size_t kColumns = 100;
  std::string command;
  for (const std::string& word : job.command) command += (command.empty() ? "" : " ") + word;
  if (command.empty()) return "(its command cannot be read)";
  return report::cut_end(report::sanitize(command), kColumns);
}

std::string text_of(const ListedJob& job) {
  return fmt::format("  {}\n      user {}, {}, since {:%Y-%m-%d %H:%M:%S}Z, pid{} {}\n      {}\n",
                     report::sanitize(job.id), job.user.empty() ? "unknown" : report::sanitize(job.user), ranks_of(job),
                     fmt::gmtime(std::chrono::system_clock::to_time_t(job.started)), plural(job.pids.size()),
                     format_numbers(job.pids), command_of(job));
}

// A sentence that says what was asked for, and what there is instead.
std::string why_none(const NotChosen& none) {
  const std::string asked = report::in_quotes(none.choice.value);
  switch (none.why) {
    case WhyNoJob::kNoRank: return "no process of this machine has a rank in its environment";
    case WhyNoJob::kSeveral:
      return fmt::format("{} jobs {}, and --job takes one; nothing was stopped", none.jobs.size(),
                         none.choice.by == capture::JobChoice::By::kOnly ? "run on this machine" : "are meant by it");
    case WhyNoJob::kNoSuchName: return fmt::format("--job: no job of this machine is called {}", asked);
    case WhyNoJob::kNoSuchProcess: return fmt::format("--job: there is no process {}", none.choice.pid);
    case WhyNoJob::kNoJobOfProcess:
      return fmt::format("--job: process {} is no rank, has not started one, and was not started by one",
                         none.choice.pid);
    case WhyNoJob::kNoSuchUser: return fmt::format("--job: no user is called {}", asked);
    case WhyNoJob::kNoJobOfUser: return fmt::format("--job: user {} has no job on this machine", asked);
    case WhyNoJob::kNoJobInCgroup: break;
  }
  return fmt::format("--job: no job of this machine has a rank in the control group {}", asked);
}

// For a machine on which no job was found: whether some may be hidden.
std::string hint_without_jobs(const std::string& command, std::size_t hidden) {
  if (hidden == 0) return fmt::format("name the processes: rankstacks {} --pids ...", command);
  return geteuid() == 0
             ? "CAP_SYS_PTRACE is needed for those: in a container, start it with `--cap-add=SYS_PTRACE`, or "
               "run `rankstacks attach` as root on the machine itself, which looks into its containers"
             : "run rankstacks as root, or as the user whose job it is";
}

void print_without_jobs(const NotChosen& none, const std::string& command, std::ostream& err) {
  const std::size_t hidden = capture::count_hidden_environments();
  if (hidden == 0) {
    err << "rankstacks: " << why_none(none) << '\n';
  } else {
    const bool any = none.why == WhyNoJob::kNoRank;
    err << "rankstacks: " << (any ? "no process whose environment can be read has a rank in it" : why_none(none))
        << fmt::format("; the environments of {} process{} of other users cannot be read\n", hidden,
                       plural(hidden, "es"));
  }
  err << "hint: " << hint_without_jobs(command, hidden) << '\n';
}

}  // namespace

void print_not_chosen(const NotChosen& none, const std::vector<std::string>& words, std::ostream& err) {
  const std::string command = words.size() > 1 ? words[1] : "attach";
  if (none.jobs.empty()) return print_without_jobs(none, command, err);
  err << "rankstacks: " << why_none(none) << ". The job" << plural(none.jobs.size()) << ":\n";
  for (const ListedJob& job : none.jobs) err << text_of(job);
  err << "hint: " << with_job(words, none.jobs.front().id) << '\n';
  // The job that is meant may be another user's. Of those some are known without their environments, by their titles.
  if (geteuid() != 0 && capture::may_hide_ranks())
    err << "hint: jobs of other users are listed if rankstacks is run as root, or as that user\n";
}

}  // namespace rankstacks::cli
