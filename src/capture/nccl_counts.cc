#include "capture/nccl_counts.h"

#include <fcntl.h>
#include <sched.h>
#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "base/unattended.h"
#include "nccl/listening_sockets.h"
#include "nccl/local_addresses.h"
#include "nccl/socket_owner.h"
#include "target/mapping_list.h"
#include "target/proc.h"

namespace rankstacks::capture {
namespace {

constexpr std::chrono::seconds kLongestQuestion{1};
// Several jobs of one user on a machine may listen at one address: the kernel picks one of them for each connection.
constexpr int kMaxTries = 6;
// The number of different addresses at which ranks of one job listen; NCCL_RAS_ADDR is the same for all ranks.
constexpr std::size_t kMaxAddresses = 4;

bool is_nccl(std::string_view path) { return path.substr(path.rfind('/') + 1).starts_with("libnccl"); }

bool has_nccl(const target::LiveTarget& target) {
  const auto& modules = target.modules().all();
  return std::any_of(modules.begin(), modules.end(), [](const target::Module& module) { return is_nccl(module.path); });
}

// The machine's processes by the pid that each has in its own namespace: one pid may occur in several namespaces. Built
// once, when it is first needed.
class NumberedProcesses {
 public:
  explicit NumberedProcesses(const Deadline& deadline) : deadline_(deadline) {}

  nccl::LocalProcess look_for(Pid own_pid) {
    if (by_own_pid_.empty())
      for (const Pid pid : target::proc::processes()) by_own_pid_.emplace(target::proc::own_pid_of(pid), pid);
    nccl::LocalProcess found = nccl::LocalProcess::kNone;
    const auto [first, last] = by_own_pid_.equal_range(own_pid);
    for (auto it = first; it != last; ++it) {
      if (deadline_.passed()) return nccl::LocalProcess::kPossible;
      const auto mappings =
          target::mappings_in(fmt::format("/proc/{}", it->second)).value_or(std::vector<target::Mapping>());
      // A process that is ending has no mappings either.
      if (mappings.empty() ||
          std::any_of(mappings.begin(), mappings.end(), [](const target::Mapping& m) { return is_nccl(m.path); }))
        return nccl::LocalProcess::kPossible;
      found = nccl::LocalProcess::kNotOfNccl;
    }
    return found;
  }

 private:
  const Deadline& deadline_;
  std::multimap<Pid, Pid> by_own_pid_;
};

std::string network_of(const std::string& process) {
  return target::proc::read_link("/proc/" + process + "/ns/net").value_or("");
}

std::vector<nccl::TcpSocket> sockets_around(Pid pid, target::SocketTables& tables) {
  const std::string network = network_of(std::to_string(pid));
  if (!network.empty() && network == network_of("self"))
    if (auto listening = unattended<std::optional<std::vector<nccl::TcpSocket>>>(
            [] { return nccl::listening_sockets(); }, kLongestQuestion);  // the kernel may load a module for that
        listening && *listening)
      return std::move(**listening);
  return nccl::tcp_sockets_of(pid, tables);
}

}  // namespace

void NcclCounts::add(const target::LiveTarget& target, const std::string& host,
                     const std::map<std::string, std::string>& environment) {
  if (!has_nccl(target)) return;
  if (processes_.empty()) {
    troubled = target.pid();
    const auto named = environment.find("NCCL_RAS_ADDR");
    const auto address =
        named == environment.end() ? std::optional(nccl::RasAddress()) : nccl::parse_ras_address(named->second);
    can_ask_ = address.has_value();
    if (address) address_ = *address;
  } else if (network_of(std::to_string(target.pid())) != network_of(std::to_string(troubled))) {
    // A process of another container: that container's own RAS covers it, and its pids and addresses have other
    // meanings there.
    return;
  }
  processes_.push_back({{host, target.pid()}, target::proc::own_pid_of(target.pid())});
  pids_.push_back(target.pid());
}

// The addresses at which one of the processes itself listens, on RAS's port. A host name in NCCL_RAS_ADDR adds no
// information.
std::vector<std::string> NcclCounts::listening(target::SocketTables& sockets) const {
  std::vector<std::string> addresses;
  for (const nccl::TcpSocket& socket : sockets_around(troubled, sockets)) {
    if (!socket.listens || socket.local.port != address_.port || addresses.size() == kMaxAddresses) continue;
    std::string address = socket.local.text();
    if (socket.local.is_any()) address = address == "::" ? "::1" : "127.0.0.1";
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end() &&
        nccl::owner_of_socket(socket.inode, pids_))
      addresses.push_back(std::move(address));
  }
  return addresses;
}

// Asks on a separate thread, which enters the container's network namespace if that is another one.
Result<NcclStatus> NcclCounts::ask(const std::vector<std::string>& places) const {
  Result<NcclStatus> answer = fail({.code = ErrorCode::kNotFound});
  std::thread([&] {
    const std::string pid = std::to_string(troubled);
    if (network_of(pid) != network_of("self")) {
      const FileDescriptor network(::open(("/proc/" + pid + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC));
      if (!network.is_open() || ::setns(network.get(), CLONE_NEWNET) != 0) return;
    }
    std::vector<std::string> addresses = nccl::local_addresses();
    addresses.emplace_back("127.0.0.1");
    const nccl::RasVerifier is_ours = [this](int connected) {
      return nccl::owner_of_socket(nccl::inode_of_other_end(connected, troubled), pids_).has_value();
    };
    const Deadline deadline = Deadline::after(kLongestQuestion);
    NumberedProcesses others(deadline);
    for (int tries = 0; tries < kMaxTries && !deadline.passed(); ++tries) {
      const std::string& place = places[static_cast<std::size_t>(tries) % places.size()];
      auto once = nccl::query_ras(place, address_.port, deadline, is_ours);
      if (once) {
        nccl::keep_own_communicators(*once, processes_, addresses);
        if (auto why = nccl::contradiction_in(*once, processes_, addresses,
                                              [&](Pid own_pid) { return others.look_for(own_pid); })) {
          const std::string subject =
              fmt::format("NCCL's RAS at {}:{}", !contains(place, ':') ? place : "[" + place + "]", address_.port);
          once =
              fail({.code = ErrorCode::kMismatch, .subject = subject, .what = "its answer is not believed: " + *why});
        }
      }
      const ErrorCode code = once ? ErrorCode::kNotFound : once.error().code;
      const bool done =
          once ? !once->communicators.empty()
               : code != ErrorCode::kTimeout && code != ErrorCode::kPermission && code != ErrorCode::kNotFound;
      // A useful answer is not replaced by a later failure.
      if (once || !answer) answer = std::move(once);
      if (done) return;
    }
  }).join();
  return answer;
}

bool NcclCounts::ask_first(target::SocketTables& sockets) {
  const std::vector<std::string> places = can_ask_ ? listening(sockets) : std::vector<std::string>{};
  if (places.empty()) return false;
  auto answer = ask(places);
  if (answer && !answer->communicators.empty()) status = std::move(*answer);
  if (answer || answer.error().code == ErrorCode::kNotFound || answer.error().code == ErrorCode::kPermission)
    return true;
  const bool silent = answer.error().code == ErrorCode::kTimeout, old = answer.error().code == ErrorCode::kUnsupported,
             untrue = answer.error().code == ErrorCode::kMismatch;
  problem = Problem{answer.error().message(),
                    silent   ? "NCCL's own counts are not in the report; a rank that is stopped, or a RAS network with "
                               "ranks that are gone, does not answer"
                    : untrue ? "NCCL's own counts are not in the report; a rank answered, and either answers what is "
                               "not so, or its processes ended at this moment: look again"
                    : old ? "NCCL's own counts are not in the report; NCCL 2.28.7 and later give them, at the address "
                            "that NCCL_RAS_ADDR names"
                          : "NCCL's own counts are not in the report; ncclras asks the same of NCCL by hand",
                    code_of(answer.error().code)};
  return true;
}

void NcclCounts::ask_again() {
  if (!status) return;
  target::SocketTables now;
  const std::vector<std::string> places = listening(now);
  if (places.empty()) return;
  const auto second = ask(places);
  if (second && !second->communicators.empty()) nccl::compare_counts(*status, *second);
}

}  // namespace rankstacks::capture
