// What /proc says of a process: read without stopping it. Formats: proc(5).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "target/modules.h"
#include "target/registers.h"

namespace rankstacks::proc {

// The whole file, or its first `limit` bytes; proc files have no size. Never waits: a FIFO is as long as what is in it. Errors carry the errno.
Result<std::string> read_file(const std::string& path, std::size_t limit = 64u << 20);

// The link's text; nothing when it cannot be read.
std::optional<std::string> read_link(const std::string& path);

// /proc/PID/stat or /proc/PID/task/TID/stat.
struct Stat {
  std::string name;                 // comm
  char state = 0;
  Pid parent = 0;
  std::uint64_t flags = 0;
  int threads = 1;
  double cpu_ms = 0;                // utime + stime; the kernel counts in ticks of 10 ms
  std::uint64_t start_ticks = 0;    // since boot: with the pid, the process's identity
  // Where its program's code and its stack begin; they change, all but certainly, when it executes another one. 0 or 1: not permitted to be known.
  Address code_start = 0, stack_start = 0;
  bool same_program(const Stat& other) const { return code_start == other.code_start && stack_start == other.stack_start; }
  bool kernel_thread() const { return flags & 0x00200000u; }   // PF_KTHREAD, include/linux/sched.h
  bool ends() const { return (flags & 0x00000004u) || state == 'Z' || state == 'X'; }   // PF_EXITING: its memory may be gone before it is a zombie
};
std::optional<Stat> parse_stat(std::string_view text);
std::optional<Stat> stat_of(Pid pid);
std::optional<Stat> stat_of(Pid pid, Tid tid);

// Thread ids, ascending by the kernel's order (the main thread first).
std::vector<Tid> tasks_of(Pid pid);

// The numbers of its open descriptors; empty: none, or it may not be looked at.
std::vector<int> descriptors_of(Pid pid);

// All process ids of this machine.
std::vector<Pid> processes();

// Lines of /proc/PID/maps, in order.
std::vector<Mapping> parse_maps(std::string_view text);

// Strings separated by 0 bytes: cmdline, environ.
std::vector<std::string> split_nul(std::string_view text);
std::map<std::string, std::string> parse_environment(const std::vector<std::string>& strings);

// A number of /proc/PID/status, e.g. "TracerPid", or nothing.
std::optional<long> status_number(Pid pid, std::string_view field);

// The process that a thread is of, by /proc/TID, which is there for every thread though no listing shows it; of a process: itself. Nothing: there is none.
std::optional<Pid> process_of(Tid tid);

// /proc/PID/task/TID/syscall of a thread in a system call, "NR A1 .. A6 SP PC": the registers that it tells. Nothing: the thread runs.
std::optional<Registers> parse_syscall(std::string_view text);
std::optional<Registers> waiting_registers(Pid pid, Tid tid);

// The thread that traces this thread (ptrace(2): the tracer is a thread; process_of() tells whose), or nothing.
std::optional<Pid> tracer_of(Pid pid, Tid tid);

// What the file descriptors of a process are: a path, "pipe:[12]", "tcp 10.0.0.1:4 -> 10.0.0.2:5", "unix /run/x". Sockets by the tables of /proc/PID/net, each of
// which is read once: a thousand threads may wait in sockets, and a machine have a million of those.
class Descriptors {
 public:
  explicit Descriptors(Pid pid) : pid_(pid) {}
  std::optional<std::string> describe(int fd);

 private:
  void read_table(const char* table, std::size_t inode_field);

  Pid pid_;
  std::size_t tables_read_ = 0;
  std::unordered_map<std::string, std::string> sockets_;   // by inode
};

}  // namespace rankstacks::proc
