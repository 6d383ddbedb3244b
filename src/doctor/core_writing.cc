#include "doctor/core_writing.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/text.h"
#include "doctor/core_size.h"
#include "doctor/refusal.h"
#include "report/shell_quoted.h"

namespace rankstacks::doctor {
namespace {

constexpr Area kArea = Area::kCores;
constexpr std::uint64_t kPage = 4096;  // a lower limit means no core: Linux fs/binfmt_elf.c, min_coredump

std::string first_line(const Result<std::string>& text) { return text ? text->substr(0, text->find('\n')) : ""; }

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Finding check_pipe(const System& system, const Self& self, const CorePattern& pattern,
                   const CoreDestination& destination) {
  const std::string name = base_name(pattern.program);
  if (name == "false" || name == "true")
    return problem("core-pattern", kArea,
                   fmt::format("kernel.core_pattern is \"{}\": cores are thrown away", pattern.text),
                   {sysctl(self, "kernel.core_pattern=core.%p")});
  if (!system.exists(destination.root + pattern.program)) {
    // The kernel starts it in the machine's own file system, which a container does not see.
    if (self.container.any() && destination.root.empty())
      return note(
          "core-pattern", kArea,
          fmt::format("cores go to the host's {}: they are found there, not in this container", pattern.program));
    return problem("core-pattern", kArea, fmt::format("cores are piped to {}, which is not there", pattern.program),
                   {sysctl(self, "kernel.core_pattern=core.%p")});
  }
  if (destination.handler)
    return ok("core-pattern", kArea,
              fmt::format("rankstacks core-handler keeps a small core of each process in {}",
                          destination.handler->directory));
  if (name != "systemd-coredump")
    return note("core-pattern", kArea,
                fmt::format("cores are piped to {}: where it keeps them is up to it", pattern.program));
  if (destination.systemd && destination.systemd->storage == CoredumpSettings::Storage::kNone)
    return problem("core-pattern", kArea, "systemd-coredump takes cores, and its Storage=none throws them away",
                   {"set Storage=external in /etc/systemd/coredump.conf"});
  return ok("core-pattern", kArea, "systemd-coredump keeps cores: `coredumpctl dump PID -o core.PID` fetches one");
}

Finding check_file(const System& system, const Self& self, const CorePattern& pattern) {
  const std::size_t slash = pattern.text.rfind('/');
  if (slash == std::string::npos)
    return ok("core-pattern", kArea,
              fmt::format("cores are files named {} in the process's working directory", pattern.text));
  if (pattern.text == "/dev/null")
    return problem("core-pattern", kArea, "kernel.core_pattern is /dev/null: cores are thrown away",
                   {sysctl(self, "kernel.core_pattern=core.%p")});
  const std::string directory = slash == 0 ? "/" : pattern.text.substr(0, slash);
  if (!contains(directory, '%') && directory.starts_with('/') && !system.exists(directory)) {
    return problem("core-pattern", kArea,
                   fmt::format("cores are to be files named {}, and the directory is not there{}", pattern.text,
                               self.container.any() ? " in this container" : ""),
                   {fmt::format("mkdir -p {0} && chmod 1777 {0}", report::shell_quoted(directory)),
                    sysctl(self, "kernel.core_pattern=core.%p")});
  }
  return ok("core-pattern", kArea, fmt::format("cores are files named {}", pattern.text));
}

std::string pipe_or_socket(const CorePattern& pattern) {
  return pattern.kind == CorePattern::Kind::kPipe ? base_name(pattern.program) : "the core pattern's receiver";
}

bool limit_binds(const CorePattern& pattern) {
  return pattern.kind == CorePattern::Kind::kFile || pattern.kind == CorePattern::Kind::kUnknown || pattern.obeys_limit;
}

// A process of which a core may be written.
struct Examined {
  Pid pid;
  const ProcessStatus& status;
  const std::optional<CoreSize>& size;  // of its core
};

Finding check_core_limit_of(const System& system, const Self& self, const CorePattern& pattern,
                            const Examined& process) {
  const ProcessStatus& status = process.status;
  const auto text = system.read_file(fmt::format("/proc/{}/limits", process.pid));
  const auto limit = text ? parse_core_limit(*text) : std::nullopt;
  if (!limit) return note("core-limit", kArea, "/proc/PID/limits cannot be read");
  if (!limit->soft) return ok("core-limit", kArea, "unlimited");
  const std::uint64_t soft = *limit->soft;
  if (!limit_binds(pattern))
    return ok("core-limit", kArea,
              fmt::format("its limit is {}, which does not bind {}", size_text(soft), pipe_or_socket(pattern)));
  // prlimit(2) is open to the same user, up to the hard limit; with CAP_SYS_RESOURCE neither restriction holds.
  const bool may =
      has_capability(self.status.effective, kCapSysResource) || (status.uids[0] == self.status.uids[0] && !limit->hard);
  std::vector<std::string> raise = {fmt::format("{}prlimit --pid {} --core=unlimited", may ? "" : "sudo ", kPid)};
  if (!may && self.container.any())
    raise = {"start its container with: docker run --ulimit core=-1 ..., podman run --ulimit core=-1 ..."};
  if (soft < kPage) return problem("core-limit", kArea, "its limit is 0: it would leave no core", raise);
  const std::uint64_t needed = process.size ? process.size->data : status.resident;
  const std::string sizes = fmt::format("its limit is {}, it has {} {}", size_text(soft), size_text(needed),
                                        process.size ? "for a core" : "in memory");
  if (soft < needed && pattern.kind != CorePattern::Kind::kPipe)
    return problem("core-limit", kArea, sizes + ": its core would be cut off", raise);
  return ok("core-limit", kArea, sizes);
}

// Nothing where there is no such file, or it is empty, as a kernel thread's is.
std::optional<Finding> check_coredump_filter(const System& system, Pid pid) {
  // Bits of the filter: core(5), "Controlling which mappings are written".
  constexpr unsigned kPrivate = 1u << 0, kShared = 1u << 1, kHeaders = 1u << 4;
  const auto text = system.read_file(fmt::format("/proc/{}/coredump_filter", pid));
  if (!text || text->empty()) return std::nullopt;
  const auto filter = static_cast<unsigned>(std::strtoul(text->c_str(), nullptr, 16));
  const std::vector<std::string> mend = {
      fmt::format("echo {:#x} > /proc/{}/coredump_filter", filter | kPrivate | kShared | kHeaders, kPid)};
  const std::string is = fmt::format("its coredump_filter is {:#x}: ", filter);
  if ((filter & kPrivate) == 0)
    return problem("coredump-filter", kArea, is + "stacks and heap would not be in its core", mend);
  if ((filter & kHeaders) == 0)
    return problem("coredump-filter", kArea,
                   is + "build-ids would not be in its core, so that its libraries could not be checked", mend);
  if ((filter & kShared) == 0)
    return note("coredump-filter", kArea, is + "shared memory would not be in its core", mend);
  return ok("coredump-filter", kArea, fmt::format("{:#x}: stacks, heap and build-ids would be in its core", filter));
}

std::optional<Finding> check_dumpable(const System& system, const CorePattern& pattern, Pid pid,
                                      const ProcessStatus& status) {
  if (!known_not_dumpable(system, pid, status)) return std::nullopt;
  const bool changed_user = status.uids[0] != status.uids[1] || status.uids[1] != status.uids[2];
  const std::string mode = first_line(system.read_file("/proc/sys/fs/suid_dumpable"));
  const std::string why = changed_user
                              ? "as it changed its user"
                              : "by prctl(PR_SET_DUMPABLE), a change of its user, or a program that may not be read";
  const bool safe_place = pattern.kind == CorePattern::Kind::kPipe || pattern.kind == CorePattern::Kind::kSocket ||
                          pattern.text.starts_with('/');
  // fs.suid_dumpable 2, "suidsafe": the core is written for root alone, to a pipe or an absolute path; but never
  // after prctl(PR_SET_DUMPABLE, 0).
  if (mode == "2" && safe_place)
    return note("dumpable", kArea,
                fmt::format("it is not dumpable ({}): its core is written for root alone "
                            "(fs.suid_dumpable is 2), or not at all after prctl",
                            why));
  return problem("dumpable", kArea,
                 fmt::format("it is not dumpable ({}): the kernel writes no core of it (fs.suid_dumpable is {})", why,
                             mode.empty() ? "unknown" : mode),
                 {"after a change of its user: sysctl fs.suid_dumpable=2, and a core_pattern that is a pipe or an "
                  "absolute path",
                  "after prctl(PR_SET_DUMPABLE, 0): gcore, as root"});
}

}  // namespace

CorePattern read_core_pattern(const System& system) {
  CorePattern p;
  const auto text = system.read_file("/proc/sys/kernel/core_pattern");
  if (!text) return p;
  p.text = first_line(text);
  if (p.text.starts_with('|')) {
    p.kind = CorePattern::Kind::kPipe;
    const std::size_t begin = std::min(p.text.find_first_not_of(' ', 1), p.text.size());
    p.program = p.text.substr(begin, p.text.find(' ', begin) - begin);
    const std::string name = base_name(p.program);
    p.obeys_limit = name == "systemd-coredump" || name == "apport";
  } else if (p.text.starts_with('@')) {
    p.kind = CorePattern::Kind::kSocket;  // Linux 6.16
  } else if (p.text.empty() && first_line(system.read_file("/proc/sys/kernel/core_uses_pid")) != "1") {
    p.kind = CorePattern::Kind::kNowhere;
  } else {
    p.kind = CorePattern::Kind::kFile;
  }
  return p;
}

std::vector<Finding> check_core_pattern(const System& system, const Self& self, const CorePattern& pattern,
                                        const CoreDestination& destination) {
  std::vector<Finding> findings;
  switch (pattern.kind) {
    case CorePattern::Kind::kUnknown:
      return {note("core-pattern", kArea, "/proc/sys/kernel/core_pattern cannot be read")};
    case CorePattern::Kind::kNowhere:
      return {problem("core-pattern", kArea, "kernel.core_pattern is empty: no core is written",
                      {sysctl(self, "kernel.core_pattern=core.%p")})};
    case CorePattern::Kind::kSocket:
      return {note("core-pattern", kArea,
                   fmt::format("cores go to the socket {}: where its server keeps them is up to it",
                               pattern.text.substr(pattern.text.find_first_not_of('@'))))};
    case CorePattern::Kind::kPipe: return {check_pipe(system, self, pattern, destination)};
    case CorePattern::Kind::kFile: break;
  }
  findings.push_back(check_file(system, self, pattern));
  const bool numbered = contains(pattern.text, "%p") || contains(pattern.text, "%P") || contains(pattern.text, "%i") ||
                        first_line(system.read_file("/proc/sys/kernel/core_uses_pid")) == "1";
  if (!numbered && findings.back().severity != Severity::kProblem) {
    findings.push_back(note("core-names", kArea,
                            "the name has no %p: ranks that die in one directory write over each other's core",
                            {sysctl(self, "kernel.core_pattern=" + pattern.text + ".%p")}));
  }
  return findings;
}

std::optional<CoreLimit> parse_core_limit(std::string_view limits) {
  constexpr std::string_view kName = "Max core file size";
  const std::size_t at = limits.find(kName);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view line = limits.substr(at + kName.size());
  line = line.substr(0, line.find('\n'));
  CoreLimit limit;
  for (std::optional<std::uint64_t>* value : {&limit.soft, &limit.hard}) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(word.size());
    if (word == "unlimited") continue;
    std::uint64_t n = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
    if (word.empty() || error != std::errc() || end != word.data() + word.size()) return std::nullopt;
    *value = n;
  }
  return limit;
}

Finding check_own_core_limit(const System& system, const Self& self, const CorePattern& pattern) {
  const auto text = system.read_file("/proc/self/limits");
  const auto limit = text ? parse_core_limit(*text) : std::nullopt;
  if (!limit) return note("core-limit", kArea, "/proc/self/limits cannot be read");
  if (!limit->soft) return ok("core-limit", kArea, "ulimit -c is unlimited");
  const std::uint64_t soft = *limit->soft;
  if (!limit_binds(pattern))
    return ok("core-limit", kArea,
              fmt::format("ulimit -c is {}, which does not bind {}", size_text(soft), pipe_or_socket(pattern)));
  const bool raisable = !limit->hard || *limit->hard > soft || has_capability(self.status.effective, kCapSysResource);
  std::vector<std::string> mends = {
      raisable ? "ulimit -c unlimited   (in the shell that starts the job; in a systemd unit: LimitCORE=infinity)"
               : "sudo prlimit --pid $$ --core=unlimited   (in the shell that starts the job)"};
  if (self.container.any()) mends.push_back("docker run --ulimit core=-1 ..., podman run --ulimit core=-1 ...");
  if (soft < kPage) return problem("core-limit", kArea, "ulimit -c is 0: jobs started from here leave no core", mends);
  return note("core-limit", kArea,
              fmt::format("ulimit -c is {}: larger cores of jobs started from here are cut off", size_text(soft)),
              mends);
}

std::vector<Finding> check_core_of(const System& system, const Self& self, const CorePattern& pattern, Pid pid,
                                   const ProcessStatus& status, const CoreDestination& destination) {
  const auto size = read_core_size(system, pid);
  std::vector<Finding> findings;
  findings.push_back(check_core_limit_of(system, self, pattern, {pid, status, size}));
  if (auto filter = check_coredump_filter(system, pid)) findings.push_back(std::move(*filter));
  if (size) findings.push_back(check_core_size(system, pattern, destination, pid, *size));
  if (auto dumpable = check_dumpable(system, pattern, pid, status)) findings.push_back(std::move(*dumpable));
  return findings;
}

}  // namespace rankstacks::doctor
