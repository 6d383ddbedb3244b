// A core file through the whole capture: notes, modules, Python, both unwinders, symbols.
#include "capture/rank_stacks.h"
#include "input.h"
#include "target/core_target.h"

using namespace rankstacks;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::ScratchFile file;
  file.hold(std::as_bytes(std::span(data, size)));
  elf::ImageCache images;
  auto opened = CoreTarget::open(file.path(), {}, images);
  if (!opened) {
    fuzz::require(!opened.error().what.empty(), "an error says what is wrong");
    return 0;
  }
  const CoreTarget& core = **opened;
  std::array<std::byte, 5000> into{};
  for (const Mapping& m : core.mappings()) {
    fuzz::require(m.range.start < m.range.end, "a mapping is a range");
    fuzz::require(core.read(m.range.start, into) <= into.size() && core.read(m.range.end - 8, into) <= into.size(), "a read fits");
  }
  Address end = 0;
  for (const Module& m : core.modules().all()) {
    fuzz::require(m.range.start >= end && m.range.start < m.range.end, "modules are in order, without overlaps");
    end = m.range.end;
  }

  RankStacks rank;
  rank.snapshot.pid = core.pid();
  rank.target = std::move(*opened);
  read_python(rank, python::find_python_runtime(*rank.target));
  read_syscalls(rank);
  unwind_threads(rank, UnwinderChoice::kLibdwfl);
  rank.stacks.clear();
  unwind_threads(rank, UnwinderChoice::kLibunwind);
  fuzz::require(rank.stacks.size() == rank.target->threads().size(), "one stack for each thread");
  SymbolBatch symbols;
  symbols.add(rank);
  symbols.resolve(std::make_shared<const Symbolizer>(SymbolizerOptions{.debug_directories = {}}));
  FrameTable frames;
  build_threads(rank, symbols, frames);
  fuzz::require(rank.snapshot.threads.size() == rank.target->threads().size(), "one thread in the report for each in the core");
  return 0;
}
