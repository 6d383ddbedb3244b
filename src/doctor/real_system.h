// The System of the checks that asks this machine.
#pragma once

#include "doctor/system.h"

namespace rankstacks::doctor {

class RealSystem final : public System {
 public:
  Result<std::string> read_file(const std::string& path) const override;
  std::optional<std::string> read_link(const std::string& path) const override;
  std::vector<std::string> list(const std::string& directory) const override;
  bool exists(const std::string& path) const override;
  std::optional<unsigned> owner(const std::string& path) const override;
  std::optional<Space> space(const std::string& directory) const override;
  std::optional<std::string> variable(const std::string& name) const override;
  int try_open(const std::string& path) const override;
  int try_reach(const std::string& path) const override;
  int try_seize(Tid tid) const override;
  int try_read(Tid tid, Address address) const override;
  int try_signal(Pid pid) const override;
  Trial try_attach() const override;
  gpu::NvmlAnswer ask_nvml() const override;
  Result<TargetFacts> open_process(Pid pid) const override;
  Result<TargetFacts> open_core(const std::string& path, const target::CoreOptions& options) const override;
};

}  // namespace rankstacks::doctor
