// An ELF file as a module of a process: its symbols, its lines, its unwind tables in both unwinders.
#include <algorithm>

#include "elf/image.h"
#include "input.h"
#include "support/fake_target.h"
#include "symbolizers/symbolizer.h"
#include "target/limited_target.h"
#include "unwind/unwinder.h"

using namespace rankstacks;

namespace {

constexpr Address kBase = 0x7f00'0000'0000;
constexpr Address kStack = 0x7ffc'0000'0000;
constexpr std::size_t kStackSize = 4096;
constexpr std::size_t kMaxLoaded = 1 << 20;
constexpr std::size_t kMaxAddresses = 64;
// For all stacks of one input. The tables can make unwinding run into the tool's own limits (kMaxUnwoundFrames,
// --timeout): here it only has to end.
constexpr std::chrono::milliseconds kMaxTime{500};

// Addresses that the file itself contains: where its code begins and ends, and its functions.
std::vector<Vaddr> interesting(const elf::Image& image) {
  std::vector<Vaddr> all;
  for (const Elf64_Phdr& p : image.segments()) {
    if (p.p_type != PT_LOAD) continue;
    for (const Vaddr v : {p.p_vaddr, p.p_vaddr + p.p_filesz / 2, p.p_vaddr + p.p_filesz - 1}) all.push_back(v);
  }
  for (const elf::SymbolTable* table : {&image.static_symbols(), &image.dynamic_symbols()}) {
    for (std::size_t i = 0; i < table->size() && all.size() < kMaxAddresses; ++i) {
      const Elf64_Sym symbol = table->at(i);
      all.push_back(symbol.st_value + symbol.st_size / 2);
    }
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// Maps the file as a loader would, as long as the mappings stay plausible: a target's modules and mappings are ordered
// and do not overlap.
bool load(const std::shared_ptr<const elf::Image>& image, testing::FakeTarget& target) {
  Vaddr end = 0;
  std::size_t loaded = 0;
  for (const Elf64_Phdr& p : image->segments()) {
    if (p.p_type != PT_LOAD || p.p_memsz == 0) continue;
    if (p.p_vaddr < end || p.p_memsz > kMaxLoaded || p.p_vaddr > (1u << 30)) continue;
    const auto bytes = image->at(p.p_vaddr);
    const std::size_t n = std::min<std::size_t>({bytes.size(), p.p_filesz, p.p_memsz});
    if ((loaded += n) > kMaxLoaded) break;
    target.put(kBase + p.p_vaddr, {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)});
    end = p.p_vaddr + p.p_memsz;
    target::Mapping m;
    m.range = {kBase + p.p_vaddr, kBase + end};
    m.readable = true;
    m.executable = (p.p_flags & PF_X) != 0;
    m.path = "/lib/fuzz.so";
    target.mappings_.push_back(m);
  }
  if (end == 0) return false;
  target.modules_ =
      target::ModuleMap({target::Module{"/lib/fuzz.so", {kBase, kBase + end}, kBase, image->build_id(), image, {}}});
  return true;
}

void walk_all(const testing::FakeTarget& memory, std::span<const Vaddr> addresses) {
  const target::LimitedTarget target(memory, Deadline::after(kMaxTime));
  const auto first = unwind::make_libunwind_unwinder(target);
  const auto second = unwind::make_libdwfl_unwinder(target);
  for (std::size_t i = 0; i < addresses.size(); i += 1 + addresses.size() / 8) {
    target::Registers registers;
    for (unsigned r = 0; r < target::kDwarfRegisters; ++r) registers.set(r, kStack + 8 * r);
    registers.set(target::kRip, kBase + addresses[i]);
    registers.set(target::kRsp, kStack + 64);
    registers.set(target::kRbp, kStack + 512);
    for (unwind::Unwinder* unwinder : {first.get(), second.get()}) {
      const unwind::UnwoundStack stack = unwinder->unwind(registers);
      fuzz::require(!stack.frames.empty() && stack.frames.front().pc == registers.pc(),
                    "the innermost frame is at the thread's pc");
      fuzz::require(stack.frames.size() <= unwind::kMaxFrames, "the depth is bounded");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  auto image = elf::Image::from_bytes({bytes.begin(), bytes.end()}, "fuzz.so");
  if (!image) {
    fuzz::require(!image.error().what.empty(), "an error says what is wrong");
    return 0;
  }
  (*image)->find_symbol("main");
  (*image)->find_exported("_PyRuntime");
  const std::vector<Vaddr> addresses = interesting(**image);
  const symbolizers::Symbolizer symbolizer(symbolizers::SymbolizerOptions{.debug_directories = {}});
  const symbolizers::SymbolizedImage symbols = symbolizer.resolve(**image, addresses);
  fuzz::require(symbols.locations.size() == addresses.size(), "an answer for each address");
  for (const auto& locations : symbols.locations) fuzz::require(!locations.empty(), "at least one location each");

  testing::FakeTarget target;
  if (!load(*image, target)) return 0;
  // A stack full of addresses of the module, so that unwinding continues for a while.
  std::vector<Address> words(kStackSize / sizeof(Address));
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = i % 3 == 0 ? kStack + 8 * ((i + 5) % words.size()) : kBase + addresses[i % addresses.size()];
  const auto stack = std::as_bytes(std::span(words));
  target.put(kStack, {stack.begin(), stack.end()});
  walk_all(target, addresses);

  // The same file as an image in memory, without its sections.
  const auto read = [&](Vaddr v, std::span<std::byte> into) { return target.read_exact(kBase + v, into); };
  elf::Image::from_memory(read, 0, "fuzz.so", kMaxLoaded);
  return 0;
}
