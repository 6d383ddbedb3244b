// Checks of a core, and of whether this machine has the very files that belong to it.
#include <fmt/format.h>
#include <algorithm>

#include "doctor/file_checks.h"
#include "doctor/target_checks.h"
#include "elf/image.h"

namespace rankstacks::doctor {
namespace {

constexpr Area kArea = Area::kCores;
const std::string kOtherFiles = "give the files of the machine where it was taken: --sysroot DIR or --search DIR";

bool is_about(const Problem& problem, const FileFacts& file) {
  return (problem.code == ProblemCode::kFileMismatch || problem.code == ProblemCode::kModuleOverlap) &&
         problem.subject == file.path;
}

// What was reported on the search for a module's file, without the file's name: "the core has build-id A, FILE has B".
std::string said_of(const TargetFacts& facts, const FileFacts& file) {
  const auto found =
      std::find_if(facts.problems.begin(), facts.problems.end(), [&](const Problem& p) { return is_about(p, file); });
  if (found == facts.problems.end()) return "";
  const std::string name = fmt::format("module {}: ", file.path);
  return found->message.starts_with(name) ? found->message.substr(name.size()) : found->message;
}

// Whether check_executable() or check_libraries() reports this problem.
bool is_of_a_file(const TargetFacts& facts, const Problem& p) {
  return p.code == ProblemCode::kFileMissing ||
         std::any_of(facts.files.begin(), facts.files.end(),
                     [&](const FileFacts& f) { return !f.opened && is_about(p, f); });
}

// A file that the core cannot confirm is a doubt; a part of the core that is missing is a loss.
bool is_loss(const Problem& p) {
  return p.code != ProblemCode::kFileMismatch && p.code != ProblemCode::kModuleOverlap &&
         p.code != ProblemCode::kFileUnverified;
}

Finding check_executable(const TargetFacts& facts) {
  const auto program =
      std::find_if(facts.files.begin(), facts.files.end(), [](const FileFacts& f) { return f.main_program; });
  if (program == facts.files.end())
    return problem("executable", kArea, "the core does not say which program it is of", {"name it with --exe FILE"});
  if (program->opened)
    return ok("executable", kArea,
              fmt::format("{}, as in the core (build-id {})", program->path, elf::to_string(program->build_id)));
  const std::string said = said_of(facts, *program);
  if (!said.empty())
    return problem("executable", kArea, fmt::format("{} is another here: {}", program->path, said),
                   {"give the program that was running: --exe FILE", kOtherFiles});
  return problem("executable", kArea, fmt::format("{} is not on this machine", program->path),
                 {"give the program that was running: --exe FILE", kOtherFiles});
}

Finding check_libraries(const TargetFacts& facts) {
  std::vector<std::string> other, missing;
  std::size_t all = 0;
  for (const FileFacts& file : facts.files) {
    if (file.main_program) continue;
    ++all;
    if (!file.opened) (said_of(facts, file).empty() ? missing : other).push_back(file.path);
  }
  if (other.empty() && missing.empty()) return ok("libraries", kArea, fmt::format("{}, as in the core", all));
  std::string found;
  if (!other.empty())
    found = fmt::format("{} of {} are others here than in the core: {}", other.size(), all, list_names(other));
  if (!missing.empty())
    found += fmt::format("{}{} of {} are not on this machine: {}", found.empty() ? "" : "; ", missing.size(), all,
                         list_names(missing));
  return problem("libraries", kArea, found, {kOtherFiles});
}

}  // namespace

Section check_core(const System& system, const std::string& path, const target::CoreOptions& options) {
  Section section;
  section.path = path;
  const auto facts = system.open_core(path, options);
  if (!facts) {
    Error error = facts.error();
    section.findings.push_back(
        problem("core", kArea, error.message(), {error.hint.empty() ? "take the core again" : error.hint}));
    return section;
  }
  section.name = facts->executable.substr(facts->executable.rfind('/') + 1);
  bool damaged = false;
  for (const Problem& p : facts->problems) {
    if (is_of_a_file(*facts, p)) continue;
    const bool loss = facts->partial && is_loss(p);
    damaged = damaged || loss;
    const std::vector<std::string> mends = p.hint ? std::vector<std::string>{*p.hint}
                                           : loss ? std::vector<std::string>{"take the core again"}
                                                  : std::vector<std::string>{};
    section.findings.push_back(loss ? problem("core", kArea, p.message, mends) : note("core", kArea, p.message, mends));
  }
  if (!damaged)
    section.findings.insert(section.findings.begin(),
                            ok("core", kArea, fmt::format("all of it is there, of pid {}", facts->pid)));
  section.findings.push_back(check_executable(*facts));
  section.findings.push_back(check_libraries(*facts));
  for (Finding& f : check_names(*facts)) section.findings.push_back(std::move(f));
  section.findings.push_back(check_python(*facts, kArea));
  return section;
}

}  // namespace rankstacks::doctor
