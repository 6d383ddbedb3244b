#include "gpu/nvml_helper.h"

#include <sys/prctl.h>
#include <unistd.h>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "gpu/helper_messages.h"
#include "gpu/nvml_answer.h"
#include "gpu/nvml_library.h"
#include "gpu/xid_log.h"

namespace rankstacks::gpu {
namespace {

// Seconds after which the helper ends in any case. The tool has continued without it long before.
constexpr unsigned kLongestLife = 30;

class Writer {
 public:
  // Writes a whole message under a lock, so that the messages of several devices are not mixed.
  void write(char kind, const std::vector<std::uint8_t>& body) {
    const std::lock_guard lock(mutex_);
    if (!send(STDOUT_FILENO, kind, body)) _exit(1);  // the tool has closed its end of the pipe
  }

 private:
  std::mutex mutex_;
};

// Counts the threads that have finished.
class Count {
 public:
  void one_done() {
    const std::lock_guard lock(mutex_);
    ++done_;
    changed_.notify_all();
  }
  void wait_for(unsigned all) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= all; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned done_ = 0;
};

[[noreturn]] void run_nvml_helper(const Machine& machine) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::alarm(kLongestLife);
  static Writer out;
  static Count parts;
  out.write('x', pack_xids(read_xids(machine.kernel_log())));
  const auto opened = NvmlLibrary::open(machine);
  if (!opened) {
    out.write('l', pack_failure(0, opened.error().what));
    out.write('d', {});
    _exit(0);
  }
  static const NvmlLibrary nvml = *opened;
  if (const nvml::Return refused = nvml.start(); refused != nvml::kSuccess) {
    out.write('r', pack_failure(refused, nvml.words_for(refused)));
    out.write('d', {});
    _exit(0);
  }
  const unsigned count = nvml.device_count();
  out.write('n', pack_count(nvml.driver_version(), count));
  for (unsigned index = 0; index < count; ++index) {
    std::thread([index] {
      const NvmlLibrary::Device read = nvml.read_device(index);
      if (read.result == nvml::kSuccess) out.write('g', pack(read.device));
      else out.write('f', pack_failure(read.result, nvml.words_for(read.result), index));
      parts.one_done();
    }).detach();
  }
  parts.wait_for(count);
  out.write('d', {});
  _exit(0);
}

}  // namespace

void run_nvml_helper_if_asked(int argc, const char* const* argv, const Machine& machine) {
  if (argc == 2 && std::string_view(argv[1]) == kNvmlHelperOption) run_nvml_helper(machine);
}

}  // namespace rankstacks::gpu
