#include "cli/run_core_handler.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <ostream>

#include "base/whole_file.h"
#include "base/write_all.h"
#include "capture/capture_job.h"
#include "capture/dying_process.h"
#include "cli/core_stream.h"
#include "cli/dying_rights.h"
#include "cli/forked_work.h"
#include "cli/handler_slots.h"
#include "cli/kept_cores.h"
#include "cli/messages.h"
#include "cli/run_capture.h"
#include "report/packed.h"
#include "report/sanitize.h"
#include "target/dying_memory.h"
#include "target/proc.h"

namespace rankstacks::cli {
namespace {

constexpr std::uint64_t kMaxMemory = 512u << 20;  // that is copied of the process

Error os_error(const std::string& subject, const char* what, std::string hint = "") {
  const int why = errno;
  return {.code = why == EACCES || why == EPERM ? ErrorCode::kPermission : ErrorCode::kUnreadable,
          .subject = subject,
          .what = what,
          .os_errno = why,
          .hint = std::move(hint)};
}

// A full core, as it comes: written under another name, in which pages of zeros are holes, until all of it is there.
class FullCore {
 public:
  FullCore(const FileDescriptor& directory, const KeptCores& kept, std::string base, std::uint64_t most)
      : directory_(directory),
        kept_(kept),
        base_(std::move(base)),
        name_(base_ + ".full-core"),
        temporary_(fmt::format(".{}.{}", name_, getpid())),
        most_(most) {}
  ~FullCore() {
    if (file_.is_open()) unlinkat(directory_.get(), temporary_.c_str(), 0);
  }
  FullCore(const FullCore&) = delete;
  FullCore& operator=(const FullCore&) = delete;

  Result<std::uint64_t> write(const CoreHead& head, int stream, const FileOwner& owner, bool as_root,
                              const Deadline& deadline) {
    unlinkat(directory_.get(), temporary_.c_str(), 0);  // of an earlier process with this pid
    file_ = FileDescriptor(openat(directory_.get(), temporary_.c_str(),
                                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!file_.is_open()) return fail(os_error(name_, "cannot be written"));
    std::vector<char> piece(kPiece);
    while (size_ < head.bytes) {
      const auto want = std::min<std::uint64_t>(piece.size(), head.bytes - size_);
      if (pread(head.file.get(), piece.data(), want, static_cast<off_t>(size_)) != static_cast<ssize_t>(want))
        return fail(os_error(name_, "cannot be written"));
      if (auto added = append({piece.data(), want}); !added) return fail(added.error());
    }
    for (bool ended = false; !ended;) {
      const auto n = read_stream(stream, piece.data(), piece.size(), deadline);
      if (!n) return fail(n.error());
      ended = *n < piece.size();
      if (auto added = append({piece.data(), *n}); !added) return fail(added.error());
    }
    if (size_ < head.size)
      return fail({.code = ErrorCode::kMalformed,
                   .subject = name_,
                   .what = fmt::format("the core ends after {} of {} bytes: it is not kept", size_, head.size)});
    if (ftruncate(file_.get(), static_cast<off_t>(size_)) != 0 ||
        (as_root && fchown(file_.get(), owner.user, owner.group) != 0) || fsync(file_.get()) != 0 ||
        renameat(directory_.get(), temporary_.c_str(), directory_.get(), name_.c_str()) != 0)
      return fail(os_error(name_, "cannot be written"));
    file_ = FileDescriptor();
    fsync(directory_.get());
    return size_;
  }

 private:
  static constexpr std::size_t kPage = 4096, kPiece = 1 << 20;
  static constexpr std::uint64_t kBetweenChecks = 64 << 20;  // bytes, of the room that is left

  Result<void> append(std::string_view bytes) {
    if (most_ > 0 && size_ + bytes.size() > most_)
      return fail({.code = ErrorCode::kLimit,
                   .subject = name_,
                   .what = "the core is larger than --max-bytes allows: it is not kept"});
    unchecked_ += bytes.size();
    if (unchecked_ >= kBetweenChecks) {
      unchecked_ = 0;
      const auto room = kept_.make_room(base_, bytes.size(), KeptCores::Size::kFull);
      if (!room && room.error().code == ErrorCode::kLimit) return room;
    }
    for (std::size_t at = 0; at < bytes.size(); at += kPage) {
      const std::string_view page = bytes.substr(at, kPage);
      if (page.find_first_not_of('\0') == std::string_view::npos) continue;
      if (const int why = write_all_at(file_.get(), page, size_ + at); why != 0)
        return fail({.subject = name_,
                     .what = "cannot be written",
                     .os_errno = why,
                     .hint = why == ENOSPC || why == EDQUOT ? "the directory needs more room" : ""});
    }
    size_ += bytes.size();
    return {};
  }

  const FileDescriptor& directory_;
  const KeptCores& kept_;
  std::string base_, name_, temporary_;
  std::uint64_t most_, size_ = 0, unchecked_ = kBetweenChecks;
  FileDescriptor file_;
};

// In another mount namespace, or below chroot(2). Its file systems are not asked: they may not answer.
bool has_another_root(Pid pid) {
  const auto other = target::proc::read_link(fmt::format("/proc/{}/ns/mnt", pid));
  if (other && other != target::proc::read_link("/proc/self/ns/mnt")) return true;
  const auto root = target::proc::read_link(fmt::format("/proc/{}/root", pid));
  return root && *root != "/";
}

// The answer of the forked process: kCore and the file, or kError, message, 0, hint.
constexpr char kCore = 'c', kError = 'e';

std::string error_answer(const Error& error) { return kError + error.message() + '\0' + error.hint; }

std::string small_core_of(const Options& options, const std::string& path, const std::string& shown,
                          const std::map<int, std::string>& descriptors) {
  const CoreHandlerOptions& handler = options.core_handler;
  JobSnapshot job = capture::capture_cores({path}, options.core, options.capture);
  if (job.ranks.size() != 1 || job.ranks.front().status == Status::kFailed) {
    Error error{.code = ErrorCode::kMalformed, .subject = shown, .what = "nothing of it could be read"};
    if (!job.ranks.empty() && !job.ranks.front().problems.empty())
      error.what += ": " + job.ranks.front().problems.front().message;
    return error_answer(error);
  }
  RankSnapshot& rank = job.ranks.front();
  for (Problem& problem : rank.problems)
    if (problem.message.starts_with(path)) problem.message.replace(0, path.size(), shown);
  capture::add_dying_descriptors(rank, descriptors);
  rank.path = shown;
  rank.host = handler.host;
  options.capture.kept->rename({{path, shown}});
  Captures captures = make_captures(std::move(job), std::nullopt, *options.capture.kept, options.with_secrets);
  if (captures.cores.size() != 1)
    return error_answer({.code = ErrorCode::kMalformed, .subject = shown, .what = "nothing of it could be read"});
  const auto& bytes = captures.cores.front().bytes;
  const auto packed = report::pack({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                   handler.plain ? report::Packing::kNone : report::Packing::kZstd, shown);
  return packed ? kCore + *packed : error_answer(packed.error());
}

Result<std::string> make_small_core(const Options& options, const CoreHead& head, FileDescriptor memory,
                                    const DyingRights& rights, const Deadline& deadline) {
  const Pid pid = options.core_handler.pid;
  const std::string shown = fmt::format("core of pid {}", pid);
  Options asked = options;
  asked.core.memory = std::make_shared<target::DyingMemory>(
      std::move(memory), FileDescriptor(fcntl(head.file.get(), F_DUPFD_CLOEXEC, 0)), head.size,
      std::min<std::uint64_t>(kMaxMemory, options.capture.memory / 2));
  // Opened with root's rights: what looks into the core may not follow /proc/PID/root.
  FileDescriptor root;
  if (has_another_root(pid)) {
    root = FileDescriptor(open(fmt::format("/proc/{}/root", pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!root.is_open()) return fail(os_error(shown, "its root directory cannot be opened"));
    asked.core.sysroot = asked.capture.symbols.sysroot = fmt::format("/proc/self/fd/{}", root.get());
  }
  asked.core.dying = pid;
  asked.core.died_at = std::chrono::system_clock::from_time_t(options.core_handler.time);
  asked.capture.timeout = std::max<Deadline::Clock::duration>(deadline.left() / 2, std::chrono::milliseconds(100));
  // Root without capabilities may not look at the descriptors of a process that has some.
  std::map<int, std::string> descriptors;
  if (rights.reader == CoreReader::kRoot) descriptors = capture::read_dying_descriptors(pid);
  const std::string path = fmt::format("/proc/self/fd/{}", head.file.get());
  constexpr std::size_t kMaxAnswer = 512u << 20;
  auto answer = do_forked(
      [&]() -> std::string {
        // The core is not to be trusted.
        if (const auto done = become(rights); !done) return error_answer(done.error());
        return small_core_of(asked, path, shown, descriptors);
      },
      {deadline}, kMaxAnswer);
  if (!answer || answer->empty())
    return fail({.code = ErrorCode::kTimeout,
                 .subject = shown,
                 .what = "no small core of it could be made in time",
                 .hint = "give it more time with --within"});
  if (answer->front() == kCore) return answer->substr(1);
  const std::size_t end = std::min(answer->find('\0'), answer->size());
  return fail({.code = ErrorCode::kMalformed,
               .subject = "",
               .what = answer->substr(1, end - 1),
               .hint = end < answer->size() ? answer->substr(end + 1) : ""});
}

void tell(const Error& error, std::ostream& err) {
  print_error(err, report::sanitize(error.message()), report::sanitize(error.hint));
  // Nobody reads what the kernel's helper writes to stderr.
  if (getppid() > 2) return;
  const FileDescriptor log(open("/dev/kmsg", O_WRONLY | O_CLOEXEC));
  const std::string line = "<4>rankstacks core-handler: " + report::sanitize(error.message()) + '\n';
  if (log.is_open() && write(log.get(), line.data(), line.size()) < 0) return;
}

// What is written of one core, and where.
struct Output {
  const CoreHandlerOptions& handler;
  const FileDescriptor& directory;
  const KeptCores& kept;
  const std::string& base;  // of the files' names
  std::ostream& err;

  void add(const std::string& name) const {
    if (const auto added = kept.add(base, name); !added) tell(added.error(), err);
  }
};

// Whether it was written. `owner` is the one of the file, if it is not this process's user.
bool write_small_core(const Output& output, const std::string& core, const std::optional<FileOwner>& owner) {
  const std::string name = output.base + (output.handler.plain ? ".core" : ".core.zst");
  const auto room = output.kept.make_room(output.base, core.size(), KeptCores::Size::kSmall);
  if (!room) {
    tell(room.error(), output.err);
    if (room.error().code == ErrorCode::kLimit) return false;
  }
  if (const int why = write_whole_file(output.directory, name, core, owner); why != 0) {
    tell({.subject = output.handler.directory + "/" + name, .what = "cannot be written", .os_errno = why}, output.err);
    return false;
  }
  output.add(name);
  return true;
}

}  // namespace

int run_core_handler(const Options& options, std::ostream& err) {
  const CoreHandlerOptions& handler = options.core_handler;
  const Deadline deadline = Deadline::after(handler.within);
  const FileDescriptor directory(open(handler.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.is_open()) {
    tell(os_error(handler.directory, "cannot be opened, where the cores are to be written", "make it first"), err);
    return 2;
  }
  const std::string process = fmt::format("/proc/{}", handler.pid);
  FileDescriptor memory(open((process + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  if (!memory.is_open()) {
    tell(os_error(process, "cannot be read",
                  "it has to stay until its core is read: kernel.core_pattern starts this "
                  "command, with %P as the first word"),
         err);
    return 2;
  }
  const bool as_root = geteuid() == 0;
  const DyingRights rights = rights_of_dying(handler.pid, memory, handler.user, handler.group);
  const FileOwner& owner = rights.owner;
  const auto slot =
      take_slot(directory, handler.directory,
                Deadline::after(std::chrono::duration_cast<Deadline::Clock::duration>(handler.within) / 2));
  if (!slot) {
    tell(slot.error(), err);
    return 2;
  }

  const auto head = read_core_head(STDIN_FILENO, deadline);
  if (!head) {
    tell(head.error(), err);
    return 2;
  }
  const std::string base = fmt::format("{}-{}-{}", plain_name(handler.host), handler.pid, handler.time);
  const KeptCores kept(directory, handler.directory, handler.keep);
  const Output output{handler, directory, kept, base, err};
  bool small = false, full = false;
  const auto core = make_small_core(options, *head, std::move(memory), rights, deadline);
  if (core) small = write_small_core(output, *core, as_root ? std::optional(owner) : std::nullopt);
  else tell(core.error(), err);
  if (handler.full) {
    const auto written =
        FullCore(directory, kept, base, handler.max_bytes).write(*head, STDIN_FILENO, owner, as_root, deadline);
    full = written.has_value();
    if (!full) tell(written.error(), err);
    else output.add(base + ".full-core");
  }
  if (small && (full || !handler.full)) return 0;
  return small || full ? 1 : 2;
}

}  // namespace rankstacks::cli
