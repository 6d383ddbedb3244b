#include "capture/prepare_targets.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>

#include "base/unattended.h"
#include "python/rank_values.h"
#include "target/environment_block.h"

namespace rankstacks::capture {
namespace {

// The data that the workers fill in. It is shared with them, because a worker that is given up continues at some time,
// or never.
struct Work {
  Work(const std::vector<Pid>& pids, target::LiveImages opened, Preparing how)
      : what(how), images(std::move(opened)), processes(pids), prepared(pids.size()) {}

  Preparing what;
  target::LiveImages images;
  std::vector<Pid> processes;
  std::vector<PreparedTarget> prepared;
  std::vector<target::FileToOpen> files;
  std::vector<std::size_t> asked_by;  // parallel to `files`: the process through which it is opened

  void look_at(std::size_t i) {
    auto target = target::LiveTarget::look_at(processes[i], images);
    if (!target) {
      prepared[i].error = target.error();
      return;
    }
    prepared[i].target = std::move(*target);
    // In later samples every file is known already.
    if (prepared[i].target->unopened_files().empty()) finish(i);
  }

  void finish(std::size_t i) {
    PreparedTarget& p = prepared[i];
    p.target->add_modules();
    if (what == Preparing::kModules) return;
    p.interpreters = python::find_python_runtime(*p.target);
    p.cxx = target::find_cxx_runtime(p.target->modules());
    p.abort_messages = target::find_abort_messages(p.target->modules());
    if (const auto variable = target::find_environ_variable(p.target->modules()))
      p.environment = target::read_current_environment(*p.target, *variable);
    p.rank_values = python::read_rank_values(*p.target, p.interpreters);
  }

  // Collects the files that have not been opened, each with one process that maps it and was not tried yet: a process
  // may end meanwhile, while another one still maps the file.
  void collect_files() {
    using Inode = std::pair<std::uint64_t, std::uint64_t>;
    std::set<Inode> met;
    files.clear();
    asked_by.clear();
    for (std::size_t i = 0; i < prepared.size(); ++i) {
      if (!prepared[i].target) continue;
      for (const target::FileMappings* file : prepared[i].target->unopened_files()) {
        const Inode inode(file->parts.front().device, file->parts.front().inode);
        if (met.contains(inode) || !tried.emplace(i, inode).second) continue;
        met.insert(inode);
        files.push_back(prepared[i].target->to_open(*file));
        asked_by.push_back(i);
      }
    }
  }

  std::set<std::pair<std::size_t, std::pair<std::uint64_t, std::uint64_t>>> tried;  // pairs of process and inode
};

void open_files(const std::shared_ptr<Work>& work, std::chrono::steady_clock::duration limit,
                std::chrono::steady_clock::duration silence) {
  for (work->collect_files(); !work->files.empty(); work->collect_files()) {
    // The data of a worker that is given up is not touched again.
    struct Round {
      target::LiveImages images;
      std::vector<target::FileToOpen> files;
      std::vector<std::optional<Problem>> problems;
    };
    const auto round = std::make_shared<Round>(
        Round{work->images, work->files, std::vector<std::optional<Problem>>(work->files.size())});
    target::LiveImages opened = work->images;
    const auto outcomes = Unattended{[round, limit](std::size_t i) {
                                       round->problems[i] = round->images.open(round->files[i], Deadline::after(limit));
                                     },
                                     Unattended::beyond(limit),
                                     [&](std::size_t i, const Outcome&) { opened.give_up(work->files[i]); }, silence}
                              .run(work->files.size());
    for (std::size_t i = 0; i < outcomes.size(); ++i)
      if (outcomes[i].came_back && round->problems[i])
        work->prepared[work->asked_by[i]].target->add_problem(std::move(*round->problems[i]));
  }
}

}  // namespace

Error silent_process(Pid pid, const std::string& what, const std::string& file,
                     std::chrono::steady_clock::duration limit) {
  const double seconds = std::chrono::duration<double>(limit).count();
  return {.code = ErrorCode::kTimeout,
          .subject = fmt::format("pid {}", pid),
          .what = fmt::format("{} did not come back within {:g} s{}", what, seconds,
                              file.empty() ? "" : ": it waits for " + file),
          .hint = fmt::format("a file system whose server is gone (NFS, FUSE), or memory that no process fills in, "
                              "blocks every process that touches it: /proc/{}/stack and /proc/{}/wchan show "
                              "where it waits itself; give it more time with --timeout",
                              pid, pid)};
}

std::vector<PreparedTarget> prepare_targets(const std::vector<Pid>& pids, const target::LiveImages& images,
                                            Preparing what, std::chrono::steady_clock::duration timeout,
                                            std::chrono::steady_clock::duration silence) {
  constexpr int kFilesShare = 4;  // a file gets less time than a rank: without it only its names are missing
  const auto limit = std::max<std::chrono::steady_clock::duration>(timeout, kMinTimeout);
  const auto work = std::make_shared<Work>(pids, images, what);
  std::vector<std::optional<Error>> given_up(pids.size());
  const auto note = [&](const std::vector<std::size_t>& of, const std::vector<Outcome>& outcomes) {
    for (std::size_t n = 0; n < of.size(); ++n)
      if (!outcomes[n].came_back)
        given_up[of[n]] = silent_process(pids[of[n]], "looking at it", outcomes[n].file, std::min(limit, silence));
  };

  std::vector<std::size_t> all(pids.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  note(all, Unattended{[work](std::size_t i) { work->look_at(i); }, limit, {}, silence}.run(pids.size()));

  // The data of workers that were given up is not touched from here on.
  const auto rest = std::make_shared<Work>(pids, images, what);
  for (std::size_t i = 0; i < pids.size(); ++i)
    if (!given_up[i]) rest->prepared[i] = std::move(work->prepared[i]);
  open_files(rest, std::max<std::chrono::steady_clock::duration>(timeout / kFilesShare, kMinTimeout), silence);
  std::vector<std::size_t> unfinished;
  for (std::size_t i = 0; i < pids.size(); ++i)
    if (rest->prepared[i].target && rest->prepared[i].target->modules().all().empty()) unfinished.push_back(i);
  note(unfinished,
       Unattended{[rest, unfinished](std::size_t n) { rest->finish(unfinished[n]); }, limit, {}, silence}.run(
           unfinished.size()));
  std::vector<PreparedTarget> prepared(pids.size());
  for (std::size_t i = 0; i < pids.size(); ++i) {
    if (given_up[i]) prepared[i].error = given_up[i];
    else prepared[i] = std::move(rest->prepared[i]);
  }
  return prepared;
}

}  // namespace rankstacks::capture
