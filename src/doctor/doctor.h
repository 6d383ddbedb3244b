// `rankstacks doctor`: what would prevent an attach or a core from working here. Each fact is looked up or tried, and
// comes with the command that fixes it.
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/system.h"

namespace rankstacks::doctor {

struct Request {
  std::vector<Pid> pids;  // exactly these: launchers are not replaced by their ranks
  // With cores alone, this machine's rights do not matter and are not checked.
  std::vector<std::string> cores;
  target::CoreOptions core_options;
  // The root directory of the machine, as it is seen from here, for what is there and not in this container: who gets
  // cores, and its settings. "": this one.
  std::string root;
};

Examination examine(const System& system, const Request& request);

struct TextOptions {
  bool color = false;
  std::size_t width = 100;
};
std::string text_of(const Examination& examination, const TextOptions& options);

std::string json_of(const Examination& examination);

}  // namespace rankstacks::doctor
