// A core file through the whole capture: notes, modules, Python, both unwinders, symbols.
#include "capture/build_threads.h"
#include "input.h"
#include "target/core_target.h"

using namespace rankstacks;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::ScratchFile file;
  file.hold(std::as_bytes(std::span(data, size)));
  elf::ImageCache images;
  auto opened = target::CoreTarget::open(file.path(), {}, images);
  if (!opened) {
    fuzz::require(!opened.error().what.empty(), "an error says what is wrong");
    return 0;
  }
  const target::CoreTarget& core = **opened;
  std::array<std::byte, 5000> into{};
  for (const target::Mapping& m : core.mappings()) {
    fuzz::require(m.range.start < m.range.end, "a mapping is a range");
    fuzz::require(core.read(m.range.start, into) <= into.size() && core.read(m.range.end - 8, into) <= into.size(),
                  "a read fits");
  }
  Address end = 0;
  for (const target::Module& m : core.modules().all()) {
    fuzz::require(m.range.start >= end && m.range.start < m.range.end, "modules are in order, without overlaps");
    end = m.range.end;
  }

  capture::RankStacks rank;
  rank.snapshot.pid = core.pid();
  rank.target = std::move(*opened);
  capture::read_python(rank, python::find_python_runtime(*rank.target));
  capture::read_syscalls(rank);
  capture::unwind_threads(rank, capture::UnwinderChoice::kLibdwfl);
  rank.stacks.clear();
  capture::unwind_threads(rank, capture::UnwinderChoice::kLibunwind);
  fuzz::require(rank.stacks.size() == rank.target->threads().size(), "one stack for each thread");
  capture::SymbolBatch symbols;
  symbols.add(rank);
  symbols.resolve(symbolizers::SymbolizerOptions{.debug_directories = {}}, true);
  FrameTable frames;
  capture::build_threads(rank, symbols, frames);
  fuzz::require(rank.snapshot.threads.size() == rank.target->threads().size(),
                "one thread in the report for each in the core");
  return 0;
}
