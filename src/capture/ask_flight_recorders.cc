#include "capture/ask_flight_recorders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/unattended.h"
#include "target/proc.h"

namespace rankstacks::capture {
namespace {

using WallClock = std::chrono::system_clock;
using Clock = std::chrono::steady_clock;

constexpr const char* kPipeVariable = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE";

// A rank that is asked; owned by the worker that asks.
struct Question {
  std::size_t rank = 0;  // index into JobSnapshot::ranks
  Pid pid = 0;
  std::uint64_t start_ticks = 0;
  std::map<std::string, std::string> variables;  // of the process, at present
  std::string pipe;                              // below the process's root directory
  DumpPlace place;
  bool asked = false;
  bool other_process = false;    // its newest dump names threads of another process
  std::optional<Error> damaged;  // its newest dump could not be read: it is being written, or is none
  std::optional<Error> failure;
  std::optional<FlightRecord> record;
};

bool is_still_there(const Question& question) {
  const auto stat = target::proc::stat_of(question.pid);
  return stat && !stat->ends() && stat->start_ticks == question.start_ticks;
}

// Whether a descriptor can read: "flags:\t0104000", octal, of /proc/PID/fdinfo.
bool can_read(Pid pid, const char* descriptor) {
  constexpr std::string_view kFlags = "flags:\t";
  const auto info = target::proc::read_file(fmt::format("/proc/{}/fdinfo/{}", pid, descriptor));
  const std::size_t at = info ? info->find(kFlags) : std::string::npos;
  unsigned flags = 0;
  if (at == std::string::npos ||
      std::from_chars(info->data() + at + kFlags.size(), info->data() + info->size(), flags, 8).ec != std::errc())
    return false;
  return (flags & O_ACCMODE) != O_WRONLY;
}

// Whether the process has this very pipe open, to read from it.
bool reads_from(Pid pid, const struct stat& pipe) {
  constexpr int kMaxDescriptors = 65'536;
  const std::string directory = fmt::format("/proc/{}/fd", pid);
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(directory.c_str()), closedir);
  if (!open) return false;
  int seen = 0;
  while (const dirent* entry = readdir(open.get())) {
    if (++seen > kMaxDescriptors) return false;
    struct stat target {};
    if (stat((directory + "/" + entry->d_name).c_str(), &target) == 0 && S_ISFIFO(target.st_mode) &&
        target.st_dev == pipe.st_dev && target.st_ino == pipe.st_ino && can_read(pid, entry->d_name))
      return true;
  }
  return false;
}

std::optional<Error> ask(const Question& question) {
  const auto failed = [&](ErrorCode code, std::string what, int why = 0, std::string hint = "") {
    return Error{.code = code,
                 .subject = question.pipe,
                 .what = std::move(what),
                 .where = {},
                 .os_errno = why,
                 .hint = std::move(hint)};
  };
  const FileDescriptor root(::open(question.place.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const FileDescriptor found = find_below(root, question.pipe);
  struct stat pipe {};
  if (found.get() < 0 || fstat(found.get(), &pipe) != 0)
    return failed(ErrorCode::kNotFound, "the Flight Recorder has no pipe there", errno,
                  "torch makes it when the first process group of NCCL is made, if TORCH_FR_BUFFER_SIZE is set too and "
                  "TORCH_NCCL_ENABLE_MONITORING is not 0");
  if (!S_ISFIFO(pipe.st_mode) || pipe.st_uid != question.place.owner)
    return failed(ErrorCode::kMismatch, "it is no pipe of this rank's user: nothing was written to it", 0,
                  "something else is at the pipe's place: give the job another TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
  if (!reads_from(question.pid, pipe) || !is_still_there(question))
    return failed(ErrorCode::kMismatch, "it is no pipe that this rank reads: nothing was written to it", 0,
                  "jobs with the same TORCH_NCCL_DEBUG_INFO_PIPE_FILE take each other's pipes away: give each its own");
  const FileDescriptor writing(
      ::open(fmt::format("/proc/self/fd/{}", found.get()).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (writing.get() < 0 || write(writing.get(), "1", 1) != 1)
    return failed(
        ErrorCode::kUnreadable, "the Flight Recorder cannot be asked", errno,
        errno == EAGAIN ? "the pipe is full of questions: the rank's heartbeat thread does not look any more" : "");
  return std::nullopt;
}

// Reads the dumps that are whole by now. Returns whether some rank has not answered yet.
bool read_answers(std::vector<Question>& questions, const std::vector<RankSnapshot>& ranks,
                  WallClock::time_point captured) {
  bool some_left = false;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    Question& question = questions[i];
    if (!question.asked || question.record) continue;
    auto found = read_dump_at(question.place, captured);
    question.damaged = found && !*found ? std::optional(found->error()) : std::nullopt;
    question.other_process = found && *found && !may_be_of(**found, ranks[i]);
    if (found && *found && !question.other_process) question.record = std::move(**found);
    else some_left = true;
  }
  return some_left;
}

// Why there is no dump of a rank that was asked.
Error no_answer(const Question& question, Clock::duration limit) {
  const double seconds = std::chrono::duration<double>(limit).count();
  Error error{.code = ErrorCode::kTimeout,
              .subject = question.pipe,
              .what = fmt::format("the Flight Recorder was asked, and has not written a dump within {:.0f} s", seconds),
              .where = {},
              .os_errno = 0,
              .hint =
                  "torch looks for the question once a second, but every 480 s only if TORCH_NCCL_DUMP_ON_TIMEOUT is "
                  "0; TORCH_INCLUDE_STACK_TRACE=0 keeps it from waiting for Python's lock"};
  if (question.damaged) {
    error.code = question.damaged->code;
    error.what = fmt::format("the Flight Recorder was asked, and its dump cannot be read after {:.0f} s: {}", seconds,
                             question.damaged->what);
    error.hint = "it may still be writing: look again without asking, which reads the dump that is there";
  } else if (question.other_process) {
    error.code = ErrorCode::kMismatch;
    error.what =
        "the Flight Recorder was asked, and a dump of another process has appeared: it has none of the rank's "
        "threads";
    error.hint = "jobs of one user write to the same place: give each its own TORCH_FR_DUMP_TEMP_FILE";
  }
  return error;
}

// Owned by the worker, which may be given up.
struct Work {
  std::vector<Question> questions;
  std::vector<RankSnapshot> ranks;  // of the questions: their threads
  WallClock::time_point captured;
  Clock::duration limit;
};

// Where the rank will write its dump. The directories of its user are in the environment that it was started with.
std::optional<DumpPlace> place_of(const Question& question, const RankSnapshot& rank) {
  std::map<std::string, std::string> variables = question.variables;
  if (const auto started_with = target::proc::read_file(fmt::format("/proc/{}/environ", question.pid)))
    variables.merge(target::proc::parse_environment(target::proc::split_nul(*started_with)));
  return dump_place_of(rank, variables);
}

void ask_all(Work& work) {
  // The kernel's clock for files is some milliseconds behind.
  constexpr std::chrono::milliseconds kCoarseClock{20};
  const auto deadline = Clock::now() + work.limit;
  for (std::size_t i = 0; i < work.questions.size(); ++i) {
    Question& question = work.questions[i];
    auto place = place_of(question, work.ranks[i]);
    if (!place) {
      question.failure = Error{.code = ErrorCode::kGone,
                               .subject = fmt::format("pid {}", question.pid),
                               .what = "its Flight Recorder cannot be asked: it has ended",
                               .where = {},
                               .os_errno = 0,
                               .hint = "look at its core, if it has left one"};
      continue;
    }
    question.place = std::move(*place);
    question.place.after = WallClock::now() - kCoarseClock;
    question.failure = ask(question);
    question.asked = !question.failure;
  }
  constexpr timespec kBetween{0, 50'000'000};
  while (read_answers(work.questions, work.ranks, work.captured) && Clock::now() < deadline)
    nanosleep(&kBetween, nullptr);
  for (Question& question : work.questions)
    if (question.asked && !question.record) question.failure = no_answer(question, work.limit);
}

// The failure: there is no pipe that could be asked.
Question question_for(const RankSnapshot& rank) {
  Question question{.rank = 0,
                    .pid = rank.pid,
                    .start_ticks = rank.start_ticks,
                    .variables = {},
                    .pipe = {},
                    .place = {},
                    .asked = false,
                    .other_process = false,
                    .damaged = {},
                    .failure = {},
                    .record = {}};
  const auto cannot = [&](std::string why, std::string hint) {
    question.failure = Error{.code = ErrorCode::kNotFound,
                             .subject = fmt::format("pid {}", question.pid),
                             .what = "its Flight Recorder cannot be asked: " + std::move(why),
                             .where = {},
                             .os_errno = 0,
                             .hint = std::move(hint)};
    return question;
  };
  if (rank.environment) question.variables = {rank.environment->variables.begin(), rank.environment->variables.end()};
  const auto stem = question.variables.find(kPipeVariable);
  if (stem == question.variables.end() || stem->second.empty())
    return cannot(fmt::format("{} is not set in it", kPipeVariable),
                  fmt::format("start the job with {}=/tmp/fr_ and TORCH_FR_BUFFER_SIZE=2000", kPipeVariable));
  if (!stem->second.starts_with('/'))
    return cannot(fmt::format("{} is \"{}\", no absolute path", kPipeVariable, stem->second),
                  fmt::format("which directory that meant is not known any more: set {}=/tmp/fr_", kPipeVariable));
  if (!rank.rank) return cannot("its rank is not known, with which the pipe's name ends", "");
  question.pipe = fmt::format("{}{}.pipe", stem->second, *rank.rank);
  return question;
}

}  // namespace

void ask_flight_recorders(JobSnapshot& job, Limit limit) {
  const auto elapsed = std::chrono::duration<double, std::milli>(job.elapsed_ms.value_or(0));
  const auto work = std::shared_ptr<Work>(
      new Work{{},
               {},
               WallClock::now() - std::chrono::duration_cast<WallClock::duration>(elapsed),
               std::min<Clock::duration>(std::max<Clock::duration>(limit, kMinTimeout), kLongestForDumps)});
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank || rank.source != Source::kLive || rank.status == Status::kFailed) continue;
    Question question = question_for(rank);
    if (question.failure) {
      rank.problems.push_back(problem_of(*question.failure));
      continue;
    }
    question.rank = r;
    work->questions.push_back(std::move(question));
    work->ranks.push_back(rank);
  }
  if (work->questions.empty()) return;
  const auto done = unattended<bool>([work] { return ask_all(*work), true; }, Unattended::beyond(work->limit));
  if (!done) {
    job.ranks[work->questions.front().rank].problems.push_back(
        problem_of({.code = ErrorCode::kTimeout,
                    .subject = "--flight-recorder ask",
                    .what = "asking the Flight Recorders was given up",
                    .hint = "the server of the file system of pipes or dumps (NFS, FUSE) is gone or slow"}));
    return;
  }
  for (Question& question : work->questions) {
    RankSnapshot& rank = job.ranks[question.rank];
    if (question.record) rank.flight_record = std::move(*question.record);
    else if (question.failure) rank.problems.push_back(problem_of(*question.failure));
  }
}

}  // namespace rankstacks::capture
