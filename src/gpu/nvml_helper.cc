#include "gpu/nvml_helper.h"

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <fmt/format.h>
#include <mutex>
#include <string_view>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>

#include "gpu/nvml_library.h"
#include "gpu/xid_log.h"

namespace rankstacks::gpu {
namespace {

// Whoever started it has gone on without it long since.
constexpr unsigned kLongestLife = 30;

class Writer {
 public:
  // A whole block at once: those of several devices do not mix.
  void write(std::string_view text) {
    const std::lock_guard lock(mutex_);
    while (!text.empty()) {
      const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) _exit(1);                // nobody listens any more
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }

 private:
  std::mutex mutex_;
};

// So many threads have done their part.
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
  std::string log;
  for (const auto& [pci, xid] : read_xids(machine.kernel_log())) log += fmt::format("xid {} {}\n", pci, xid);
  out.write(log);
  const auto opened = NvmlLibrary::open(machine);
  if (!opened) {
    out.write(fmt::format("no-library {}\nend\n", opened.error().what));
    _exit(0);
  }
  static const NvmlLibrary nvml = *opened;
  if (const nvml::Return refused = nvml.start(); refused != nvml::kSuccess) {
    out.write(fmt::format("refused {} {}\nend\n", refused, nvml.words_for(refused)));
    _exit(0);
  }
  const unsigned count = nvml.device_count();
  out.write(fmt::format("driver {}\ncount {}\n", nvml.driver_version(), count));
  for (unsigned index = 0; index < count; ++index) {
    std::thread([index] {
      const NvmlLibrary::Device read = nvml.read_device(index);
      out.write(read.result == nvml::kSuccess ? device_text(read.device) : fmt::format("failed {} {} {}\n", index, read.result, nvml.words_for(read.result)));
      parts.one_done();
    }).detach();
  }
  parts.wait_for(count);
  out.write("end\n");
  _exit(0);
}

}  // namespace

void run_nvml_helper_if_asked(int argc, const char* const* argv, const Machine& machine) {
  if (argc == 2 && std::string_view(argv[1]) == kNvmlHelperOption) run_nvml_helper(machine);
}

}  // namespace rankstacks::gpu
