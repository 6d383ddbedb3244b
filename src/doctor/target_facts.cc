#include "doctor/target_facts.h"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>

#include "base/unattended.h"
#include "gpu/attach_point.h"
#include "python/python.h"
#include "symbolizers/debug_file.h"
#include "target/live_target.h"

namespace rankstacks::doctor {
namespace {

FileFacts facts_of_file(const target::Module& module, const std::string& executable,
                        const symbolizers::SymbolizerOptions& options) {
  FileFacts facts{.path = module.path, .build_id = module.build_id, .main_program = module.path == executable};
  if (!module.image) {
    facts.why_not_opened = module.why_no_image;
    facts.unread = true;
    return facts;
  }
  const elf::Image& image = *module.image;
  facts.opened = !image.path().empty();
  if (!facts.opened) facts.why_not_opened = "only what of it is in memory can be read";
  const auto examine = [&](const elf::Image& in) {
    facts.symbols = facts.symbols || in.static_symbols().size() > 0 || in.section(".gnu_debugdata") != nullptr;
    facts.debug_info =
        facts.debug_info || in.section(".debug_info") != nullptr || in.section(".zdebug_info") != nullptr;
  };
  examine(image);
  if (!facts.debug_info) {
    std::vector<std::string> refused;
    if (const auto separate = symbolizers::DebugFiles(options, refused).separate_file(image)) examine(*separate);
  }
  return facts;
}

// The interpreter's state is really read, by the code that an attach uses, but while the process runs.
std::optional<PythonFacts> facts_of_python(const target::Target& target) {
  const auto candidates = python::find_python_runtime(target);
  if (candidates.empty()) return std::nullopt;
  PythonFacts facts{.module = candidates.front().module};
  for (const python::RuntimeCandidate& candidate : candidates)
    if (candidate.version && !facts.version) facts.version = candidate.version->to_string();
  if (const auto state = python::read_python_state(target, candidates)) facts.version = state->version.to_string();
  else facts.unreadable = state.error().what;
  return facts;
}

std::optional<GpuFacts> facts_of_gpu(Pid pid) {
  const auto process = target::ProcessId::of(pid);
  if (!process) return std::nullopt;
  const auto point = gpu::AttachPoint::find(*process, gpu::Machine());
  if (!point)
    return point.error().code == ErrorCode::kNotFound ? std::nullopt
                                                      : std::optional(GpuFacts{.unreadable = point.error().what});
  const auto admission = gpu::admission_to(*point);
  if (!admission) return GpuFacts{.unreadable = admission.error().what};
  GpuFacts facts{.left_by = admission->left_by.value_or(0)};
  const auto descriptor = point->attach_descriptor();
  facts.by_descriptor = descriptor && *descriptor;
  if (admission->refusal) {
    facts.refusal = admission->refusal->what;
    facts.hint = admission->refusal->hint;
  }
  return facts;
}

TargetFacts facts_of(const target::Target& target, const std::string& executable,
                     const symbolizers::SymbolizerOptions& options) {
  TargetFacts facts{.executable = executable};
  for (const target::Module& module : target.modules().all())
    if (module.path != "[vdso]") facts.files.push_back(facts_of_file(module, executable, options));
  facts.python = facts_of_python(target);
  return facts;
}

Result<TargetFacts> read_process(Pid pid) {
  target::LiveImages images;
  const auto target = target::LiveTarget::prepare(pid, images);
  if (!target) return fail(target.error());
  TargetFacts facts = facts_of(**target, (*target)->executable(), {});
  facts.pid = pid;
  facts.problems = (*target)->problems();
  facts.gpu = facts_of_gpu(pid);
  return facts;
}

Result<TargetFacts> read_core(const std::string& path, const target::CoreOptions& options) {
  elf::ImageCache images;
  const auto core = target::CoreTarget::open(path, options, images);
  if (!core) return fail(core.error());
  const symbolizers::SymbolizerOptions symbols{
      .sysroot = options.sysroot, .search = options.search, .debuginfod = options.debuginfod};
  TargetFacts facts = facts_of(**core, (*core)->executable(), symbols);
  facts.pid = (*core)->pid();
  facts.problems = (*core)->problems();
  facts.partial = (*core)->partial();
  return facts;
}

// Its files, and those that it names, may lie on a file system that no longer answers.
constexpr std::chrono::seconds kLongestWait{60};

Error silent(std::string subject) {
  return {.code = ErrorCode::kTimeout,
          .subject = std::move(subject),
          .what = fmt::format("looking at it did not come back within {} s", kLongestWait.count()),
          .hint =
              "a file system whose server is gone (NFS, FUSE), or memory that nobody fills in, blocks every process "
              "that touches it: an attach leaves out what does not answer"};
}

}  // namespace

Result<TargetFacts> facts_of_process(Pid pid) {
  auto facts = unattended<Result<TargetFacts>>([pid] { return read_process(pid); }, kLongestWait);
  if (!facts) return fail(silent(fmt::format("pid {}", pid)));
  return std::move(*facts);
}

Result<TargetFacts> facts_of_core(const std::string& path, const target::CoreOptions& options) {
  auto facts = unattended<Result<TargetFacts>>([path, options] { return read_core(path, options); }, kLongestWait);
  if (!facts) return fail(silent(path));
  return std::move(*facts);
}

}  // namespace rankstacks::doctor
