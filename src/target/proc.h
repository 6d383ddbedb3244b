// What /proc says about a process, read without stopping it. Formats: proc(5).
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "target/modules.h"
#include "target/registers.h"

namespace rankstacks::target::proc {

// The whole file, or its first `limit` bytes; proc files report no size. Never waits: a FIFO is read as far as it has
// bytes. Errors carry the errno.
Result<std::string> read_file(const std::string& path, std::size_t limit = 64u << 20);

// The text of the link; std::nullopt if it cannot be read.
std::optional<std::string> read_link(const std::string& path);

// /proc/PID/stat or /proc/PID/task/TID/stat.
struct Stat {
  std::string name;  // comm
  char state = 0;
  Pid parent = 0;
  std::uint64_t flags = 0;
  int threads = 1;
  double cpu_ms = 0;              // utime + stime; the kernel counts in ticks of 10 ms
  std::uint64_t start_ticks = 0;  // since boot; together with the pid it identifies the process
  // Where the program's code and stack begin. Both change, almost certainly, when the process executes another program.
  // A value of 0 or 1 means that the tool is not permitted to know.
  Address code_start = 0, stack_start = 0;
  bool same_program(const Stat& other) const {
    return code_start == other.code_start && stack_start == other.stack_start;
  }
  bool kernel_thread() const { return flags & 0x00200000u; }  // PF_KTHREAD, include/linux/sched.h
  // PF_EXITING: its memory may be gone before it is a zombie.
  bool ends() const { return (flags & 0x00000004u) || state == 'Z' || state == 'X'; }
};
std::optional<Stat> parse_stat(std::string_view text);
std::optional<Stat> stat_of(Pid pid);
std::optional<Stat> stat_of(Pid pid, Tid tid);

// Thread ids in the kernel's order (the main thread first).
std::vector<Tid> tasks_of(Pid pid);

// The numbers of its open descriptors; empty if there are none, or if they may not be read.
std::vector<int> descriptors_of(Pid pid);

// All process ids of this machine.
std::vector<Pid> processes();

// Lines of /proc/PID/maps, in order.
std::vector<Mapping> parse_maps(std::string_view text);

// Strings separated by 0 bytes: cmdline, environ.
std::vector<std::string> split_nul(std::string_view text);
std::map<std::string, std::string> parse_environment(const std::vector<std::string>& strings);

// A number from /proc/PID/status, e.g. "TracerPid"; std::nullopt if there is none.
std::optional<long> status_number(Pid pid, std::string_view field);
std::optional<long> thread_status_number(Pid pid, Tid tid, std::string_view field);

// The pid in the innermost pid namespace, which getpid() returns there: the last number of NSpid in /proc/PID/status.
// The pid itself if it is not known.
Pid own_pid_of(Pid pid);

// The process to which a thread belongs, from /proc/TID, which exists for every thread although no listing shows it.
// For a process: the process itself. std::nullopt if there is no such thread.
std::optional<Pid> process_of(Tid tid);

// /proc/PID/task/TID/syscall of a thread in a system call, "NR A1 .. A6 SP PC": the registers that it contains.
// std::nullopt if the thread is running.
std::optional<Registers> parse_syscall(std::string_view text);
std::optional<Registers> waiting_registers(Pid pid, Tid tid);
// The same also of a thread that has no processor outside of a system call, "-1 SP PC": in a page fault, or stopped.
std::optional<Registers> parse_standing(std::string_view text);
std::optional<Registers> standing_registers(Pid pid, Tid tid);

// The thread that traces this thread (ptrace(2): the tracer is a thread; process_of() returns its process), or
// std::nullopt.
std::optional<Pid> tracer_of(Pid pid, Tid tid);

// Fills `into` from the memory of a thread's process, without stopping it. False if not all of it can be read.
bool read_memory(Tid tid, Address at, std::span<std::byte> into);

}  // namespace rankstacks::target::proc
