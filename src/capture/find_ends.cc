#include "capture/find_ends.h"

#include <asm/unistd_64.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/unattended.h"
#include "capture/tcp_ends.h"
#include "target/database_locks.h"
#include "target/descriptor_info.h"
#include "target/file_locks.h"
#include "target/holders.h"
#include "target/proc.h"
#include "target/unix_peers.h"
#include "target/unix_sockets.h"

namespace rankstacks::capture {
namespace {

using What = target::Awaited::What;

// Limits for the job's processes, and again for all other processes: a descriptor takes about 2 µs.
constexpr std::size_t kMaxProcesses = 4096, kMaxDescriptors = 200'000;
constexpr std::chrono::milliseconds kLongestSearch{300};

// What is known about one thread before descriptors are searched, and the questions that the search has to answer.
struct Sought {
  EndKind kind = EndKind::kPipe;
  std::set<Pid> known;
  std::vector<target::Holders::Question> questions;
  // Of locks: the process that took the lock, which may not be the one that holds it now.
  std::map<target::Holders::Question, Pid> takers;
  std::optional<std::string> other_host;
  std::string database;
  bool listens = false;
};

// Whether it still sleeps. Between two attempts to get a lock it sleeps for 0.1 s, and an attempt takes microseconds:
// if it is awake, it is checked again.
bool sleeps_still(const BlockedThread& thread) {
  constexpr int kMaxAttempts = 5;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto now = target::proc::waiting_registers(thread.pid, thread.tid);
    if (now && (now->orig_rax == thread.awaited.number || now->orig_rax == __NR_restart_syscall))
      return now->sp() == thread.awaited.sp;
  }
  return false;
}

// Whether it is in another call than in the sample. A running thread may be on its way back into that call, since it
// was stopped a moment ago.
bool has_moved_on(const BlockedThread& thread) {
  if (thread.awaited.what == What::kDatabase) return !sleeps_still(thread);
  const auto now = target::proc::waiting_registers(thread.pid, thread.tid);
  if (!now) return false;
  return (now->orig_rax != thread.awaited.number && now->orig_rax != __NR_restart_syscall) ||
         (*now)[target::kRdi] != thread.awaited.first_argument;
}

// The pids of a process in all pid namespaces that it is in, starting with that of /proc.
std::vector<Pid> numbers_of(Pid pid) {
  constexpr std::string_view kKey = "\nNSpid:";
  const auto text = target::proc::read_file(fmt::format("/proc/{}/status", pid));
  const std::size_t at = text ? text->find(kKey) : std::string::npos;
  std::vector<Pid> numbers;
  if (at == std::string::npos) return numbers;
  std::string_view line = std::string_view(*text).substr(at + kKey.size());
  line = line.substr(0, line.find('\n'));
  while (!line.empty()) {
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
    Pid number = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (error != std::errc()) break;
    numbers.push_back(number);
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  }
  return numbers;
}

bool is_child(Pid child, Pid parent) {
  const auto stat = target::proc::stat_of(child);
  return stat && stat->parent == parent;
}

// Finds a child by the pid that it has in its parent's namespace.
std::optional<Pid> find_child(Pid parent, Pid number, const Deadline& deadline) {
  const std::size_t depth = numbers_of(parent).size();
  if (depth <= 1) return is_child(number, parent) ? std::optional(number) : std::nullopt;
  for (const Pid pid : target::proc::processes()) {
    if (deadline.passed()) break;
    if (!is_child(pid, parent)) continue;
    const auto numbers = numbers_of(pid);
    if (numbers.size() >= depth && numbers[depth - 1] == number) return pid;
  }
  return std::nullopt;
}

// The children that have not ended: from the kernel's list for each thread that has created some (since Linux 3.5;
// CONFIG_PROC_CHILDREN), or, without these lists, by a search of all processes.
std::set<Pid> children_of(Pid parent, const Deadline& deadline) {
  std::set<Pid> children;
  const auto add = [&](Pid pid) {
    const auto stat = target::proc::stat_of(pid);
    if (stat && stat->parent == parent && !stat->ends()) children.insert(pid);
  };
  bool listed = false;
  for (const Tid tid : target::proc::tasks_of(parent)) {
    if (deadline.passed()) return children;
    const auto list = target::proc::read_file(fmt::format("/proc/{}/task/{}/children", parent, tid));
    listed = listed || list.has_value();
    for (const char *at = list ? list->data() : nullptr, *end = list ? at + list->size() : nullptr; at != end;) {
      Pid pid = 0;
      const auto [next, error] = std::from_chars(at, end, pid);
      if (error == std::errc()) add(pid);
      at = next == end ? end : next + 1;
    }
  }
  if (listed) return children;
  for (const Pid pid : target::proc::processes()) {
    if (deadline.passed()) break;
    add(pid);
  }
  return children;
}

std::optional<std::uint64_t> socket_inode(std::string_view link) {
  constexpr std::string_view kPrefix = "socket:[";
  std::uint64_t inode = 0;
  if (!link.starts_with(kPrefix)) return std::nullopt;
  const auto [end, error] = std::from_chars(link.data() + kPrefix.size(), link.data() + link.size(), inode);
  return error == std::errc() && std::string_view(end, static_cast<std::size_t>(link.data() + link.size() - end)) == "]"
             ? std::optional(inode)
             : std::nullopt;
}

bool is_pidfd(std::string_view link) { return link == "anon_inode:[pidfd]" || link.starts_with("pidfd:["); }

// Turns each wait into questions; each table is read once, when a wait first needs it.
class Seeker {
 public:
  Seeker(target::Holders& holders, target::SocketTables& sockets, const Deadline& deadline)
      : holders_(holders), sockets_(sockets), deadline_(deadline) {}

  Sought seek(const BlockedThread& thread) {
    Sought sought;
    if (has_moved_on(thread)) return sought;
    const target::Awaited& awaited = thread.awaited;
    switch (awaited.what) {
      case What::kChild:
        sought.kind = EndKind::kChild;
        if (const auto child = find_child(thread.pid, awaited.child, deadline_)) sought.known.insert(*child);
        break;
      case What::kAnyChild:
        sought.kind = EndKind::kChild;
        sought.known = children_of(thread.pid, deadline_);
        break;
      case What::kFlock: seek_lock(thread, target::FileLock::Kind::kFlock, sought); break;
      case What::kRecordLock: seek_lock(thread, target::FileLock::Kind::kRecord, sought); break;
      case What::kOpenFileLock: seek_lock(thread, target::FileLock::Kind::kOpenFile, sought); break;
      case What::kEvents: seek_watched(thread, sought); break;
      case What::kInput:
        seek_end(thread.pid, awaited.fd, true, sought);
        sought.listens = is_listening(thread.pid, {awaited.fd});
        break;
      case What::kOutput: seek_end(thread.pid, awaited.fd, false, sought); break;
      case What::kDatabase: seek_database(thread.pid, sought); break;
    }
    return sought;
  }

 private:
  // Other ends only for an epoll descriptor that watches a single descriptor.
  void seek_watched(const BlockedThread& thread, Sought& sought) {
    const Pid pid = thread.pid;
    const auto info = target::descriptor_info(pid, thread.awaited.fd);
    if (!info) return;
    // The loops of communication libraries, which are threads of their own, watch a socket for each other rank.
    constexpr std::size_t kMaxOfOtherThreads = 64;
    std::vector<int> watched;
    for (const target::DescriptorInfo::Watched& one : info->watched) watched.push_back(one.fd);
    sought.listens = (thread.tid == pid || watched.size() <= kMaxOfOtherThreads) && is_listening(pid, watched);
    if (info->watched.size() != 1) {
      if (std::set<Pid> awaited = awaited_by_loop(pid, watched); !awaited.empty()) {
        sought.kind = EndKind::kChild;
        sought.known = std::move(awaited);
      }
      return;
    }
    const target::DescriptorInfo::Watched& only = info->watched.front();
    const auto file = target::descriptor_info(pid, only.fd);
    if (!file || (file->inode && only.inode && *file->inode != *only.inode)) return;
    seek_end(pid, only.fd,
             (only.events & (EPOLLIN | EPOLLPRI | EPOLLRDNORM)) != 0 || (only.events & (EPOLLOUT | EPOLLWRNORM)) == 0,
             sought);
  }

  // The processes whose end an event loop awaits (asyncio watches a pidfd of each one that a task waits for), if that
  // is all that it awaits: whatever else it watches is its own, by which other threads wake it, or a pipe.
  std::set<Pid> awaited_by_loop(Pid pid, const std::vector<int>& watched) {
    constexpr std::size_t kMax = 64;
    std::set<Pid> awaited;
    std::vector<std::uint64_t> sockets;
    if (watched.size() > kMax) return {};
    for (const int fd : watched) {
      const auto link = target::proc::read_link(fmt::format("/proc/{}/fd/{}", pid, fd));
      if (!link) return {};
      if (const auto inode = socket_inode(*link)) {
        sockets.push_back(*inode);
      } else if (is_pidfd(*link)) {
        const auto info = target::descriptor_info(pid, fd);
        if (!info || !info->process) return {};
        awaited.insert(*info->process);
      } else if (!link->starts_with("pipe:[") && *link != "anon_inode:[eventfd]") {
        return {};
      }
    }
    if (awaited.empty() || sockets.empty()) return awaited;
    std::set<std::uint64_t> own;
    for (const int fd : target::proc::descriptors_of(pid))
      if (const auto link = target::proc::read_link(fmt::format("/proc/{}/fd/{}", pid, fd)))
        if (const auto inode = socket_inode(*link)) own.insert(*inode);
    const bool are_own = std::all_of(sockets.begin(), sockets.end(), [&](std::uint64_t socket) {
      const auto peer = unix_peers_.peer_of(socket);
      return peer && own.contains(*peer);
    });
    return are_own ? awaited : std::set<Pid>();
  }

  // The TCP sockets of the process's network namespace. Tables that were read during the capture are read once more if
  // they do not have the socket: it may be newer.
  const TcpEnds& network_with(Pid pid, std::uint64_t inode) {
    const std::string name = target::name_of_network(pid);
    auto found = networks_.find(name);
    if (found == networks_.end()) {
      const bool is_old = sockets_.tcp(pid).was_read_before;
      found = networks_.emplace(name, Network{tcp_ends_of(pid, sockets_), is_old}).first;
    }
    Network& network = found->second;
    if (network.is_old && network.ends.find(inode) == nullptr) {
      target::SocketTables now;
      network = {tcp_ends_of(pid, now), false};
    }
    return network.ends;
  }

  // What the sockets that a process watches are: the addresses at which it listens, and those of its connections, which
  // are the same if it has accepted them.
  struct Addresses {
    std::set<std::string> listening, connected;
    void add(bool listens, std::string address) { (listens ? listening : connected).insert(std::move(address)); }
  };

  // Whether some of these are listening sockets, and every connection among them was accepted by one of these.
  bool is_listening(Pid pid, const std::vector<int>& descriptors) {
    constexpr std::size_t kMaxSockets = 4096;
    Addresses found;
    for (std::size_t i = 0; i < std::min(descriptors.size(), kMaxSockets) && !deadline_.passed(); ++i) {
      const auto link = target::proc::read_link(fmt::format("/proc/{}/fd/{}", pid, descriptors[i]));
      const auto inode = link ? socket_inode(*link) : std::nullopt;
      if (!inode) continue;
      if (const nccl::TcpSocket* socket = network_with(pid, *inode).find(*inode))
        found.add(socket->listens, fmt::format("port {}", socket->local.port));
      else add_unix(pid, *inode, found);
    }
    return !found.listening.empty() && std::includes(found.listening.begin(), found.listening.end(),
                                                     found.connected.begin(), found.connected.end());
  }

  // The client's side of a connection has no address of its own, nor has a socketpair(), by which a loop is woken.
  void add_unix(Pid pid, std::uint64_t inode, Addresses& found) {
    const std::map<std::uint64_t, target::UnixSocket>& sockets = unix_sockets_with(pid);
    const auto socket = sockets.find(inode);
    if (socket == sockets.end()) return;
    if (socket->second.listens || !socket->second.path.empty()) {
      found.add(socket->second.listens, socket->second.path);
    } else if (const auto peer = unix_peers_.peer_of(inode)) {
      const auto server = sockets.find(*peer);
      if (server != sockets.end() && !server->second.path.empty())
        found.add(false, "connection to " + server->second.path);
    }
  }

  const std::map<std::uint64_t, target::UnixSocket>& unix_sockets_with(Pid pid) {
    const auto [it, is_new] = unix_sockets_.try_emplace(target::name_of_network(pid));
    if (is_new) it->second = target::unix_sockets_of(pid);
    return it->second;
  }

  void seek_end(Pid pid, int fd, bool input, Sought& sought) {
    const auto link = target::proc::read_link(fmt::format("/proc/{}/fd/{}", pid, fd));
    if (!link) return;
    if (link->starts_with("pipe:[")) {
      sought.questions.push_back(input ? holders_.who_writes_pipe(*link) : holders_.who_reads_pipe(*link));
    } else if (const auto inode = socket_inode(*link)) {
      sought.kind = EndKind::kSocket;
      seek_socket(pid, *inode, sought);
    } else if (is_pidfd(*link)) {
      sought.kind = EndKind::kChild;
      if (const auto info = target::descriptor_info(pid, fd); info && info->process)
        sought.known.insert(*info->process);
    } else if (link->starts_with('/')) {
      if (const auto file = target::identity_of(pid, fd); file && file->is_fifo)
        sought.questions.push_back(holders_.who_opened_fifo(std::string(target::name_in(*link)), *file, input));
    }
  }

  void seek_socket(Pid pid, std::uint64_t inode, Sought& sought) {
    std::uint64_t other = 0;
    if (const auto peer = unix_peers_.peer_of(inode)) {
      other = *peer;
    } else {
      const TcpEnds::End end = network_with(pid, inode).of(inode);
      other = end.inode;
      sought.other_host = end.other_host;
    }
    if (other != 0) sought.questions.push_back(holders_.who_has_socket(other));
  }

  void seek_lock(const BlockedThread& thread, target::FileLock::Kind kind, Sought& sought) {
    sought.kind = EndKind::kLock;
    const auto link = target::proc::read_link(fmt::format("/proc/{}/fd/{}", thread.pid, thread.awaited.fd));
    const auto info = target::descriptor_info(thread.pid, thread.awaited.fd);
    if (!link || !info) return;
    for (const target::FileLock& lock :
         target::locks_in_the_way(locks(), target::awaited_locks(locks(), kind, thread.pid, info->inode))) {
      if (lock.kind == target::FileLock::Kind::kRecord) {
        if (lock.pid > 0) sought.known.insert(lock.pid);
        continue;
      }
      const auto question = holders_.who_has_lock(std::string(target::name_in(*link)), lock);
      sought.questions.push_back(question);
      if (lock.pid > 0) sought.takers[question] = lock.pid;
    }
  }

  // The process that holds the lock according to the kernel must have the file open through which the lock was taken.
  void seek_database(Pid pid, Sought& sought) {
    sought.kind = EndKind::kDatabase;
    auto open = databases_.find(pid);
    if (open == databases_.end()) {
      const auto files = target::open_files(pid);
      open =
          databases_.emplace(pid, files ? target::databases_among(*files) : std::vector<target::OpenDatabase>{}).first;
    }
    target::DatabaseLocks awaited = target::awaited_database_locks(locks(), pid, open->second);
    for (const auto& [name, lock] : awaited.held) {
      const auto question = holders_.who_has_lock(name, lock);
      sought.questions.push_back(question);
      if (lock.pid > 0) sought.takers[question] = lock.pid;
    }
    sought.database = std::move(awaited.path);
  }

  const std::vector<target::FileLock>& locks() {
    if (!locks_) {
      const auto text = target::proc::read_file("/proc/locks");
      locks_ = target::parse_file_locks(text ? *text : "");
    }
    return *locks_;
  }

  struct Network {
    TcpEnds ends;
    bool is_old = false;
  };

  target::Holders& holders_;
  target::SocketTables& sockets_;
  const Deadline& deadline_;
  target::UnixPeers unix_peers_;
  std::map<std::string, Network> networks_;                                          // by name_of_network
  std::map<std::string, std::map<std::uint64_t, target::UnixSocket>> unix_sockets_;  // by name_of_network
  std::map<Pid, std::vector<target::OpenDatabase>> databases_;
  std::optional<std::vector<target::FileLock>> locks_;
};

// Whether a process other than the thread's own has what the question asks for.
bool is_answered(const target::Holders& holders, target::Holders::Question question, Pid own) {
  const auto& found = holders.of(question);
  return found.size() > (found.contains(own) ? 1u : 0u);
}

void close_answered(target::Holders& holders, const std::vector<BlockedThread>& threads,
                    const std::vector<Sought>& sought) {
  std::set<target::Holders::Question> left, all;
  for (std::size_t i = 0; i < threads.size(); ++i)
    for (const auto question : sought[i].questions) {
      all.insert(question);
      if (!is_answered(holders, question, threads[i].pid)) left.insert(question);
    }
  for (const auto question : all)
    if (!left.contains(question)) holders.close(question);
}

// All processes except the job's and the tool's own; ancestors of the job's processes come first.
std::vector<Pid> other_processes(const std::vector<Pid>& job) {
  std::set<Pid> above;
  for (Pid pid : job) {
    constexpr int kMaxLevels = 64;
    for (int level = 0; level < kMaxLevels && pid > 0; ++level) {
      const auto stat = target::proc::stat_of(pid);
      pid = stat ? stat->parent : 0;
      if (pid == 0 || !above.insert(pid).second) break;
    }
  }
  const std::set<Pid> known(job.begin(), job.end());
  std::vector<Pid> others = target::proc::processes();
  std::erase_if(others, [&](Pid pid) { return pid == tool_pid() || pid == getpid() || known.contains(pid); });
  std::stable_partition(others.begin(), others.end(), [&](Pid pid) { return above.contains(pid); });
  return others;
}

// Returns false if some process could not be searched, which may be the one that is sought.
bool search(target::Holders& holders, const std::vector<BlockedThread>& threads, const std::vector<Sought>& sought,
            const std::vector<Pid>& job) {
  const auto budget = [] {
    return target::Holders::Budget{kMaxProcesses, kMaxDescriptors, DeadlineCheck(Deadline::after(kLongestSearch))};
  };
  if (!holders.any_open()) return true;
  target::Holders::Budget of_job = budget();
  for (const Pid pid : job) holders.look_through(pid, of_job);
  close_answered(holders, threads, sought);
  if (!holders.any_open()) return true;
  target::Holders::Budget of_others = budget();
  for (const Pid pid : other_processes(job)) holders.look_through(pid, of_others);
  const auto kernels = [](Pid pid) {
    const auto stat = target::proc::stat_of(pid);
    return !stat || stat->kernel_thread();
  };
  return !of_job.over && !of_others.over && std::all_of(holders.refused().begin(), holders.refused().end(), kernels);
}

FoundEnds found_of(const BlockedThread& thread, Sought& sought, const target::Holders& holders, bool all_seen) {
  FoundEnds found{.kind = sought.kind,
                  .others = {},
                  .own_end = false,
                  .other_host = std::move(sought.other_host),
                  .database = {},
                  .listens = sought.listens};
  std::set<Pid> pids = std::move(sought.known);
  for (const auto question : sought.questions) {
    const auto& of_question = holders.of(question);
    pids.insert(of_question.begin(), of_question.end());
    const auto taker = sought.takers.find(question);
    if (of_question.empty() && taker != sought.takers.end() && holders.refused().contains(taker->second))
      pids.insert(taker->second);
  }
  // The tool's workers are its children and share its descriptors.
  std::erase_if(pids, [](Pid pid) { return pid == tool_pid() || is_child(pid, tool_pid()); });
  if (sought.kind == EndKind::kDatabase) {
    // If several processes have locked it, it is not known which one blocks the thread. Locks of open files have no
    // process recorded, and may belong to the thread's own process.
    if (pids.size() == 1 && !pids.contains(thread.pid)) {
      found.others.push_back(*pids.begin());
      found.database = std::move(sought.database);
    }
    return found;
  }
  const bool alone = pids.size() == 1 && pids.contains(thread.pid) && (all_seen || sought.questions.empty());
  if (!alone) found.own_end = pids.erase(thread.pid) > 0;
  for (const Pid pid : pids)
    if (found.others.size() < SyscallInfo::kMaxOthers) found.others.push_back(pid);
  return found;
}

}  // namespace

std::vector<FoundEnds> find_ends(const std::vector<BlockedThread>& threads, const std::vector<Pid>& job,
                                 target::SocketTables& sockets) {
  target::Holders holders;
  const Deadline deadline = Deadline::after(kLongestSearch);
  Seeker seeker(holders, sockets, deadline);
  std::vector<Sought> sought;
  for (const BlockedThread& thread : threads) sought.push_back(deadline.passed() ? Sought{} : seeker.seek(thread));
  const bool all_seen = search(holders, threads, sought, job);
  std::vector<FoundEnds> found;
  for (std::size_t i = 0; i < threads.size(); ++i) found.push_back(found_of(threads[i], sought[i], holders, all_seen));
  return found;
}

}  // namespace rankstacks::capture
