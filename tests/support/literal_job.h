// Literal snapshots, for tests of analyzers and reports.
#pragma once

#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::testing {

inline const std::string kLibc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
inline const std::string kTorchCpu = "/opt/torch/lib/libtorch_cpu.so";
inline const std::string kPackages = "/usr/lib/python3/dist-packages/";

inline Frame py(std::string function, std::string file, int line) {
  Frame frame;
  frame.kind = FrameKind::kPython;
  frame.function = std::move(function);
  frame.file = std::move(file);
  frame.line = line;
  return frame;
}

inline Frame nat(std::string function, std::string module = kTorchCpu) {
  Frame frame;
  frame.function = std::move(function);
  frame.module = std::move(module);
  return frame;
}

inline Frame unknown(std::string module, Vaddr offset, Address address = 0) {
  Frame frame;
  frame.module = std::move(module);
  frame.offset = offset;
  frame.address = address;
  return frame;
}

inline Frame libc(std::string function) { return nat(std::move(function), kLibc); }

using Stack = std::vector<Frame>;  // innermost first

inline Stack operator+(Stack inner, const Stack& outer) {
  inner.insert(inner.end(), outer.begin(), outer.end());
  return inner;
}

// Stacks as they are in real jobs.
inline Stack in_main(int line) {
  return {py("main", "/home/u/train.py", line), py("<module>", "/home/u/train.py", 90)};
}
inline Stack waits_in_all_reduce(int line = 17) {
  return Stack{libc("pthread_cond_wait"), nat("c10d::ProcessGroupGloo::AsyncWork::wait(std::chrono::duration<long>)"),
               py("all_reduce", kPackages + "torch/distributed/distributed_c10d.py", 2000),
               py("wrapper", kPackages + "torch/distributed/c10d_logger.py", 80)} +
         in_main(line);
}
inline Stack waits_in_backward(int line = 17) {
  return Stack{libc("pthread_cond_wait"),
               nat("c10d::Reducer::finalize_backward()"),
               nat("torch::autograd::Engine::execute(std::vector<int> const&)"),
               nat("THPEngine_run_backward(_object*)", "/x/libtorch_python.so"),
               py("backward", kPackages + "torch/autograd/__init__.py", 197),
               py("backward", kPackages + "torch/_tensor.py", 488)} +
         in_main(line);
}
inline Stack in_getitem() {
  return Stack{libc("read"), py("__getitem__", "/home/u/data.py", 9),
               py("fetch", kPackages + "torch/utils/data/_utils/fetch.py", 54),
               py("_next_data", kPackages + "torch/utils/data/dataloader.py", 785),
               py("__next__", kPackages + "torch/utils/data/dataloader.py", 725)} +
         in_main(15);
}

class LiteralJob {
 public:
  JobSnapshot job;

  LiteralJob() {
    job.tool_version = "0.1.0";
    job.captured_at = "2026-01-31T12:00:00.123Z";
  }

  RankSnapshot& process() {
    RankSnapshot& rank = job.ranks.emplace_back();
    rank.host = "node-a";
    rank.pid = 100 + static_cast<Pid>(job.ranks.size()) - 1;
    return rank;
  }

  // A rank with its main thread, which sleeps.
  RankSnapshot& rank(int number, int world, const Stack& stack, char state = 'S') {
    RankSnapshot& rank = process();
    rank.rank = number;
    rank.local_rank = number;
    rank.world_size = world;
    rank.python_version = "3.11.2";
    thread(rank, rank.pid, "python3", stack).state = state;
    return rank;
  }

  RankSnapshot& child(Pid parent, const Stack& stack, char state = 'S') {
    RankSnapshot& rank = process();
    rank.kind = RankKind::kChild;
    rank.parent = parent;
    rank.python_version = "3.11.2";
    thread(rank, rank.pid, "python3", stack).state = state;
    return rank;
  }

  ThreadSnapshot& thread(RankSnapshot& rank, Tid tid, std::string name, const Stack& stack) {
    ThreadSnapshot& thread = rank.threads.emplace_back();
    thread.tid = tid;
    thread.name = std::move(name);
    for (const Frame& frame : stack) thread.frames.push_back(job.frames.intern(frame));
    return thread;
  }
};

inline SyscallInfo call(std::string name, std::optional<int> fd = {}, std::optional<std::string> target = {}) {
  return {std::move(name), 0, fd, std::move(target)};
}

}  // namespace rankstacks::testing
