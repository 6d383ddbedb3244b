// The sockets of network namespaces, by the tables of /proc/PID/net, and what descriptors refer to.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "base/types.h"

namespace rankstacks::target {

// The text of /proc/PID/net/TABLE. To read "tcp", the kernel walks through a hash table that has room for all
// connections of the machine, several milliseconds long, and once more when it is asked whether there is more to read.
Result<std::string> read_socket_table(Pid pid, const char* table);

// The link /proc/PID/ns/net, which processes of one network namespace share.
std::string name_of_network(Pid pid);

// The tables as they are when they are first needed, for all processes of one sample: each is read once for all
// processes of a namespace. A thousand threads may wait in sockets, and a machine may have a million of them.
// Thread-safe.
class SocketTables {
 public:
  // "tcp 10.0.0.1:4 -> 10.0.0.2:5", "unix /run/x", ...; std::nullopt: a socket of another kind, or one that is newer
  // than the tables.
  std::optional<std::string> find(Pid pid, const std::string& inode);

  // The texts of "tcp" and "tcp6" of the network namespace that the process is in; empty if /proc does not show them.
  struct Tcp {
    std::shared_ptr<const std::string> v4, v6;
    bool was_read_before = false;  // what has been opened since then is not in it
  };
  Tcp tcp(Pid pid);

 private:
  struct Network {
    std::size_t tables_described = 0;
    std::unordered_map<std::string, std::string> sockets;  // by inode
    std::shared_ptr<const std::string> tcp, tcp6;
  };
  static void describe_table(Network& network, Pid pid, std::size_t which);

  std::mutex mutex_;
  std::unordered_map<std::string, Network> networks_;  // by name_of_network
};

// What a file descriptor of a process refers to: a path, "pipe:[12]", "tcp 10.0.0.1:4 -> 10.0.0.2:5", "unix /run/x".
// `newer` is asked for sockets that are not in `sockets`.
std::optional<std::string> describe_descriptor(Pid pid, int fd, SocketTables& sockets, SocketTables* newer = nullptr);

}  // namespace rankstacks::target
