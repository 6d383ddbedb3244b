#include "small_core/live_notes.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/procfs.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include "elf/bytes.h"
#include "target/own_notes.h"
#include "target/proc.h"

namespace rankstacks::small_core {
namespace {

constexpr std::string_view kCore = "CORE", kLinux = "LINUX";
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kFxsave = 512;  // NT_FPREGSET: the first part of the extended state

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::uint64_t padded(std::uint64_t size) { return (size + 3) & ~std::uint64_t{3}; }

// A number in hex behind "NAME:" in /proc/PID/task/TID/status.
std::uint64_t hex_in_status(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(fmt::format("\n{}:\t", name));
  if (at == std::string_view::npos) return 0;
  const char* begin = status.data() + at + name.size() + 3;
  std::uint64_t value = 0;
  std::from_chars(begin, status.data() + status.size(), value, 16);
  return value;
}

// Registers that are known from the unwinder's view alone: of a thread that could not be stopped.
user_regs_struct registers_of(const target::Registers& known) {
  user_regs_struct r{};
  r.rip = known.pc();
  r.rsp = known.sp();
  r.rdi = known[target::kRdi];
  r.rsi = known[target::kRsi];
  r.rdx = known[target::kRdx];
  r.r10 = known[target::kR10];
  r.r8 = known[target::kR8];
  r.r9 = known[target::kR9];
  r.rbp = known[target::kRbp];
  r.rbx = known[target::kRbx];
  r.orig_rax = static_cast<unsigned long long>(known.orig_rax);
  r.fs_base = known.fs_base;
  return r;
}

timeval time_of(double ms) {
  const auto us = static_cast<std::int64_t>(ms * 1000);
  return {us / 1'000'000, us % 1'000'000};
}

elf_prstatus status_of(const target::LiveTarget& target, const target::ThreadInfo& thread,
                       const user_regs_struct& registers) {
  elf_prstatus status{};
  status.pr_pid = thread.tid;
  status.pr_ppid = target::proc::stat_of(target.pid()).value_or(target::proc::Stat{}).parent;
  status.pr_pgrp = getpgid(target.pid());
  status.pr_sid = getsid(target.pid());
  status.pr_utime.tv_sec = time_of(thread.cpu_ms.value_or(0)).tv_sec;
  status.pr_utime.tv_usec = time_of(thread.cpu_ms.value_or(0)).tv_usec;
  if (const auto text = target::proc::read_file(fmt::format("/proc/{}/task/{}/status", target.pid(), thread.tid))) {
    status.pr_sigpend = hex_in_status(*text, "SigPnd");
    status.pr_sighold = hex_in_status(*text, "SigBlk");
  }
  static_assert(sizeof status.pr_reg == sizeof registers);
  std::memcpy(&status.pr_reg, &registers, sizeof registers);
  return status;
}

elf_prpsinfo process_of(const target::LiveTarget& target) {
  elf_prpsinfo info{};
  const auto stat = target::proc::stat_of(target.pid()).value_or(target::proc::Stat{});
  constexpr std::string_view kStates = "RSDTZW";
  const std::size_t state = kStates.find(stat.state);
  info.pr_state = static_cast<char>(state == kStates.npos ? 0 : state);
  info.pr_sname = stat.state != 0 ? stat.state : '.';
  info.pr_zomb = stat.state == 'Z' ? 1 : 0;
  info.pr_flag = stat.flags;
  struct stat owner {};
  if (::stat(fmt::format("/proc/{}", target.pid()).c_str(), &owner) == 0) {
    info.pr_uid = owner.st_uid;
    info.pr_gid = owner.st_gid;
  }
  info.pr_pid = target.pid();
  info.pr_ppid = stat.parent;
  info.pr_pgrp = getpgid(target.pid());
  info.pr_sid = getsid(target.pid());
  stat.name.copy(info.pr_fname, sizeof info.pr_fname - 1);
  std::string arguments;
  for (const std::string& word : target.command()) arguments += (arguments.empty() ? "" : " ") + word;
  arguments.copy(info.pr_psargs, sizeof info.pr_psargs - 1);
  return info;
}

// long count; long page_size; { long start, end, page offset; } [count]; then the paths.
std::vector<std::byte> files_of(const target::LiveTarget& target) {
  std::vector<std::uint64_t> numbers = {0, kPage};
  std::string names;
  for (const target::Mapping& m : target.mappings()) {
    if (!m.path.starts_with('/')) continue;
    ++numbers[0];
    numbers.insert(numbers.end(), {m.range.start, m.range.end, m.file_offset / kPage});
    names += m.path + (m.deleted ? " (deleted)" : "") + '\0';
  }
  const auto head = std::as_bytes(std::span(numbers));
  std::vector<std::byte> body(head.begin(), head.end());
  const auto tail = std::as_bytes(std::span(names.data(), names.size()));
  body.insert(body.end(), tail.begin(), tail.end());
  return body;
}

class NoteList {
 public:
  void add(std::string_view owner, std::uint32_t type, std::span<const std::byte> body) {
    target::append_note(notes_, owner, type, body);
  }
  void add_extended(std::span<const std::byte> state) {
    if (state.size() < kFxsave) return;
    add(kCore, NT_FPREGSET, state.first(kFxsave));
    add(kLinux, NT_X86_XSTATE, state);
  }
  std::vector<std::byte> take() { return std::move(notes_); }

 private:
  std::vector<std::byte> notes_;
};

void add_process(const target::LiveTarget& target, const target::AuxiliaryVector& auxv, NoteList& notes) {
  notes.add(kCore, NT_PRPSINFO, bytes_of(process_of(target)));
  std::vector<std::uint64_t> vector;
  for (const auto& [type, value] : auxv) vector.insert(vector.end(), {type, value});
  vector.insert(vector.end(), {AT_NULL, 0});
  notes.add(kCore, NT_AUXV, std::as_bytes(std::span(vector)));
  notes.add(kCore, NT_FILE, files_of(target));
}

}  // namespace

target::AuxiliaryVector auxiliary_vector_of(Pid pid) {
  target::AuxiliaryVector auxv;
  const auto text = target::proc::read_file(fmt::format("/proc/{}/auxv", pid));
  if (!text) return auxv;
  const auto bytes = std::as_bytes(std::span(text->data(), text->size()));
  for (std::size_t at = 0; const auto entry = elf::load<Elf64_auxv_t>(bytes, at); at += sizeof(Elf64_auxv_t)) {
    if (entry->a_type == AT_NULL) break;
    auxv.emplace_back(entry->a_type, entry->a_un.a_val);
  }
  return auxv;
}

std::vector<std::byte> notes_of(const target::LiveTarget& target, const target::AuxiliaryVector& auxv) {
  std::unordered_map<Tid, const target::RawThread*> raw;
  for (const target::RawThread& thread : target.raw_threads()) raw.emplace(thread.tid, &thread);
  NoteList notes;
  bool first = true;
  for (const target::ThreadInfo& thread : target.threads()) {
    const auto found = raw.find(thread.tid);
    if (found == raw.end() && !thread.registers) continue;
    const user_regs_struct registers = found != raw.end() ? found->second->registers : registers_of(*thread.registers);
    notes.add(kCore, NT_PRSTATUS, bytes_of(status_of(target, thread, registers)));
    if (first) add_process(target, auxv, notes);
    first = false;
    if (found != raw.end()) notes.add_extended(found->second->extended);
  }
  if (first) add_process(target, auxv, notes);
  return notes.take();
}

void append_foreign_notes(std::vector<std::byte>& to, std::span<const std::byte> notes) {
  for (std::uint64_t at = 0; const auto header = elf::load<Elf64_Nhdr>(notes, at);) {
    const std::uint64_t name_at = at + sizeof(Elf64_Nhdr), body_at = name_at + padded(header->n_namesz);
    if (body_at + header->n_descsz > notes.size()) return;
    const auto name = elf::exactly(notes, name_at, header->n_namesz);
    const auto* text = reinterpret_cast<const char*>(name.data());
    const std::string_view owner(text, strnlen(text, name.size()));
    if (owner != target::kNoteOwner)
      target::append_note(to, owner, header->n_type, elf::exactly(notes, body_at, header->n_descsz));
    at = body_at + padded(header->n_descsz);
  }
}

}  // namespace rankstacks::small_core
