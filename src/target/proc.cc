#include "target/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace rankstacks::target::proc {
namespace {

struct DirCloser {
  void operator()(DIR* d) const { closedir(d); }
};

std::vector<std::int32_t> numbers_in(const std::string& path) {
  std::vector<std::int32_t> numbers;
  const std::unique_ptr<DIR, DirCloser> dir(opendir(path.c_str()));
  if (!dir) return numbers;
  while (const dirent* entry = readdir(dir.get())) {
    std::int32_t n = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    if (auto [p, e] = std::from_chars(entry->d_name, end, n); e == std::errc() && p == end) numbers.push_back(n);
  }
  return numbers;
}

template <class T>
bool take_number(std::string_view& text, T& value, int base) {
  const auto [p, e] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (e != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(p - text.data()));
  return true;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return fail({.code = errno == EACCES ? ErrorCode::kPermission : ErrorCode::kUnreadable,
                 .subject = path,
                 .what = "cannot open",
                 .os_errno = errno});
  std::string text;
  std::size_t used = 0;
  text.resize(std::min<std::size_t>(4096, limit));
  while (true) {
    if (used == text.size()) {
      if (used >= limit) break;
      text.resize(std::min(text.size() * 2, limit));
    }
    const ssize_t n = read(fd, text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int saved = errno;
      close(fd);
      return fail({.code = saved == EACCES ? ErrorCode::kPermission : ErrorCode::kUnreadable,
                   .subject = path,
                   .what = "cannot read",
                   .os_errno = saved});
    }
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
  }
  close(fd);
  text.resize(used);
  return text;
}

std::optional<std::string> read_link(const std::string& path) {
  std::string text(4096, '\0');
  const ssize_t n = readlink(path.c_str(), text.data(), text.size());
  if (n < 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(n));
  return text;
}

std::optional<Stat> parse_stat(std::string_view text) {
  // "PID (comm) S ppid ...": comm may hold anything, so it ends at the last ')'.
  const auto open_at = text.find('('), close_at = text.rfind(')');
  if (open_at == std::string_view::npos || close_at == std::string_view::npos || close_at < open_at)
    return std::nullopt;
  Stat s;
  s.name = std::string(text.substr(open_at + 1, close_at - open_at - 1));
  std::string_view rest = text.substr(close_at + 1);
  // Fields from 3 on (proc(5)): 3 state, 4 ppid, 9 flags, 14 utime, 15 stime, 20 num_threads, 22 starttime, 26
  // startcode, 28 startstack.
  int field = 3;
  std::uint64_t ticks = 0;
  while (take(rest, ' ') && field <= 28) {
    const std::string_view word = rest.substr(0, rest.find_first_of(" \n"));
    std::uint64_t n = 0;
    std::from_chars(word.data(), word.data() + word.size(), n);
    if (field == 3 && !word.empty()) s.state = word[0];
    if (field == 4) s.parent = static_cast<Pid>(n);
    if (field == 9) s.flags = n;
    if (field == 14 || field == 15) ticks += n;
    if (field == 20) s.threads = static_cast<int>(n);
    if (field == 22) s.start_ticks = n;
    if (field == 26) s.code_start = n;
    if (field == 28) s.stack_start = n;
    rest.remove_prefix(word.size());
    ++field;
  }
  if (field <= 22) return std::nullopt;
  static const double ms_per_tick = 1000.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  s.cpu_ms = static_cast<double>(ticks) * ms_per_tick;
  return s;
}

std::optional<Stat> stat_of(Pid pid) {
  const auto text = read_file(fmt::format("/proc/{}/stat", pid));
  return text ? parse_stat(*text) : std::nullopt;
}

std::optional<Stat> stat_of(Pid pid, Tid tid) {
  const auto text = read_file(fmt::format("/proc/{}/task/{}/stat", pid, tid));
  return text ? parse_stat(*text) : std::nullopt;
}

std::vector<Tid> tasks_of(Pid pid) {
  auto tids = numbers_in(fmt::format("/proc/{}/task", pid));
  std::stable_partition(tids.begin(), tids.end(), [pid](Tid t) { return t == pid; });
  return tids;
}

std::vector<int> descriptors_of(Pid pid) { return numbers_in(fmt::format("/proc/{}/fd", pid)); }

std::vector<Pid> processes() { return numbers_in("/proc"); }

std::vector<Mapping> parse_maps(std::string_view text) {
  std::vector<Mapping> maps;
  maps.reserve(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')));
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    // "start-end rwxp offset major:minor inode      path"
    Mapping m;
    std::uint64_t major = 0, minor = 0;
    if (!take_number(line, m.range.start, 16) || !take(line, '-') || !take_number(line, m.range.end, 16) ||
        !take(line, ' '))
      continue;
    if (line.size() < 5 || m.range.end < m.range.start) continue;
    m.readable = line[0] == 'r';
    m.writable = line[1] == 'w';
    m.executable = line[2] == 'x';
    line.remove_prefix(5);
    if (!take_number(line, m.file_offset, 16) || !take(line, ' ') || !take_number(line, major, 16) ||
        !take(line, ':') || !take_number(line, minor, 16) || !take(line, ' ') || !take_number(line, m.inode, 10)) {
      continue;
    }
    m.device = makedev(static_cast<unsigned>(major), static_cast<unsigned>(minor));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
    // The kernel writes a newline in a path as \012 (fs/seq_file.c, mangle_path).
    constexpr std::string_view kNewline = "\\012";
    std::string path;
    for (std::size_t at = line.find(kNewline); at != line.npos; at = line.find(kNewline)) {
      path.append(line.substr(0, at)) += '\n';
      line.remove_prefix(at + kNewline.size());
    }
    path.append(line);
    constexpr std::string_view kDeleted = " (deleted)";
    if (m.inode != 0 && path.size() > kDeleted.size() && path.ends_with(kDeleted)) {
      path.resize(path.size() - kDeleted.size());
      m.deleted = true;
    }
    m.path = std::move(path);
    maps.push_back(std::move(m));
  }
  return maps;
}

std::vector<std::string> split_nul(std::string_view text) {
  std::vector<std::string> strings;
  while (!text.empty()) {
    const std::size_t end = text.find('\0');
    strings.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return strings;
}

std::map<std::string, std::string> parse_environment(const std::vector<std::string>& strings) {
  std::map<std::string, std::string> environment;
  for (const std::string& s : strings)
    if (const auto equals = s.find('='); equals != std::string::npos && equals > 0)
      environment.emplace(s.substr(0, equals), s.substr(equals + 1));
  return environment;
}

namespace {
std::optional<long> number_in_status(const std::string& path, std::string_view field) {
  const auto text = read_file(path);
  if (!text) return std::nullopt;
  const std::string key = fmt::format("\n{}:", field);
  const auto at = text->find(key);
  if (at == std::string::npos) return std::nullopt;
  return std::strtol(text->c_str() + at + key.size(), nullptr, 10);
}
}  // namespace

std::optional<long> status_number(Pid pid, std::string_view field) {
  return number_in_status(fmt::format("/proc/{}/status", pid), field);
}

std::optional<long> thread_status_number(Pid pid, Tid tid, std::string_view field) {
  return number_in_status(fmt::format("/proc/{}/task/{}/status", pid, tid), field);
}

Pid own_pid_of(Pid pid) {
  const auto text = read_file(fmt::format("/proc/{}/status", pid));
  if (!text) return pid;
  const std::size_t at = text->find("\nNSpid:");
  if (at == std::string::npos) return pid;
  const std::size_t end = std::min(text->find('\n', at + 1), text->size());
  const std::size_t last = text->find_last_of(" \t", end - 1);
  Pid own = pid;
  if (last != std::string::npos && last > at) std::from_chars(text->data() + last + 1, text->data() + end, own);
  return own;
}

std::optional<Pid> process_of(Tid tid) {
  const auto process = status_number(tid, "Tgid");
  return process ? std::optional(static_cast<Pid>(*process)) : std::nullopt;
}

std::optional<Registers> parse_syscall(std::string_view text) {
  unsigned long long n[8] = {};
  long long number = -1;
  const std::string line(text);
  if (std::sscanf(line.c_str(), "%lld %llx %llx %llx %llx %llx %llx %llx %llx", &number, &n[0], &n[1], &n[2], &n[3],
                  &n[4], &n[5], &n[6], &n[7]) != 9 ||
      number < 0)
    return std::nullopt;
  constexpr std::int64_t kRestartSys = -512;  // ERESTARTSYS: still in the call
  Registers r;
  r.orig_rax = number;
  r.set(kRax, static_cast<std::uint64_t>(kRestartSys));
  for (const auto& [reg, at] :
       {std::pair(kRdi, 0), {kRsi, 1}, {kRdx, 2}, {kR10, 3}, {kR8, 4}, {kR9, 5}, {kRsp, 6}, {kRip, 7}})
    r.set(reg, n[at]);
  return r;
}

std::optional<Registers> waiting_registers(Pid pid, Tid tid) {
  const auto text = read_file(fmt::format("/proc/{}/task/{}/syscall", pid, tid));
  return text ? parse_syscall(*text) : std::nullopt;
}

std::optional<Registers> parse_standing(std::string_view text) {
  if (auto registers = parse_syscall(text)) return registers;
  unsigned long long sp = 0, pc = 0;
  if (std::sscanf(std::string(text).c_str(), "-1 %llx %llx", &sp, &pc) != 2) return std::nullopt;
  Registers r;
  r.set(kRsp, sp);
  r.set(kRip, pc);
  return r;
}

std::optional<Registers> standing_registers(Pid pid, Tid tid) {
  const auto text = read_file(fmt::format("/proc/{}/task/{}/syscall", pid, tid));
  return text ? parse_standing(*text) : std::nullopt;
}

std::optional<Pid> tracer_of(Pid pid, Tid tid) {
  const auto tracer = thread_status_number(pid, tid, "TracerPid");
  if (!tracer || *tracer == 0) return std::nullopt;
  return static_cast<Pid>(*tracer);
}

bool read_memory(Tid tid, Address at, std::span<std::byte> into) {
  iovec local{into.data(), into.size()}, remote{reinterpret_cast<void*>(at), into.size()};
  return process_vm_readv(tid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(into.size());
}

}  // namespace rankstacks::target::proc
