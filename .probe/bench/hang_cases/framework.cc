// One rank of a job of a C++ framework that the tool has no rules for: the main thread joins, a pool of 100 threads is
// idle, and one thread launches collectives and polls their events. The odd rank's poller does not come to launch: it
// is in LoadBatch.
//     framework [steps | poll]    steps: nothing hangs; poll: all ranks poll an event that never comes
#include <sys/prctl.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

extern "C" long ncclAllReduce(int rank);
extern "C" int cudaEventQuery(long operation, int ranks);

namespace flow {

int Number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

void Announce(const char* how) {
  const std::string path = std::string(std::getenv("HANGS_DIRECTORY")) + "/at." + std::to_string(Number("RANK", 0));
  FILE* const out = std::fopen((path + ".new").c_str(), "w");
  std::fprintf(out, "%d %s\n", getpid(), how);
  std::fclose(out);
  std::rename((path + ".new").c_str(), path.c_str());
}

class ThreadPool {
 public:
  explicit ThreadPool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  void Submit(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push(std::move(task));
    available_.notify_one();
  }
  void Join() {
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      available_.wait(lock, [this] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop();
      lock.unlock();
      task();
    }
  }
  std::mutex mutex_;
  std::condition_variable available_;
  std::queue<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
};

namespace data {
__attribute__((noinline)) void LoadBatch(bool blocks) {
  usleep(5000);
  if (blocks) {
    Announce("asleep");
    for (;;) pause();
  }
}
}  // namespace data

class EventPoller {
 public:
  explicit EventPoller(const std::string& mode) : steps_(mode == "steps"), polls_(mode == "poll") {}
  __attribute__((noinline)) void WaitFor(long operation) {
    while (cudaEventQuery(operation, world_) != 0) usleep(100);
  }
  void Run() {
    for (long step = 0;; ++step) {
      data::LoadBatch(!steps_ && !polls_ && rank_ == Number("HANGS_ODD", 2) && step == 3);
      const long operation =
          ncclAllReduce(rank_) + (polls_ && step == 3 ? 1 : 0);  // an operation that no rank launches
      if (step == 3) Announce(steps_ ? "moves" : "asleep");      // the state of the main thread, which joins
      WaitFor(operation);
    }
  }

 private:
  const bool steps_, polls_;
  const int rank_ = Number("RANK", 0), world_ = Number("WORLD_SIZE", 1);
};

}  // namespace flow

int main(int count, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  flow::EventPoller poller(count > 1 ? arguments[1] : "");
  flow::ThreadPool pool(100);
  pool.Submit([&] { poller.Run(); });
  pool.Join();
}
