#include "cli/messages.h"

#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <optional>
#include <ostream>
#include <set>

#include <fmt/format.h>

#include "analyzers/node_words.h"
#include "model/host_set.h"
#include "model/rank_set.h"
#include "report/packed.h"
#include "report/problem_groups.h"
#include "report/report_file.h"
#include "report/sanitize.h"
#include "report/shell_quoted.h"

namespace rankstacks::cli {

void print_error(std::ostream& err, const std::string& message, const std::string& hint) {
  err << "rankstacks: " << report::sanitize(message) << '\n';
  if (!hint.empty()) err << "hint: " << report::sanitize(hint) << '\n';
}

void warn_if_others_write(const std::string& directory, std::ostream& err) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) return;
  const std::string what = directory + ": what is written there can be replaced or removed by ";
  if (status.st_uid != 0 && status.st_uid != geteuid())
    print_error(err, what + "its owner, user " + std::to_string(status.st_uid), "name a directory of your own");
  else if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (status.st_mode & S_ISVTX) == 0)
    print_error(err, what + "others, who may write to it", "chmod go-w -- " + report::shell_quoted(directory));
}

namespace {

// A core's problems name its file: its rank and pid do not show which of several files it was. Some messages do
// already.
std::string with_file(const std::optional<std::string>& path, const std::string& message) {
  const bool names_file = !path || message.starts_with(*path + ":");
  return (names_file ? "" : report::sanitize(*path) + ": ") + report::sanitize(message);
}

// Of a job on many nodes: one line for each kind of problem, with the nodes that have it.
void print_groups(const JobSnapshot& job, std::ostream& err, const std::string& of) {
  for (const report::ProblemGroup& group : report::problem_groups(job)) {
    std::vector<std::string> hosts;
    std::set<std::string> known;
    std::vector<std::size_t> ranks;
    for (const std::size_t r : group.ranks) {
      const RankSnapshot& rank = job.ranks[r];
      if (rank.status == Status::kComplete) continue;
      ranks.push_back(r);
      if (!rank.host.empty() && known.insert(rank.host).second) hosts.push_back(rank.host);
    }
    if (ranks.empty()) continue;
    const std::string where = hosts.size() > 1 ? fmt::format(" on {} nodes, {}", hosts.size(), format_host_set(hosts))
                              : hosts.empty()  ? ""
                                               : " on " + hosts.front();
    const auto path = ranks.size() == 1 ? job.ranks[ranks.front()].path : std::optional<std::string>();
    print_error(err, of + report::sanitize(name_ranks(job, ranks) + where) + ": " + with_file(path, group.message),
                report::sanitize(group.hint));
  }
}

}  // namespace

int report_problems(const JobSnapshot& job, std::ostream& err, const std::string& of) {
  int status = 0;
  std::size_t failed = 0;
  for (const analyzers::NodeGroup& group : analyzers::node_groups(job)) {
    status = 1;
    print_error(err, of + report::sanitize(analyzers::describe_nodes(job, group)), report::sanitize(group.first->hint));
  }
  const bool of_nodes = !job.nodes.empty();
  if (of_nodes) print_groups(job, err, of);
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.status == Status::kComplete) continue;
    status = 1;
    if (rank.status == Status::kFailed) ++failed;
    if (of_nodes) continue;
    for (const Problem& p : rank.problems)
      print_error(err, of + "rank " + report::sanitize(rank_label(rank)) + ": " + with_file(rank.path, p.message),
                  report::sanitize(p.hint.value_or("")));
  }
  if (failed == job.ranks.size()) status = 2;
  return status;
}

bool write_report(const Options& options, const std::string& text, std::ostream& out, std::ostream& err) {
  errno = 0;
  if (options.output.empty()) {
    out << text << std::flush;
    if (out || errno == EPIPE || errno == 0) return true;
    print_error(err, std::string("the report cannot be written: ") + std::strerror(errno), "");
    return false;
  }
  const auto packed = report::pack(text, report::packing_of_name(options.output), options.output);
  if (!packed) {
    print_error(err, report::sanitize(packed.error().message()), packed.error().hint);
    return false;
  }
  const int why = report::write_report_file(options.output, *packed);
  if (why != 0) print_error(err, report::sanitize(options.output) + ": cannot be written: " + std::strerror(why), "");
  return why == 0;
}

}  // namespace rankstacks::cli
