// A minimal library of collectives with the function names of NCCL and CUDA: the ranks meet in a file of counters that
// all of them have mapped. An operation is done when every rank has launched it; no thread waits inside of the library.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

namespace {
struct Counters {
  std::atomic<long> launched[64];
};

Counters* counters() {
  static Counters* const mapped = [] {
    const std::string path = std::string(std::getenv("HANGS_DIRECTORY")) + "/counters";
    const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(Counters)) != 0) std::abort();
    void* const memory = mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) std::abort();
    return static_cast<Counters*>(memory);
  }();
  return mapped;
}
}  // namespace

extern "C" long ncclAllReduce(int rank) { return ++counters()->launched[rank]; }

extern "C" int cudaEventQuery(long operation, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (counters()->launched[rank] < operation) return 600;  // cudaErrorNotReady
  }
  return 0;
}
