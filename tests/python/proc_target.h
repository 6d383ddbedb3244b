// A paused process, read through /proc/PID/mem: a minimal target for tests that read Python's state in real
// interpreters.
#pragma once

#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "elf/image.h"
#include "target/module_list.h"
#include "target/proc.h"
#include "target/target.h"

namespace rankstacks::testing {

class ProcTarget : public Target {
 public:
  explicit ProcTarget(Pid pid) : subject_("pid " + std::to_string(pid)) {
    const std::string base = "/proc/" + std::to_string(pid);
    memory_ = ::open((base + "/mem").c_str(), O_RDONLY | O_CLOEXEC);
    if (const auto maps = proc::read_file(base + "/maps")) mappings_ = proc::parse_maps(*maps);
    std::vector<Module> modules;
    for (const FileMappings& file : group_mappings(mappings_)) {
      Module module;
      module.path = file.path;
      module.range = file.range;
      if (const auto image = elf::Image::open(file.path, file.path)) {
        if (const auto bias = load_bias(**image, file)) {
          module.image = *image;
          module.bias = *bias;
        }
      }
      modules.push_back(std::move(module));
    }
    modules_ = ModuleMap(std::move(modules));
  }
  ~ProcTarget() override {
    if (memory_ >= 0) ::close(memory_);
  }
  ProcTarget(const ProcTarget&) = delete;
  ProcTarget& operator=(const ProcTarget&) = delete;

  const std::string& subject() const override { return subject_; }
  std::span<const ThreadInfo> threads() const override { return {}; }
  std::span<const Mapping> mappings() const override { return mappings_; }
  const ModuleMap& modules() const override { return modules_; }

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
  ModuleMap modules_;   // tests may replace it

 private:
  std::string subject_;
  int memory_ = -1;
  std::vector<Mapping> mappings_;
  mutable std::size_t batches_ = 0;
  mutable bool inverted_ranges_ = false;
};

}  // namespace rankstacks::testing
