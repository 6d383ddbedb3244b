#include "report/report_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>

#include "base/file_descriptor.h"
#include "report/packed.h"
#include "report/rules_file.h"

namespace rankstacks::report {

namespace {

// What messages call the expected file, "a saved report", and how such a file is made.
struct Wanted {
  std::string_view what, hint;
};

Result<std::string> read_file(const std::string& path, std::size_t limit, const Wanted& wanted, bool standard_input) {
  const std::string subject = standard_input ? "standard input" : path;
  const auto refuse = [&](ErrorCode code, std::string what, std::string hint = "") {
    return fail({.code = code, .subject = subject, .what = std::move(what), .hint = std::move(hint)});
  };
  const auto failed = [&](const char* what) {
    return fail({.code = errno == EACCES ? ErrorCode::kPermission : ErrorCode::kUnreadable,
                 .subject = subject,
                 .what = what,
                 .os_errno = errno});
  };
  // Checked before the file is opened: opening a device may have an effect on it.
  struct stat st {};
  if ((standard_input ? fstat(STDIN_FILENO, &st) : stat(path.c_str(), &st)) != 0) return failed("cannot open");
  if (S_ISDIR(st.st_mode))
    return refuse(ErrorCode::kUnsupported, fmt::format("a directory, not {}", wanted.what), "name the files in it");
  if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
    return refuse(ErrorCode::kUnsupported, fmt::format("a terminal or another device, not {}", wanted.what),
                  std::string(wanted.hint));
  const FileDescriptor file(standard_input ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                           : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0) return failed("cannot open");
  const auto too_large = [&](const std::string& found) {
    return refuse(ErrorCode::kLimit, fmt::format("too large: {}, {} has at most {}", found, wanted.what, limit));
  };
  if (S_ISREG(st.st_mode) && static_cast<std::uint64_t>(st.st_size) > limit)
    return too_large(fmt::format("{} bytes", st.st_size));

  std::string text;
  std::size_t used = 0;
  while (true) {
    // One byte beyond the limit distinguishes a file that is too large from one that just fits.
    if (used == text.size()) text.resize(std::min(std::max<std::size_t>(2 * used, std::size_t{1} << 16), limit + 1));
    const ssize_t n = read(file.get(), text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // an inherited standard input may be non-blocking
      pollfd more{file.get(), POLLIN, 0};
      poll(&more, 1, -1);
      continue;
    }
    if (n < 0) return failed("cannot read");
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
    if (used > limit) return too_large(fmt::format("more than {} bytes", limit));
  }
  text.resize(used);
  return text;
}

}  // namespace

Result<std::string> read_report_file(const std::string& path, std::size_t limit) {
  const bool standard_input = path == "-";
  auto text =
      read_file(path, limit, {"a saved report", "a report is written with --format json -o FILE"}, standard_input);
  if (text && packing_of_bytes(*text) != Packing::kNone)
    return unpack(std::move(*text), limit, standard_input ? "standard input" : path);
  return text;
}

Result<std::string> read_rules_file(const std::string& path) {
  return read_file(path, kMaxRulesBytes, {"a file of rules", "docs/rules.md describes such a file"}, false);
}

int write_report_file(const std::string& path, std::string_view text) {
  // A report contains command lines, paths and variables of processes whose owners may not want others to read them:
  // the mode does not depend on the umask.
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, S_IRUSR | S_IWUSR));
  if (!file.is_open()) return errno;
  while (!text.empty()) {
    const ssize_t n = write(file.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return file.close();  // NFS and quotas may only report here that there is no room
}

}  // namespace rankstacks::report
