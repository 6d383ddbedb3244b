#include "doctor/process_status.h"

#include <fmt/format.h>
#include <charconv>

namespace rankstacks::doctor {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(" \t", at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(" \t", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

template <class T>
T number(std::string_view text, int base = 10) {
  T value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

}  // namespace

ProcessStatus parse_status(std::string_view text) {
  ProcessStatus s;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = line.substr(0, colon);
    const auto words = words_of(line.substr(colon + 1));
    if (words.empty()) continue;
    if (key == "Name") {
      const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
      s.name = std::string(line.substr(begin));
    } else if (key == "State") {
      s.state = words[0][0];
    } else if (key == "Uid" || key == "Gid") {
      auto& ids = key == "Uid" ? s.uids : s.gids;
      for (std::size_t i = 0; i < ids.size() && i < words.size(); ++i) ids[i] = number<unsigned>(words[i]);
    } else if (key == "CapEff") {
      s.effective = number<std::uint64_t>(words[0], 16);
    } else if (key == "CapPrm") {
      s.permitted = number<std::uint64_t>(words[0], 16);
    } else if (key == "Seccomp") {
      s.seccomp = number<int>(words[0]);
    } else if (key == "TracerPid") {
      s.tracer = number<Pid>(words[0]);
    } else if (key == "Tgid") {
      s.process = number<Pid>(words[0]);
    } else if (key == "NSpid") {
      for (const auto word : words) s.pids.push_back(number<Pid>(word));
    } else if (key == "VmRSS") {
      s.resident = number<std::uint64_t>(words[0]) * 1024;  // always in kB
    }
  }
  return s;
}

Namespaces namespaces_of(const System& system, const std::string& process) {
  const std::string directory = "/proc/" + process + "/ns/";
  return {system.read_link(directory + "user"), system.read_link(directory + "pid"),
          system.read_link(directory + "mnt")};
}

std::string capability_names(std::uint64_t set) {
  constexpr const char* kNames[] = {"CHOWN",
                                    "DAC_OVERRIDE",
                                    "DAC_READ_SEARCH",
                                    "FOWNER",
                                    "FSETID",
                                    "KILL",
                                    "SETGID",
                                    "SETUID",
                                    "SETPCAP",
                                    "LINUX_IMMUTABLE",
                                    "NET_BIND_SERVICE",
                                    "NET_BROADCAST",
                                    "NET_ADMIN",
                                    "NET_RAW",
                                    "IPC_LOCK",
                                    "IPC_OWNER",
                                    "SYS_MODULE",
                                    "SYS_RAWIO",
                                    "SYS_CHROOT",
                                    "SYS_PTRACE",
                                    "SYS_PACCT",
                                    "SYS_ADMIN",
                                    "SYS_BOOT",
                                    "SYS_NICE",
                                    "SYS_RESOURCE",
                                    "SYS_TIME",
                                    "SYS_TTY_CONFIG",
                                    "MKNOD",
                                    "LEASE",
                                    "AUDIT_WRITE",
                                    "AUDIT_CONTROL",
                                    "SETFCAP",
                                    "MAC_OVERRIDE",
                                    "MAC_ADMIN",
                                    "SYSLOG",
                                    "WAKE_ALARM",
                                    "BLOCK_SUSPEND",
                                    "AUDIT_READ",
                                    "PERFMON",
                                    "BPF",
                                    "CHECKPOINT_RESTORE"};
  constexpr int kMaxShown = 3;
  std::string names;
  int more = 0, shown = 0;
  for (unsigned i = 0; i < 64; ++i) {
    if (!has_capability(set, i)) continue;
    if (shown == kMaxShown) {
      ++more;
      continue;
    }
    names += fmt::format("{}{}", shown++ == 0 ? "" : ", ",
                         i < std::size(kNames) ? fmt::format("CAP_{}", kNames[i]) : fmt::format("capability {}", i));
  }
  return more == 0 ? names : fmt::format("{} and {} more", names, more);
}

}  // namespace rankstacks::doctor
