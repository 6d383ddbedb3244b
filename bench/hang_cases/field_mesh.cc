// A rank of a C++ program that has written its communication itself: each rank is connected to rank 0 by a Unix socket,
// and a thread of each rank receives. A step ends when rank 0 has heard of all. It is started as  field_mesh CASE RANK.
//
// Held out: written without a look at the rules of the tool (docs/benchmark.md).
#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace mesh {

int rank, ranks;
std::string directory;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void announce(const std::string& how) {
  const std::string path = directory + "/at." + std::to_string(rank);
  std::ofstream(path + ".new") << getpid() << ' ' << how << '\n';
  std::rename((path + ".new").c_str(), path.c_str());
}

bool is_odd() {
  std::istringstream odd(variable("HANGS_ODD"));
  for (std::string number; std::getline(odd, number, ',');)
    if (std::stoi(number) == rank) return true;
  return false;
}

// What has arrived, as counted by the thread of each connection.
class Inbox {
 public:
  void arrived() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++messages_;
    changed_.notify_all();
  }
  void wait_for(int messages) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return messages_ >= messages; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int messages_ = 0;
};

class Connection {
 public:
  Connection(int descriptor, Inbox& inbox) : descriptor_(descriptor), receiver_([this, &inbox] { receive(inbox); }) {}
  void send() {
    const char message = 'm';
    if (write(descriptor_, &message, 1) != 1) throw std::runtime_error("a rank is gone");
  }
  ~Connection() { receiver_.join(); }

 private:
  void receive(Inbox& inbox) {
    for (char message; read(descriptor_, &message, 1) == 1;) inbox.arrived();
  }
  int descriptor_;
  std::thread receiver_;
};

class Group {
 public:
  Group() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s/mesh", directory.c_str());
    const int own = socket(AF_UNIX, SOCK_STREAM, 0);
    auto* const where = reinterpret_cast<sockaddr*>(&address);
    if (rank == 0) {
      if (bind(own, where, sizeof address) != 0 || listen(own, ranks) != 0) throw std::runtime_error("cannot listen");
      for (int other = 1; other < ranks; ++other)
        others_.push_back(std::make_unique<Connection>(accept(own, nullptr, nullptr), inbox_));
    } else {
      while (connect(own, where, sizeof address) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      others_.push_back(std::make_unique<Connection>(own, inbox_));
    }
  }
  // Returns when all ranks have called it.
  void synchronize() {
    ++step_;
    if (rank == 0) {
      inbox_.wait_for(step_ * (ranks - 1));
      for (auto& other : others_) other->send();
    } else {
      others_.front()->send();
      inbox_.wait_for(step_);
    }
  }

 private:
  Inbox inbox_;
  std::vector<std::unique_ptr<Connection>> others_;
  int step_ = 0;
};

double refine_cells(int rounds) {
  double value = 1;
  for (int i = 0; i < rounds * 1000000; ++i) value = value * 0.999 + 1e-9;
  return value;
}

// Two tasks, each of which has a mutex that the other one wants.
void exchange_particles() {
  std::mutex left, right;
  std::promise<void> one, two;
  announce("asleep");
  auto task = [](std::mutex& first, std::mutex& second, std::promise<void>& here, std::future<void> there) {
    std::lock_guard<std::mutex> a(first);
    here.set_value();
    there.wait();
    std::lock_guard<std::mutex> b(second);
  };
  auto first = std::async(std::launch::async, task, std::ref(left), std::ref(right), std::ref(one), two.get_future());
  auto second = std::async(std::launch::async, task, std::ref(right), std::ref(left), std::ref(two), one.get_future());
  first.get();
  second.get();
}

// Asks a coordinator at whose port nobody listens, again and again.
void register_with_coordinator() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const int unused = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(unused, reinterpret_cast<sockaddr*>(&address), size) != 0) throw std::runtime_error("cannot bind");
  getsockname(unused, reinterpret_cast<sockaddr*>(&address), &size);
  announce("polls");
  for (;;) {
    const int attempt = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(attempt, reinterpret_cast<sockaddr*>(&address), size) == 0) return;
    close(attempt);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// The mesh cannot be read. On the way out the destructor of the writer waits for its thread, which waits for a server
// that is silent.
struct Writer {
  std::thread thread{[] {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(variable("HANGS_PORT"))));
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    char answer;
    if (connect(server, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && recv(server, &answer, 1, 0) < 0)
      std::abort();
  }};
  ~Writer() { thread.join(); }
};

void load_mesh() {
  Writer writer;
  announce("asleep");
  throw std::runtime_error("mesh.dat: not a mesh");
}

void step(const std::string& what, Group& group, int number) {
  if (what == "steps") {
    refine_cells(40);
    if (number == 3) announce("moves");
  } else if (number == 3) {
    if (!is_odd()) announce("asleep");
    else if (what == "locks") exchange_particles();
    else if (what == "coordinator") register_with_coordinator();
    else if (what == "exception") load_mesh();
  }
  group.synchronize();
}

}  // namespace mesh

int main(int count, char** arguments) {
  if (count != 3) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  mesh::directory = mesh::variable("HANGS_DIRECTORY");
  mesh::rank = std::stoi(arguments[2]);
  mesh::ranks = std::stoi(mesh::variable("HANGS_RANKS"));
  mesh::Group group;
  try {
    for (int number = 0; number < 1000000; ++number) mesh::step(arguments[1], group, number);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", mesh::rank, error.what());
  }
}
