#include "target/core_notes.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/procfs.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>

#include "elf/bytes.h"

namespace rankstacks::target {
namespace {

constexpr std::size_t kMaxProblems = 32;  // reported individually
constexpr const char* kDamaged = "the core is damaged; take or copy it again";
constexpr const char* kTakeAgain = "take it again with more room";

// Signals whose default action writes a core (signal(7)). A core that names another one was made by a tool that stopped
// the process: gcore's cores carry SIGSTOP, those of an interactive gdb SIGINT or SIGTRAP.
struct FatalSignal {
  int number;
  const char* name;
};
constexpr std::array<FatalSignal, 10> kFatalSignals{{{3, "SIGQUIT"},
                                                     {4, "SIGILL"},
                                                     {5, "SIGTRAP"},
                                                     {6, "SIGABRT"},
                                                     {7, "SIGBUS"},
                                                     {8, "SIGFPE"},
                                                     {11, "SIGSEGV"},
                                                     {24, "SIGXCPU"},
                                                     {25, "SIGXFSZ"},
                                                     {31, "SIGSYS"}}};

// siginfo_t on x86-64 (Linux include/uapi/asm-generic/siginfo.h): the union begins at 16, as it holds pointers.
constexpr std::size_t kSiSigno = 0, kSiCode = 8, kSiAddr = 16, kSiPid = 16, kSiUid = 20;
// SI_KERNEL: sent by the kernel, and si_addr is not set (a non-canonical address, for example).
constexpr int kSiKernel = 0x80;

// The codes of signals with a sender: SI_USER (kill), SI_QUEUE (sigqueue), SI_TKILL (tgkill, as abort() and raise()
// do).
bool has_sender(int code) {
  constexpr int kSiUser = 0, kSiQueue = -1, kSiTkill = -6;
  return code == kSiUser || code == kSiQueue || code == kSiTkill;
}

std::optional<Pid> sender_in(std::span<const std::byte> siginfo) {
  const auto pid = elf::load<Pid>(siginfo, kSiPid);
  return pid && *pid >= 0 ? pid : std::nullopt;
}

std::string text_field(const char* field, std::size_t size) { return std::string(field, strnlen(field, size)); }

class NoteParser {
 public:
  CoreNotes parse(std::span<const CoreNoteSegment> segments) {
    for (const CoreNoteSegment& segment : segments) parse_segment(segment);
    decide_signal();
    if (more_problems_ > 0)
      notes_.problems.push_back(
          {fmt::format("{} more notes are damaged", more_problems_), kDamaged, ProblemCode::kMalformed});
    notes_.own = parse_own_notes(segments);
    add_noted_files();
    notes_.problems.insert(notes_.problems.end(), notes_.own.problems.begin(), notes_.own.problems.end());
    return std::move(notes_);
  }

 private:
  struct ThreadSignal {
    int current = 0;      // pr_cursig
    int info_number = 0;  // pr_info.si_signo: the kernel writes the same number there, gdb 0
    std::span<const std::byte> siginfo;
  };

  void problem(std::string message, const char* hint = kDamaged) {
    if (notes_.problems.size() < kMaxProblems)
      notes_.problems.push_back({std::move(message), hint, ProblemCode::kMalformed});
    else ++more_problems_;
  }

  // Every field is padded to 4 bytes, whatever p_align says: the kernel and gdb write cores that way.
  void parse_segment(const CoreNoteSegment& segment) {
    const auto padded = [](std::uint32_t size) { return (std::uint64_t{size} + 3) & ~std::uint64_t{3}; };
    std::uint64_t at = 0;
    while (at < segment.bytes.size()) {
      const auto header = elf::load<Elf64_Nhdr>(segment.bytes, at);
      const std::uint64_t name_at = at + sizeof(Elf64_Nhdr);
      const std::uint64_t body_at = header ? name_at + padded(header->n_namesz) : 0;
      const std::uint64_t next = header ? body_at + padded(header->n_descsz) : 0;
      // The last note's padding may be missing.
      if (!header || body_at + header->n_descsz > segment.bytes.size()) {
        const auto where = segment.offset + at;
        if (segment.cut)
          problem(fmt::format("the notes are cut off at {:#x}: threads behind it are missing ({} are there)", where,
                              notes_.threads.size()),
                  kTakeAgain);
        else
          problem(fmt::format("a note reaches past the end of its segment (at {:#x}): what is behind it is not read",
                              where));
        return;
      }
      const auto name = elf::exactly(segment.bytes, name_at, header->n_namesz);
      const std::string_view owner(reinterpret_cast<const char*>(name.data()),
                                   strnlen(reinterpret_cast<const char*>(name.data()), name.size()));
      const auto body = elf::exactly(segment.bytes, body_at, header->n_descsz);
      if (owner == "CORE") parse_note(header->n_type, body, segment.offset + body_at);
      if (owner == "GDB") by_gdb_ = true;
      at = next;
    }
    if (segment.cut) {
      problem(fmt::format("the notes are cut off at {:#x}: threads behind it are missing ({} are there)",
                          segment.offset + at, notes_.threads.size()),
              kTakeAgain);
    }
  }

  void parse_note(std::uint32_t type, std::span<const std::byte> body, std::uint64_t where) {
    switch (type) {
      case NT_PRSTATUS: parse_thread(body, where); break;
      case NT_PRPSINFO: parse_process(body, where); break;
      case NT_AUXV: parse_auxv(body); break;
      case NT_FILE: parse_files(body, where); break;
      case NT_SIGINFO:
        if (!signals_.empty() && !orphan_ && signals_.back().siginfo.empty()) signals_.back().siginfo = body;
        break;
      default: break;
    }
  }

  void parse_thread(std::span<const std::byte> body, std::uint64_t where) {
    orphan_ = true;  // a NT_SIGINFO behind a thread that was rejected does not belong to another one
    const auto status = elf::load<elf_prstatus>(body, 0);
    if (!status) {
      problem(fmt::format("a thread left out: NT_PRSTATUS of {} bytes where {} are expected (at {:#x})", body.size(),
                          sizeof(elf_prstatus), where));
      return;
    }
    if (!tids_.insert(status->pr_pid).second) {
      problem(fmt::format("a thread left out: tid {} is there twice (at {:#x})", status->pr_pid, where));
      return;
    }
    orphan_ = false;
    user_regs_struct registers;
    static_assert(sizeof registers == sizeof status->pr_reg);
    std::memcpy(&registers, &status->pr_reg, sizeof registers);
    ThreadInfo thread;
    thread.tid = status->pr_pid;
    thread.registers = Registers::from_user_regs(registers);
    notes_.threads.push_back(std::move(thread));
    signals_.push_back({status->pr_cursig, status->pr_info.si_signo, {}});
  }

  void parse_process(std::span<const std::byte> body, std::uint64_t where) {
    const auto info = elf::load<elf_prpsinfo>(body, 0);
    if (!info) {
      problem(fmt::format("the process's name is not read: NT_PRPSINFO of {} bytes where {} are expected (at {:#x})",
                          body.size(), sizeof(elf_prpsinfo), where));
      return;
    }
    notes_.pid = info->pr_pid;
    notes_.parent = info->pr_ppid;
    notes_.user = info->pr_uid;
    notes_.name = text_field(info->pr_fname, sizeof info->pr_fname);
    notes_.arguments = text_field(info->pr_psargs, sizeof info->pr_psargs);
  }

  void parse_auxv(std::span<const std::byte> body) {
    notes_.auxv.clear();
    for (std::size_t at = 0; const auto entry = elf::load<Elf64_auxv_t>(body, at); at += sizeof(Elf64_auxv_t)) {
      // The kernel writes 23; the vector is searched for in the stack word by word.
      constexpr std::size_t kMaxEntries = 256;
      if (entry->a_type == AT_NULL || notes_.auxv.size() == kMaxEntries) return;
      notes_.auxv.emplace_back(entry->a_type, entry->a_un.a_val);
    }
  }

  // NT_FILE: long count; long page_size; { long start, end, offset; } [count]; then the paths, each with its 0. The
  // kernel's offsets are in pages; gdb states a page size of 1 and writes bytes.
  struct FilesHeader {
    std::uint64_t count, page_size;
  };
  struct FileEntry {
    std::uint64_t start, end, offset;
  };

  // The body has as many entries as the result says. std::nullopt if the list cannot be read, which is reported.
  std::optional<FilesHeader> parse_files_header(std::span<const std::byte> body, std::uint64_t where) {
    const auto header = elf::load<FilesHeader>(body, 0);
    if (!header) {
      problem(fmt::format("the mapped files are not read: NT_FILE of {} bytes (at {:#x})", body.size(), where));
    } else if (header->count > (body.size() - sizeof(FilesHeader)) / sizeof(FileEntry)) {
      problem(fmt::format("the mapped files are not read: NT_FILE of {} bytes claims {} entries (at {:#x})",
                          body.size(), header->count, where));
    } else if (header->page_size == 0) {
      problem(fmt::format("the mapped files are not read: NT_FILE says that a page has 0 bytes (at {:#x})", where));
    } else {
      return header;
    }
    return std::nullopt;
  }

  void parse_files(std::span<const std::byte> body, std::uint64_t where) {
    // A core has one. Merging many of them, each sorted into the existing entries, would take forever.
    if (notes_.has_files)
      return problem(fmt::format("a second list of mapped files (NT_FILE) is not read (at {:#x})", where));
    const auto header = parse_files_header(body, where);
    if (!header) return;
    notes_.has_files = true;
    const std::size_t names_at = sizeof(FilesHeader) + header->count * sizeof(FileEntry);
    std::string_view names(reinterpret_cast<const char*>(body.data()) + names_at, body.size() - names_at);
    std::uint64_t bad = 0, nameless = 0;
    for (std::uint64_t i = 0; i < header->count; ++i) {
      const auto entry = *elf::load<FileEntry>(body, sizeof(FilesHeader) + i * sizeof(FileEntry));
      const std::size_t end = names.find('\0');
      if (end == std::string_view::npos) {
        problem(fmt::format("{} of {} mapped files left out: the paths in NT_FILE end before them (at {:#x})",
                            header->count - i, header->count, where));
        break;
      }
      CoreFileMapping mapping{{entry.start, entry.end}, 0, std::string(names.substr(0, end)), false};
      names.remove_prefix(end + 1);
      if (entry.start >= entry.end || __builtin_mul_overflow(entry.offset, header->page_size, &mapping.file_offset)) {
        ++bad;
        continue;
      }
      cut_deleted(mapping);
      // Modules are recognized by their path.
      if (mapping.path.empty()) {
        ++nameless;
        continue;
      }
      notes_.files.push_back(std::move(mapping));
    }
    if (nameless > 0)
      problem(fmt::format("{} of {} mapped files left out: their paths are empty (NT_FILE at {:#x})", nameless,
                          header->count, where));
    bad += drop_overlapping_files();
    if (bad > 0)
      problem(fmt::format("{} of {} mapped files left out: their ranges make no sense (NT_FILE at {:#x})", bad,
                          header->count, where));
  }

  static void cut_deleted(CoreFileMapping& mapping) {
    constexpr std::string_view kDeleted = " (deleted)";
    if (!mapping.path.ends_with(kDeleted)) return;
    mapping.path.resize(mapping.path.size() - kDeleted.size());
    mapping.deleted = true;
  }

  // A capture has some of the mapped files in a note of its own.
  void add_noted_files() {
    if (notes_.own.files.empty()) return;
    for (const NotedFile& file : notes_.own.files) {
      notes_.files.push_back({file.range, file.file_offset, file.path, false});
      cut_deleted(notes_.files.back());
    }
    if (const auto bad = drop_overlapping_files(); bad > 0)
      problem(fmt::format("{} mapped files in its own notes left out: they overlap those in NT_FILE", bad));
  }

  // Sorts the mapped files by their addresses. Returns the number of those that were dropped.
  std::uint64_t drop_overlapping_files() {
    std::stable_sort(notes_.files.begin(), notes_.files.end(),
                     [](const auto& a, const auto& b) { return a.range.start < b.range.start; });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < notes_.files.size(); ++i) {
      if (kept > 0 && notes_.files[i].range.start < notes_.files[kept - 1].range.end) continue;
      if (kept != i) notes_.files[kept] = std::move(notes_.files[i]);
      ++kept;
    }
    const std::size_t dropped = notes_.files.size() - kept;
    notes_.files.resize(kept);
    return dropped;
  }

  // The thread that took the signal comes first, in the kernel's cores and in gdb's. gdb writes the same pr_cursig into
  // each thread.
  void decide_signal() {
    if (signals_.empty()) return;
    const ThreadSignal& first = signals_.front();
    const auto known = std::find_if(kFatalSignals.begin(), kFatalSignals.end(),
                                    [&](const FatalSignal& s) { return s.number == first.current; });
    if (known == kFatalSignals.end()) return;
    const bool by_kernel = !by_gdb_ && first.info_number == first.current;
    if (first.current == 5 && !by_kernel) return;  // gdb's own breakpoints and steps
    if (by_kernel) name_main_thread();
    SignalInfo signal{first.current, known->name, notes_.threads.front().tid, {}, {}};
    const auto number = elf::load<std::int32_t>(first.siginfo, kSiSigno);
    const auto code = elf::load<std::int32_t>(first.siginfo, kSiCode);
    if (number && code && *number == first.current) {
      signal.code = *code;
      if (has_sender(*code)) signal.sender = sender_in(first.siginfo);
      if (signal.sender) signal.sender_uid = elf::load<std::uint32_t>(first.siginfo, kSiUid);
      const bool by_fault =
          first.current == 4 || first.current == 5 || first.current == 7 || first.current == 8 || first.current == 11;
      if (by_fault && *code > 0 && *code != kSiKernel)
        signal.fault_address = elf::load<Address>(first.siginfo, kSiAddr);
    }
    notes_.signal = std::move(signal);
  }

  // The kernel's pr_fname is the main thread's comm; gdb's is the program's base name.
  void name_main_thread() {
    for (ThreadInfo& thread : notes_.threads) {
      if (notes_.pid && thread.tid == *notes_.pid) thread.name = notes_.name;
    }
  }

  CoreNotes notes_;
  std::vector<ThreadSignal> signals_;  // one for each of notes_.threads
  std::set<Tid> tids_;
  bool by_gdb_ = false;
  std::size_t more_problems_ = 0;
  bool orphan_ = true;
};

}  // namespace

CoreNotes parse_notes(std::span<const CoreNoteSegment> segments) { return NoteParser().parse(segments); }

}  // namespace rankstacks::target
