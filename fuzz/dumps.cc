// What other tools have printed about processes, with and without launchers' prefixes and the headings of torch's debug
// server.
#include "analyzers/motion.h"
#include "dumps/draft.h"
#include "dumps/dump.h"
#include "input.h"

using namespace rankstacks;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  if (!dumps::is_dump(text)) return 0;
  auto job = dumps::read_dump(text, "dump.1.txt", 1);
  if (!job) {
    fuzz::require(!job.error().what.empty(), "an error says what is wrong");
    return 0;
  }
  analyzers::fold_earlier(*job, dumps::keep_one_dump_of_each(*job));
  for (const RankSnapshot& rank : job->ranks) {
    if (rank.status == Status::kFailed) continue;  // it has not answered
    fuzz::require((!rank.threads.empty() || !rank.gpus.empty()) && rank.dumped_by,
                  "a process has threads or GPUs, and a tool");
    for (const GpuSnapshot& gpu : rank.gpus) {
      fuzz::require(gpu.execution && gpu.execution->kernels.size() <= 1024, "kernels are bounded");
      for (const GpuKernel& kernel : gpu.execution->kernels)
        for (const FrameId id : kernel.frames)
          fuzz::require(job->frames[id].kind == FrameKind::kGpu, "frames of kernels are the GPU's");
    }
    fuzz::require(rank.threads.size() <= dumps::kMaxThreads, "threads are bounded");
    for (const ThreadSnapshot& thread : rank.threads)
      fuzz::require(thread.frames.size() <= dumps::kMaxFrames, "frames are bounded");
  }
  return 0;
}
