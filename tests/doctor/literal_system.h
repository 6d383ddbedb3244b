// A literal description of a machine: what it does not mention does not exist.
#pragma once

#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <cerrno>
#include <map>
#include <set>

#include "doctor/doctor.h"
#include "doctor/self.h"

namespace rankstacks::doctor {

class LiteralSystem : public System {
 public:
  std::map<std::string, std::string> files;
  std::map<std::string, std::string> links;
  std::map<std::string, std::vector<std::string>> directories;
  std::set<std::string> present;  // paths that exist, in addition to the above
  std::map<std::string, unsigned> owners;
  std::map<std::string, Space> spaces;
  std::map<std::string, std::string> variables;
  std::map<std::string, int> open_errors;  // by path; else it opens
  std::map<Tid, int> seize_errors, read_errors, signal_errors;
  std::map<std::string, int> read_file_errors;
  Trial trial{.seize_nobody = ESRCH, .read_nobody = ESRCH};
  gpu::NvmlAnswer nvml;
  std::map<Pid, TargetFacts> processes;
  std::map<std::string, TargetFacts> cores;

  Result<std::string> read_file(const std::string& path) const override {
    const auto it = files.find(path);
    if (it != files.end()) return it->second;
    const auto error = read_file_errors.find(path);
    return fail({.code = ErrorCode::kNotFound,
                 .subject = path,
                 .what = "cannot open",
                 .os_errno = error == read_file_errors.end() ? ENOENT : error->second});
  }
  std::optional<std::string> read_link(const std::string& path) const override { return find(links, path); }
  std::vector<std::string> list(const std::string& directory) const override {
    return find(directories, directory).value_or(std::vector<std::string>{});
  }
  bool exists(const std::string& path) const override {
    return present.contains(path) || files.contains(path) || directories.contains(path);
  }
  std::optional<unsigned> owner(const std::string& path) const override { return find(owners, path); }
  std::optional<Space> space(const std::string& directory) const override { return find(spaces, directory); }
  std::optional<std::string> variable(const std::string& name) const override { return find(variables, name); }
  int try_open(const std::string& path) const override { return find(open_errors, path).value_or(0); }
  int try_reach(const std::string& path) const override { return find(open_errors, path).value_or(0); }
  int try_seize(Tid tid) const override { return find(seize_errors, tid).value_or(0); }
  int try_read(Tid tid, Address) const override { return find(read_errors, tid).value_or(0); }
  int try_signal(Pid pid) const override { return find(signal_errors, pid).value_or(ESRCH); }
  Trial try_attach() const override { return trial; }
  gpu::NvmlAnswer ask_nvml() const override { return nvml; }
  Result<TargetFacts> open_process(Pid pid) const override {
    const auto facts = find(processes, pid);
    if (!facts)
      return fail({.code = ErrorCode::kGone, .subject = fmt::format("pid {}", pid), .what = "no such process"});
    return *facts;
  }
  Result<TargetFacts> open_core(const std::string& path, const target::CoreOptions&) const override {
    const auto facts = find(cores, path);
    if (!facts) return fail({.code = ErrorCode::kMalformed, .subject = path, .what = "no ELF header", .hint = ""});
    return *facts;
  }

  // An ordinary machine, examined as root, without any problem.
  static LiteralSystem sound() {
    LiteralSystem s;
    s.files["/proc/self/status"] = status("rankstacks", 0, kAll);
    s.files["/proc/self/limits"] = limits("unlimited", "unlimited");
    s.files["/proc/self/mountinfo"] = "22 27 0:21 / /proc rw,relatime - proc proc rw\n";
    s.files["/proc/self/cgroup"] = "0::/user.slice/session-1.scope\n";
    s.files["/proc/sys/kernel/core_pattern"] = "core.%p\n";
    s.links["/proc/self/ns/user"] = "user:[4026531837]";
    s.links["/proc/self/ns/pid"] = "pid:[4026531836]";
    s.links["/proc/self/ns/mnt"] = "mnt:[4026531841]";
    return s;
  }
  // The same as an ordinary user.
  static LiteralSystem of_user(unsigned uid) {
    LiteralSystem s = sound();
    s.files["/proc/self/status"] = status("rankstacks", uid, 0);
    return s;
  }
  void in_docker() { present.insert("/.dockerenv"); }

  // A process of one thread that can be attached to.
  void add_process(Pid pid, const std::string& name, unsigned uid = 0, const std::string& more = "") {
    const std::string directory = fmt::format("/proc/{}/", pid);
    files[directory + "stat"] = fmt::format("{} ({}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0\n", pid, name);
    files[directory + "status"] = status(name, uid, 0) + more;
    files[directory + fmt::format("task/{}/status", pid)] = status(name, uid, 0) + more;
    directories[directory + "task"] = {std::to_string(pid)};
    files[directory + "maps"] = "1000-2000 r--p 00000000 08:01 77 /usr/bin/python3\n";
    files[directory + "limits"] = limits("unlimited", "unlimited");
    files[directory + "coredump_filter"] = "00000033\n";
    owners[directory + "status"] = uid;
    for (const char* kind : {"user", "pid", "mnt"})
      links[directory + "ns/" + kind] = links[std::string("/proc/self/ns/") + kind];
    processes[pid] = {.pid = pid, .executable = "/usr/bin/python3", .files = {file("/usr/bin/python3")}};
    processes[pid].files[0].main_program = true;
  }

  static FileFacts file(const std::string& path) {
    return {.path = path, .build_id = {0xab, 0xcd}, .opened = true, .symbols = true, .debug_info = true};
  }

  static std::string status(const std::string& name, unsigned uid, std::uint64_t capabilities) {
    return fmt::format(
        "Name:\t{0}\nState:\tS (sleeping)\nTracerPid:\t0\nUid:\t{1}\t{1}\t{1}\t{1}\nGid:\t{1}\t{1}\t{1}\t{1}\nVmRSS:\t "
        " 2097152 kB\n"
        "CapPrm:\t{2:016x}\nCapEff:\t{2:016x}\nSeccomp:\t0\n",
        name, uid, capabilities);
  }
  static std::string limits(const std::string& soft, const std::string& hard) {
    return fmt::format(
        "Limit                     Soft Limit           Hard Limit           Units     \nMax core file size        "
        "{:<20} {:<20} bytes     "
        "\n",
        soft, hard);
  }
  static constexpr std::uint64_t kAll = 0x1ffffffffff;

  static void replace(std::string& text, const std::string& from, const std::string& to) {
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), to);
  }

 private:
  template <class Map>
  static std::optional<typename Map::mapped_type> find(const Map& map, const typename Map::key_type& key) {
    const auto it = map.find(key);
    return it == map.end() ? std::nullopt : std::optional(it->second);
  }
};

// "problem yama: what was found -> one mend -> another"; "" if there is no such finding.
inline std::string line_of(const Section& section, const std::string& check) {
  for (const Finding& f : section.findings) {
    if (f.check != check) continue;
    std::string line = fmt::format("{} {}: {}",
                                   f.severity == Severity::kOk     ? "ok"
                                   : f.severity == Severity::kNote ? "note"
                                                                   : "problem",
                                   f.check, f.found);
    for (const std::string& mend : f.mends) line += " -> " + mend;
    return line;
  }
  return "";
}

inline std::string machine_line(const System& system, const std::string& check) {
  return line_of(examine(system, {}).sections.at(0), check);
}

inline std::string process_line(const System& system, Pid pid, const std::string& check) {
  return line_of(examine(system, {.pids = {pid}}).sections.at(1), check);
}

inline std::string core_line(const System& system, const std::string& path, const std::string& check) {
  return line_of(examine(system, {.cores = {path}}).sections.at(0), check);
}

}  // namespace rankstacks::doctor
