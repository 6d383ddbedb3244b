// Collects what is known about processes before any of them is stopped. Each process is asked once, by workers that can
// be given up: the kernel reads a process's command and environment from that process's memory, and this may wait for
// whatever the process waits for.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "capture/job_processes.h"
#include "capture/prepare_targets.h"
#include "target/live_images.h"

namespace rankstacks::capture {

class Preparer {
 public:
  // `limit` is for each process, `silence` for each of its waits (Unattended::silence). The table must outlive the
  // preparer.
  Preparer(const ProcessTable& table, Deadline::Clock::duration limit,
           Deadline::Clock::duration silence = Deadline::Clock::duration::max())
      : table_(table), limit_(limit), silence_(silence) {}
  Preparer(const Preparer&) = delete;  // facts() refers to it
  Preparer& operator=(const Preparer&) = delete;

  // Asks these processes in parallel; if they were asked one after the other, each process that does not answer would
  // cost the whole limit.
  void read_ahead(const std::vector<Pid>& pids);

  // The environment that the process was started with, overlaid by its current one: the children of
  // multiprocessing.spawn get theirs by os.environ["RANK"] = ..., which only changes libc's `environ`. With it come the
  // numbers that frameworks have in memory (python/rank_values.h).
  std::map<std::string, std::string> environment(Pid pid);

  // The other facts by which processes are planned; valid as long as the preparer is.
  ProcessFacts facts();

  // Opens what the processes have mapped. prepared() does so for one that was not prepared before.
  void prepare(const std::vector<Pid>& pids);
  PreparedTarget& prepared(Pid pid);

  // The command lines, in parallel; empty for a process that does not answer within a short time.
  std::vector<std::vector<std::string>> commands(const std::vector<Pid>& pids) const;

  const ProcessPlace& place(Pid pid);

  // Processes that may belong to this plan: they have the name of a rank, and their environment could not be read.
  std::vector<PlannedTarget> silent_ranks(const std::vector<PlannedTarget>& plan) const;

  const target::LiveImages& images() const { return images_; }

 private:
  struct Initial {
    std::map<std::string, std::string> environment;
    std::string title;
  };
  static Initial read_initial(Pid pid);
  // The first word of its command line.
  std::string title(Pid pid);
  bool is_wrapper(Pid pid) const;
  bool can_train(Pid pid) const;
  std::optional<std::string> read(const std::string& path) const;

  const ProcessTable& table_;
  Deadline::Clock::duration limit_, silence_;
  target::LiveImages images_;
  std::map<Pid, Initial> initial_;
  std::map<Pid, Error> silent_;
  std::map<Pid, PreparedTarget> prepared_;
  std::map<Pid, ProcessPlace> places_;
};

}  // namespace rankstacks::capture
