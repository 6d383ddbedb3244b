#include "doctor/doctor.h"

#include <algorithm>
#include <iterator>

#include "doctor/core_size.h"
#include "doctor/core_writing.h"
#include "doctor/gpu_checks.h"
#include "doctor/machine_checks.h"
#include "doctor/self.h"
#include "doctor/target_checks.h"

namespace rankstacks::doctor {

bool Examination::has_problem(Area area) const {
  return std::any_of(sections.begin(), sections.end(), [area](const Section& s) {
    return std::any_of(s.findings.begin(), s.findings.end(),
                       [area](const Finding& f) { return f.area == area && f.severity == Severity::kProblem; });
  });
}

int Examination::exit_status() const {
  for (const Area area : {Area::kAttach, Area::kCores, Area::kNames, Area::kGpu})
    if (has_problem(area)) return 1;
  return 0;
}

Examination examine(const System& system, const Request& request) {
  Examination examination;
  if (!request.pids.empty() || request.cores.empty()) {
    const Self self = read_self(system);
    const CorePattern pattern = read_core_pattern(system);
    const CoreDestination destination = read_core_destination(system, pattern, request.root);
    const gpu::NvmlAnswer nvml = system.ask_nvml();
    Section machine;
    const auto append = [&](std::vector<Finding> findings) {
      machine.findings.insert(machine.findings.end(), findings.begin(), findings.end());
    };
    append(check_rights(self));
    append(check_surroundings(system, self));
    append(check_core_pattern(system, self, pattern, destination));
    // For processes that run already, their own limits count.
    if (request.pids.empty()) append({check_own_core_limit(system, self, pattern)});
    std::vector<Section> processes;
    std::vector<CoreOutlook> cores;
    for (const Pid pid : request.pids) {
      processes.push_back(check_process(system, self, pattern, destination, nvml, pid));
      for (const Finding& finding : processes.back().findings)
        if (finding.core) cores.push_back(*finding.core);
    }
    append(check_core_storage(system, destination, cores));
    append(check_gpus(system, self, nvml));
    examination.sections.push_back(std::move(machine));
    std::move(processes.begin(), processes.end(), std::back_inserter(examination.sections));
  }
  for (const std::string& core : request.cores)
    examination.sections.push_back(check_core(system, core, request.core_options));
  return examination;
}

}  // namespace rankstacks::doctor
