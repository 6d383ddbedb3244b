#include "doctor/core_size.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>

#include "base/memory_limit.h"
#include "base/text.h"
#include "report/shell_quoted.h"

namespace rankstacks::doctor {
namespace {

constexpr Area kArea = Area::kCores;
constexpr std::uint64_t kPage = 4096, kGiga = 1 << 30;
// NT_PRSTATUS, NT_FPREGSET and NT_X86_XSTATE with AVX-512 of one thread.
constexpr std::uint64_t kNotesOfThread = 4096;
constexpr const char* kSystemdCores = "/var/lib/systemd/coredump";

// Bits of the filter: core(5), "Controlling which mappings are written".
enum Bit : unsigned {
  kAnonymousPrivate = 1u << 0,
  kAnonymousShared = 1u << 1,
  kFilePrivate = 1u << 2,
  kFileShared = 1u << 3,
  kElfHeaders = 1u << 4,
  kHugePrivate = 1u << 5,
  kHugeShared = 1u << 6,
};

struct Mapping {
  bool readable = false, executable = false, at_start = false, of_file = false, unlinked = false, special = false;
  std::uint64_t size = 0, resident = 0, anonymous = 0, swap = 0;  // bytes
  bool shared = false, io = false, not_dumped = false, huge = false;
};

std::string_view next_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

std::uint64_t number(std::string_view word, int base = 10) {
  std::uint64_t n = 0;
  std::from_chars(word.data(), word.data() + word.size(), n, base);
  return n;
}

// "7f00-7f10 r-xp 00002000 fe:00 247498    /usr/bin/head"; other lines begin with a capital letter.
std::optional<Mapping> parse_head(std::string_view line) {
  const std::string_view range = next_word(line);
  if (range.empty() || !contains(range, '-') || range.back() == ':') return std::nullopt;
  const std::string_view rights = next_word(line);
  if (rights.size() != 4) return std::nullopt;
  Mapping mapping;
  mapping.readable = rights[0] == 'r';
  mapping.executable = rights[2] == 'x';
  mapping.at_start = number(next_word(line), 16) == 0;
  next_word(line);  // the device
  mapping.of_file = next_word(line) != "0";
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  mapping.unlinked = line.ends_with(" (deleted)");
  mapping.special = line == "[vdso]" || line == "[vsyscall]";
  return mapping;
}

void read_line(Mapping& mapping, std::string_view line) {
  const std::string_view key = next_word(line);
  const auto kilobytes = [&] { return number(next_word(line)) << 10; };
  if (key == "Size:") mapping.size = kilobytes();
  else if (key == "Rss:") mapping.resident = kilobytes();
  else if (key == "Anonymous:") mapping.anonymous = kilobytes();
  else if (key == "Swap:") mapping.swap = kilobytes();
  else if (key == "VmFlags:")
    for (std::string_view flag = next_word(line); !flag.empty(); flag = next_word(line)) {
      mapping.shared |= flag == "sh";
      mapping.io |= flag == "io";
      mapping.not_dumped |= flag == "dd";
      mapping.huge |= flag == "ht";
    }
}

void add(CoreSize& core, const Mapping& m, unsigned filter) {
  const auto whole = [&](std::uint64_t data) {
    core.bytes += m.size;
    core.data += data;
    if (m.shared) core.shared += m.size;
  };
  if (m.special) return whole(m.size);
  if (m.not_dumped) return;
  if (m.huge) {
    if ((filter & (m.shared ? kHugeShared : kHugePrivate)) != 0) whole(m.size);
    return;
  }
  if (m.io) return;
  if (m.shared) {
    // Reading a page of shared memory that was never touched makes one of zeros: no holes here.
    if ((filter & (m.unlinked ? kAnonymousShared : kFileShared)) != 0) whole(m.size);
    return;
  }
  // Whether it has been written to: the kernel asks for its anon_vma, of which pages that are left are the trace.
  if (m.anonymous + m.swap > 0 && (filter & kAnonymousPrivate) != 0)
    return whole(m.of_file ? m.size : std::min(m.size, m.resident + m.swap));
  if (!m.of_file) return;
  if ((filter & kFilePrivate) != 0) return whole(m.size);
  if ((filter & kElfHeaders) != 0 && m.at_start && m.readable) {
    core.bytes += kPage;
    core.data += kPage;
  }
}

// A fourth more, in steps of which the ranks of a job are likely to have the same.
std::string setting_for(std::uint64_t bytes) {
  constexpr std::uint64_t kStep = 8 * kGiga;
  return fmt::format("{}G", (bytes + bytes / 4 + kStep - 1) / kStep * kStep / kGiga);
}

// The value of "--name VALUE" or "--name=VALUE" in a pattern.
std::string option_in(const std::string& text, const std::string& name) {
  std::string_view rest = text;
  for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
    if (word == name) return std::string(next_word(rest));
    if (word.starts_with(name + "=")) return std::string(word.substr(name.size() + 1));
  }
  return "";
}

using Fate = CoreOutlook::Fate;

class CoreSizeCheck {
 public:
  CoreSizeCheck(const System& system, const CorePattern& pattern, const CoreDestination& destination, Pid pid,
                const CoreSize& size)
      : system_(system), pattern_(pattern), destination_(destination), process_(fmt::format("/proc/{}", pid)) {
    core_.bytes = size.bytes;
    core_.data = size.data;
    core_.shared = size.shared;
    core_.room = size.data;
    if (const auto text = system.read_file(process_ + "/limits"))
      if (const auto limit = parse_core_limit(*text)) soft_ = limit->soft;
    if (const auto text = system.read_file(process_ + "/coredump_filter"))
      filter_ = static_cast<unsigned>(std::strtoul(text->c_str(), nullptr, 16));
  }

  Finding run() {
    switch (pattern_.kind) {
      case CorePattern::Kind::kFile: return of_file();
      case CorePattern::Kind::kNowhere: return not_kept("kernel.core_pattern");
      case CorePattern::Kind::kPipe:
        if (pattern_.program.ends_with("/false") || pattern_.program.ends_with("/true"))
          return not_kept("kernel.core_pattern");
        if (destination_.systemd) return of_systemd(*destination_.systemd);
        if (destination_.handler) return of_handler(*destination_.handler);
        break;
      case CorePattern::Kind::kSocket:
      case CorePattern::Kind::kUnknown: break;
    }
    return said(ok("core-size", kArea, about() + "; what is kept of it is up to who gets it"));
  }

 private:
  // "its core would have about 4096 MB, 1024 MB of them of shared memory; 900 MB on a disk"
  std::string about() const {
    std::string text = fmt::format("its core would have about {}", size_text(core_.bytes));
    if (core_.shared > core_.bytes / 10) text += fmt::format(", {} of it shared memory", size_text(core_.shared));
    if (core_.data < core_.bytes / 10 * 9)
      text += fmt::format(" ({} without the pages that were never touched)", size_text(core_.data));
    return text;
  }

  Finding said(Finding finding) {
    finding.core = core_;
    return finding;
  }

  Finding not_kept(const char* why) {
    core_.fate = Fate::kDropped;
    core_.limit = why;
    core_.room = 0;
    return said(note("core-size", kArea, about() + ", and nothing of it would be kept"));
  }

  Finding bad(Fate fate, std::string limit, std::optional<std::uint64_t> bytes, const std::string& text,
              std::vector<std::string> mends) {
    core_.fate = fate;
    core_.limit = std::move(limit);
    core_.limit_bytes = bytes;
    std::string found = about() + ": " + text;
    if ((filter_ & kAnonymousShared) != 0 && core_.shared > core_.bytes / 4) {
      found += "; its coredump_filter can leave out the shared memory, and a capture is a small core";
      mends.push_back(fmt::format("echo {:#x} > /proc/{}/coredump_filter",
                                  filter_ & ~static_cast<unsigned>(kAnonymousShared), kPid));
    } else {
      found += "; a capture is a small core";
    }
    mends.push_back(fmt::format("rankstacks capture --pids {} -o DIR", kPid));
    return said(problem("core-size", kArea, std::move(found), std::move(mends)));
  }

  void look_at(const std::string& seen_as, const std::string& called) {
    core_.directory = called;
    const auto space = system_.space(seen_as);
    if (!space) return;
    core_.free_bytes = space->available;
    total_ = space->total;
    core_.device = space->device;
  }

  Finding of_file() {
    if (pattern_.text == "/dev/null") return not_kept("kernel.core_pattern");
    const std::size_t slash = pattern_.text.rfind('/');
    const std::string above = slash == std::string::npos ? "" : pattern_.text.substr(0, slash);
    if (!pattern_.text.starts_with('/')) {
      const std::string cwd = system_.read_link(process_ + "/cwd").value_or("");
      look_at(process_ + "/cwd/" + above, above.empty() ? cwd : cwd + "/" + above);
    } else if (!contains(above, '%')) {
      look_at(process_ + "/root" + above + "/", above.empty() ? "/" : above);
    }
    if (core_.free_bytes && *core_.free_bytes < core_.data)
      return bad(Fate::kCut, "free space", core_.free_bytes,
                 fmt::format("in {} only {} are free, and it would be cut off there", core_.directory,
                             size_text(*core_.free_bytes)),
                 {fmt::format("make room there, or name another directory: kernel.core_pattern=/DIR/core.%p")});
    if (soft_ && *soft_ < core_.data) {
      core_.fate = *soft_ < kPage ? Fate::kDropped : Fate::kCut;  // the finding on the limit says so
      core_.limit = "RLIMIT_CORE";
      core_.limit_bytes = soft_;
      return said(note("core-size", kArea, about() + ", more than its limit"));
    }
    core_.fate = Fate::kWhole;
    return said(ok("core-size", kArea, about() + free()));
  }

  std::string free() const {
    return core_.free_bytes ? fmt::format("; {} are free in {}", size_text(*core_.free_bytes), core_.directory) : "";
  }

  Finding of_systemd(const CoredumpSettings& s) {
    core_.room = 0;
    if (s.storage == CoredumpSettings::Storage::kNone) return not_kept("Storage");
    look_at(destination_.root + kSystemdCores, kSystemdCores);
    if (soft_ && *soft_ < kPage) {
      core_.fate = Fate::kDropped;
      core_.limit = "RLIMIT_CORE";
      core_.limit_bytes = soft_;
      return said(note("core-size", kArea, about() + ", and its limit is 0"));
    }
    const std::uint64_t taken = std::min(s.taken(), soft_.value_or(CoredumpSettings::kInfinity));
    const bool by_limit = taken < s.taken();
    const std::uint64_t left = std::min(core_.bytes, taken);
    const std::string file = "/etc/systemd/coredump.conf.d/50-rankstacks.conf";
    const std::string larger =
        fmt::format("{0}={1}, below [Coredump] in {2}", s.kept_by(), setting_for(core_.bytes), file);
    const bool journal = s.storage == CoredumpSettings::Storage::kJournal;
    const std::vector<std::string> raise = {journal ? fmt::format("Storage=external, below [Coredump] in {}", file)
                                                    : larger};
    // Zeros take no room when packed, so that what remains is at most the data.
    const std::uint64_t stored = s.compress && !journal ? std::min(left, core_.data) : left;
    if (stored > s.kept())
      return bad(Fate::kDropped, s.kept_by(), s.kept(),
                 fmt::format("{} of systemd-coredump is {}, and nothing would be kept of a core that is larger{}",
                             s.kept_by(), size_text(s.kept()), s.compress && !journal ? " when it is packed" : ""),
                 raise);
    // It is first written as it comes, with its zeros; the packed file is made from that one.
    core_.room = s.compress && !journal ? left + stored / 4 : left;
    if (core_.free_bytes && *core_.free_bytes < left)
      return bad(Fate::kDropped, "free space", core_.free_bytes,
                 fmt::format("in {} only {} are free, and nothing is kept of a core that finds no room while it "
                             "is written",
                             kSystemdCores, size_text(*core_.free_bytes)),
                 {fmt::format("make room in {}", kSystemdCores)});
    if (core_.bytes > taken) {
      if (by_limit) {
        core_.fate = Fate::kCut;
        core_.limit = "RLIMIT_CORE";
        core_.limit_bytes = soft_;
        return bad(Fate::kCut, "RLIMIT_CORE", soft_,
                   fmt::format("its limit is {}, and systemd-coredump cuts it off there", size_text(*soft_)),
                   {fmt::format("prlimit --pid {} --core=unlimited", kPid)});
      }
      return bad(
          Fate::kCut, s.taken_by(), taken,
          fmt::format("{} of systemd-coredump is {}, and it would be cut off there", s.taken_by(), size_text(taken)),
          raise);
    }
    core_.fate = Fate::kWhole;
    return said(ok("core-size", kArea, about() + free()));
  }

  Finding of_handler(const CoreDestination::Handler& handler) {
    look_at(destination_.root + handler.directory, handler.directory);
    core_.fate = Fate::kSmall;
    core_.room = 0;
    constexpr std::uint64_t kMaxSmallCore = 256 << 20;  // docs/cores.md
    if (!handler.full) {
      if (core_.free_bytes && *core_.free_bytes < kMaxSmallCore)
        return said(note("core-size", kArea,
                         fmt::format("a small core of it would be kept; in {} only {} are free", handler.directory,
                                     size_text(*core_.free_bytes)),
                         {fmt::format("make room in {}", report::shell_quoted(handler.directory))}));
      return said(ok("core-size", kArea, about() + ", of which a small core would be kept" + free()));
    }
    if (handler.max_bytes > 0 && core_.bytes > handler.max_bytes)
      return bad(Fate::kSmall, "--max-bytes", handler.max_bytes,
                 fmt::format("with --max-bytes of {} in kernel.core_pattern only a small core would be kept",
                             size_text(handler.max_bytes)),
                 {"a larger --max-bytes in kernel.core_pattern"});
    core_.room = core_.data;
    const std::uint64_t spare = handler.keep_free.value_or(std::min(total_ / 20, 4 * kGiga));  // cli/kept_cores.h
    if (core_.free_bytes && *core_.free_bytes < core_.data + spare)
      return bad(Fate::kSmall, "free space", core_.free_bytes,
                 fmt::format("in {} only {} are free, of which {} have to stay so (--keep-free): only a small core "
                             "would be kept, unless older ones make room",
                             handler.directory, size_text(*core_.free_bytes), size_text(spare)),
                 {fmt::format("make room in {}", report::shell_quoted(handler.directory))});
    core_.fate = Fate::kWhole;
    return said(ok("core-size", kArea, about() + free()));
  }

  const System& system_;
  const CorePattern& pattern_;
  const CoreDestination& destination_;
  std::string process_;
  std::optional<std::uint64_t> soft_;
  unsigned filter_ = kAnonymousPrivate | kAnonymousShared | kElfHeaders | kHugePrivate;
  CoreOutlook core_;
  std::uint64_t total_ = 0;  // of the file system
};

Finding check_settings(const System& system, const CoreDestination& destination) {
  const CoredumpSettings& s = *destination.systemd;
  const std::string name = s.version ? fmt::format("systemd-coredump {}", *s.version)
                                     : std::string("systemd-coredump, of a version unknown here,");
  if (s.storage == CoredumpSettings::Storage::kNone) return note("core-storage", kArea, name + " keeps no cores");
  const auto size = [](std::uint64_t bytes) {
    return bytes == CoredumpSettings::kInfinity ? std::string("any number of bytes") : size_text(bytes);
  };
  std::string found = fmt::format("{} takes {} of a core ({}) and keeps it {}{}", name, size(s.taken()), s.taken_by(),
                                  s.storage == CoredumpSettings::Storage::kJournal ? "in the journal" : "as a file",
                                  s.compress ? ", packed" : "");
  if (s.kept() < s.taken()) found += fmt::format(", up to {} ({})", size(s.kept()), s.kept_by());
  const auto space = system.space(destination.root + kSystemdCores);
  if (s.storage == CoredumpSettings::Storage::kJournal || !space) return ok("core-storage", kArea, found);
  const std::uint64_t use = s.max_use_of(space->total), spare = s.keep_free_of(space->total);
  if (use > 0) found += fmt::format("; older cores are removed where all take more than {} (MaxUse)", size_text(use));
  if (spare > space->available)
    return note("core-storage", kArea,
                fmt::format("{}; only {} are free in {}, less than {} (KeepFree): with each core all older ones are "
                            "removed",
                            found, size_text(space->available), kSystemdCores, size_text(spare)),
                {fmt::format("make room in {}", kSystemdCores)});
  return ok("core-storage", kArea, found);
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 10 * kGiga) return fmt::format("{} GB", bytes >> 30);
  if (bytes >= 10u << 20) return fmt::format("{} MB", bytes >> 20);
  if (bytes >= 10u << 10) return fmt::format("{} kB", bytes >> 10);
  return fmt::format("{} bytes", bytes);
}

CoreSize core_size_by_mappings(std::string_view smaps, unsigned filter, std::size_t threads) {
  CoreSize core;
  core.bytes = core.data = kPage + threads * kNotesOfThread;
  std::optional<Mapping> mapping;
  for (std::size_t at = 0; at < smaps.size();) {
    const std::size_t end = std::min(smaps.find('\n', at), smaps.size());
    const std::string_view line = smaps.substr(at, end - at);
    at = end + 1;
    if (auto head = parse_head(line)) {
      if (mapping) add(core, *mapping, filter);
      mapping = head;
    } else if (mapping) {
      read_line(*mapping, line);
    }
  }
  if (mapping) add(core, *mapping, filter);
  return core;
}

std::optional<CoreSize> read_core_size(const System& system, Pid pid) {
  const std::string directory = fmt::format("/proc/{}/", pid);
  // It tells what smaps_rollup tells, of each mapping, at the same price: both walk all page tables.
  const auto smaps = system.read_file(directory + "smaps");
  const auto filter = system.read_file(directory + "coredump_filter");
  if (!smaps || smaps->empty() || !filter || filter->empty()) return std::nullopt;
  return core_size_by_mappings(*smaps, static_cast<unsigned>(std::strtoul(filter->c_str(), nullptr, 16)),
                               system.list(directory + "task").size());
}

CoreDestination read_core_destination(const System& system, const CorePattern& pattern, const std::string& root) {
  CoreDestination destination{.root = root};
  if (pattern.kind != CorePattern::Kind::kPipe) return destination;
  if (pattern.program.ends_with("/systemd-coredump")) {
    destination.systemd = read_coredump_settings(system, root);
  } else if (contains(pattern.text, " core-handler ")) {
    destination.handler = {.directory = option_in(pattern.text, "--directory"),
                           .full = contains(pattern.text + ' ', " --full "),
                           .max_bytes = parse_size(option_in(pattern.text, "--max-bytes")).value_or(0),
                           .keep_free = parse_size(option_in(pattern.text, "--keep-free"))};
  }
  return destination;
}

Finding check_core_size(const System& system, const CorePattern& pattern, const CoreDestination& destination, Pid pid,
                        const CoreSize& size) {
  return CoreSizeCheck(system, pattern, destination, pid, size).run();
}

std::vector<Finding> check_core_storage(const System& system, const CoreDestination& destination,
                                        const std::vector<CoreOutlook>& cores) {
  std::vector<Finding> findings;
  if (destination.systemd) findings.push_back(check_settings(system, destination));
  struct Together {
    std::size_t cores = 0;
    std::uint64_t room = 0, data = 0, free = 0;
    std::string directory;
  };
  std::map<std::uint64_t, Together> devices;
  for (const CoreOutlook& core : cores) {
    if (!core.device || core.fate == Fate::kDropped || core.room == 0) continue;
    Together& all = devices[*core.device];
    ++all.cores;
    all.room += core.room;
    all.data += core.data;
    all.free = *core.free_bytes;
    all.directory = core.directory;
  }
  for (const auto& [device, all] : devices) {
    if (all.cores < 2) continue;
    if (all.room > all.free) {
      findings.push_back(
          problem("cores-together", kArea,
                  fmt::format("the cores of these {} processes would take about {}, and in {} only {} are free",
                              all.cores, size_text(all.room), all.directory, size_text(all.free)),
                  {fmt::format("make room in {}", report::shell_quoted(all.directory)),
                   "rankstacks capture --job -o DIR   (small cores)"}));
      continue;
    }
    if (!destination.systemd || destination.systemd->storage != CoredumpSettings::Storage::kExternal) continue;
    const auto space = system.space(destination.root + kSystemdCores);
    const std::uint64_t use = space ? destination.systemd->max_use_of(space->total) : 0;
    if (use > 0 && all.data > use)
      findings.push_back(
          note("cores-together", kArea,
               fmt::format("the cores of these {} processes hold about {}: where they take more than {} when packed "
                           "(MaxUse of systemd-coredump), the first ones are removed for the last ones",
                           all.cores, size_text(all.data), size_text(use)),
               {fmt::format("MaxUse={}, below [Coredump] in /etc/systemd/coredump.conf.d/50-rankstacks.conf",
                            setting_for(all.data))}));
  }
  return findings;
}

}  // namespace rankstacks::doctor
