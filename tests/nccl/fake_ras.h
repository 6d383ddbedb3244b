// A server that plays NCCL's RAS thread, on a port of its own; it serves one connection after the other.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>

namespace rankstacks::testing {

// An answer of RAS in a real job: fixtures/nccl/ras.
inline std::string real_answer(const std::string& name) {
  std::ifstream file(RANKSTACKS_FIXTURES "/nccl/ras/" + name + ".json");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// What the server does with one connection: reads lines and writes arbitrary text.
class Guest {
 public:
  explicit Guest(int fd) : fd_(fd) {}
  // The next line; "" when the client has disconnected.
  std::string line() const {
    std::string text;
    for (char c; ::recv(fd_, &c, 1, 0) == 1;) {
      if (c == '\n') return text;
      text += c;
    }
    return "";
  }
  // False if the client has disconnected.
  bool say(const std::string& text) const {
    for (std::size_t sent = 0; sent < text.size();) {
      const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<std::size_t>(n);
    }
    return true;
  }
  // Returns when the client has disconnected.
  void keep_silent() const {
    while (!line().empty()) continue;
  }

 private:
  int fd_;
};

class FakeRas {
 public:
  explicit FakeRas(std::function<void(const Guest&)> behave) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&where), size) != 0 || ::listen(listener_, 8) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&where), &size) != 0)
      throw std::runtime_error("no listening socket");
    port_ = ntohs(where.sin_port);
    thread_ = std::thread([this, behave = std::move(behave)] {
      for (int fd; (fd = ::accept(listener_, nullptr, nullptr)) >= 0; ::close(fd)) behave(Guest(fd));
    });
  }
  ~FakeRas() {
    ::shutdown(listener_, SHUT_RDWR);  // accept() fails from now on
    thread_.join();
    ::close(listener_);
  }
  std::uint16_t port() const { return port_; }

 private:
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

// Answers as NCCL 2.28 does; `status` is the answer to VERBOSE STATUS.
inline void answer_as_nccl(const Guest& guest, const std::string& status,
                           const std::string& protocol = "SERVER PROTOCOL 2", const std::string& format = "OK") {
  for (std::string line; !(line = guest.line()).empty();) {
    if (line == "CLIENT PROTOCOL 2") guest.say(protocol + "\n");
    else if (line.starts_with("TIMEOUT ")) guest.say("OK\n");
    else if (line == "SET FORMAT json") guest.say(format + "\n");
    else if (line == "VERBOSE STATUS") return void(guest.say(status));
    else guest.say("ERROR: Unknown command " + line + "\n");
  }
}

}  // namespace rankstacks::testing
