#include "target/socket_tables.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "target/proc.h"

namespace rankstacks::target {
namespace {

// "0100007F:1F90" in /proc/net/tcp: the 32-bit words of the address in host order, as hex.
std::string socket_address(std::string_view hex) {
  const auto colon = hex.find(':');
  if (colon == std::string_view::npos) return std::string(hex);
  unsigned port = 0;
  std::from_chars(hex.data() + colon + 1, hex.data() + hex.size(), port, 16);
  char shown[INET6_ADDRSTRLEN] = "?";
  std::uint32_t words[4] = {};
  const std::size_t count = colon / 8;
  for (std::size_t i = 0; i < count && i < 4; ++i)
    std::from_chars(hex.data() + 8 * i, hex.data() + 8 * i + 8, words[i], 16);
  if (count == 1) {
    inet_ntop(AF_INET, words, shown, sizeof shown);
    return fmt::format("{}:{}", shown, port);
  }
  inet_ntop(AF_INET6, words, shown, sizeof shown);
  return fmt::format("[{}]:{}", shown, port);
}

// Those states of include/net/tcp_states.h that are useful to a reader.
std::string tcp_state(const std::string& hex) {
  if (hex == "0A") return " (listening)";
  if (hex == "02") return " (connecting)";
  if (hex == "08") return " (closed by the peer)";
  return "";
}

std::string describe_socket(const char* table, const std::vector<std::string_view>& fields, const std::string& inode) {
  if (std::string_view(table) == "unix")
    return fmt::format("unix {}", fields.size() > 7 ? fields[7] : fmt::format("socket:[{}]", inode));
  const std::string state(fields[3]);
  const std::string peer = state == "0A" ? "" : " -> " + socket_address(fields[2]);
  return fmt::format("{} {}{}{}", table, socket_address(fields[1]), peer, table[0] == 't' ? tcp_state(state) : "");
}

const std::string kEventPoll = "anon_inode:[eventpoll]";

// " of 3 descriptors": how many it watches, a line "tfd: ..." for each (fs/eventpoll.c, ep_show_fdinfo).
std::string watched_by(Pid pid, int fd) {
  const auto info = proc::read_file(fmt::format("/proc/{}/fdinfo/{}", pid, fd));
  if (!info) return "";
  std::size_t count = info->starts_with("tfd:") ? 1 : 0;
  for (std::size_t at = info->find("\ntfd:"); at != std::string::npos; at = info->find("\ntfd:", at + 1)) ++count;
  return fmt::format(" of {} descriptor{}", count, count == 1 ? "" : "s");
}

}  // namespace

// The kernel fills its buffer, a page, with as many lines as fit (seq_read_iter, fs/seq_file.c), so a read that leaves
// room for several more lines was the last one. The read that returns 0 would walk through the hash table again.
Result<std::string> read_socket_table(Pid pid, const char* table) {
  constexpr std::size_t kPage = 4096, kRoom = 384, kLongest = 64u << 20;  // a line has at most some 280 bytes
  const std::string path = fmt::format("/proc/{}/net/{}", pid, table);
  const auto failed = [&](const char* what) {
    return fail({.code = errno == EACCES ? ErrorCode::kPermission : ErrorCode::kUnreadable,
                 .subject = path,
                 .what = what,
                 .os_errno = errno});
  };
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return failed("cannot open");
  std::string text;
  std::size_t used = 0;
  while (used < kLongest) {
    if (text.size() - used < 2 * kPage) text.resize(std::max(16 * kPage, 2 * text.size()));
    const ssize_t n = ::read(file.get(), text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("cannot read");
    used += static_cast<std::size_t>(n);
    if (static_cast<std::size_t>(n) <= kPage - kRoom) break;
  }
  text.resize(used);
  return text;
}

std::string name_of_network(Pid pid) {
  return proc::read_link(fmt::format("/proc/{}/ns/net", pid)).value_or(fmt::format("of pid {}", pid));
}

namespace {

// The tables, those most likely to contain a job's sockets first; only as many are read as needed.
struct KindOfTable {
  const char* name;
  std::size_t inode_field;
};
constexpr std::array<KindOfTable, 5> kTables{{{"tcp", 9}, {"tcp6", 9}, {"udp", 9}, {"udp6", 9}, {"unix", 6}}};

std::shared_ptr<const std::string> text_of(Pid pid, const char* table) {
  return std::make_shared<const std::string>(read_socket_table(pid, table).value_or(""));
}

}  // namespace

void SocketTables::describe_table(Network& network, Pid pid, std::size_t which) {
  const auto& [table, inode_field] = kTables[which];
  std::shared_ptr<const std::string> text;
  if (auto* const kept = which == 0 ? &network.tcp : which == 1 ? &network.tcp6 : nullptr) {
    if (!*kept) *kept = text_of(pid, table);
    text = *kept;
  } else {
    text = text_of(pid, table);
  }
  std::vector<std::string_view> fields;
  for (std::string_view rest = *text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    fields.clear();
    while (!line.empty()) {
      line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
      const std::string_view word = line.substr(0, line.find(' '));
      if (!word.empty()) fields.push_back(word);
      line.remove_prefix(word.size());
    }
    if (fields.size() <= inode_field) continue;
    const std::string inode(fields[inode_field]);
    if (!network.sockets.contains(inode)) network.sockets.emplace(inode, describe_socket(table, fields, inode));
  }
}

std::optional<std::string> SocketTables::find(Pid pid, const std::string& inode) {
  const std::string name = name_of_network(pid);
  const std::lock_guard lock(mutex_);
  Network& network = networks_[name];
  while (true) {
    if (const auto found = network.sockets.find(inode); found != network.sockets.end()) return found->second;
    if (network.tables_described == kTables.size()) return std::nullopt;
    describe_table(network, pid, network.tables_described++);
  }
}

SocketTables::Tcp SocketTables::tcp(Pid pid) {
  const std::string name = name_of_network(pid);
  const std::lock_guard lock(mutex_);
  Network& network = networks_[name];
  const bool was_read_before = network.tcp != nullptr;
  // Both are as large for the kernel, whatever they contain: they are read at the same time.
  std::optional<std::thread> other;
  if (!network.tcp && !network.tcp6) {
    try {
      other.emplace([&] { network.tcp6 = text_of(pid, "tcp6"); });
    } catch (const std::system_error&) {  // no thread can be started because of a limit
    }
  }
  if (!network.tcp) network.tcp = text_of(pid, "tcp");
  if (other) other->join();
  if (!network.tcp6) network.tcp6 = text_of(pid, "tcp6");
  return {network.tcp, network.tcp6, was_read_before};
}

std::optional<std::string> describe_descriptor(Pid pid, int fd, SocketTables& sockets, SocketTables* newer) {
  auto link = proc::read_link(fmt::format("/proc/{}/fd/{}", pid, fd));
  if (link == kEventPoll) return kEventPoll + watched_by(pid, fd);
  if (!link || !link->starts_with("socket:[") || !link->ends_with("]")) return link;
  const std::string inode = link->substr(8, link->size() - 9);
  for (SocketTables* const tables : {&sockets, newer})
    if (tables != nullptr)
      if (auto socket = tables->find(pid, inode)) return socket;
  return link;
}

}  // namespace rankstacks::target
