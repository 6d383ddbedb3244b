// A paused process, read through /proc/PID/mem: a minimal target for tests that read Python's state in real
// interpreters.
#pragma once

#include <fcntl.h>
#include <unistd.h>
#include <string>

#include "elf/image.h"
#include "target/module_list.h"
#include "target/proc.h"
#include "target/target.h"

namespace rankstacks::testing {

class ProcTarget : public target::Target {
 public:
  explicit ProcTarget(Pid pid) : subject_("pid " + std::to_string(pid)) {
    const std::string base = "/proc/" + std::to_string(pid);
    memory_ = ::open((base + "/mem").c_str(), O_RDONLY | O_CLOEXEC);
    if (const auto maps = target::proc::read_file(base + "/maps")) mappings_ = target::proc::parse_maps(*maps);
    std::vector<target::Module> modules;
    for (const target::FileMappings& file : target::group_mappings(mappings_)) {
      target::Module module;
      module.path = file.path;
      module.range = file.range;
      if (const auto image = elf::Image::open(file.path, file.path)) {
        if (const auto bias = target::load_bias(**image, file)) {
          module.image = *image;
          module.bias = *bias;
        }
      }
      modules.push_back(std::move(module));
    }
    modules_ = target::ModuleMap(std::move(modules));
  }
  ~ProcTarget() override {
    if (memory_ >= 0) ::close(memory_);
  }
  ProcTarget(const ProcTarget&) = delete;
  ProcTarget& operator=(const ProcTarget&) = delete;

  const std::string& subject() const override { return subject_; }
  std::span<const target::ThreadInfo> threads() const override { return {}; }
  std::span<const target::Mapping> mappings() const override { return mappings_; }
  const target::ModuleMap& modules() const override { return modules_; }

  std::size_t read(Address address, std::span<std::byte> into) const noexcept override {
    std::size_t done = 0;
    while (done < into.size()) {
      const ssize_t n = ::pread(memory_, into.data() + done, into.size() - done, static_cast<off_t>(address + done));
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    return done;
  }

  void prefetch(std::span<const Range> ranges) const noexcept override {
    ++batches_;
    for (const Range& r : ranges) {
      if (r.end < r.start) inverted_ranges_ = true;
    }
  }

  std::size_t batches() const { return batches_; }
  bool inverted_ranges() const { return inverted_ranges_; }
  target::ModuleMap modules_;  // tests may replace it

 private:
  std::string subject_;
  int memory_ = -1;
  std::vector<target::Mapping> mappings_;
  mutable std::size_t batches_ = 0;
  mutable bool inverted_ranges_ = false;
};

}  // namespace rankstacks::testing
