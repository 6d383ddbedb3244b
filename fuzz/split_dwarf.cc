// A program with skeleton units, and the .dwo or .dwp that is found for each unit. The input is the length of the
// program in 4 bytes, the program, and the other file.
#include <algorithm>

#include "elf/image.h"
#include "input.h"
#include "symbolizers/dwarf_lines.h"

using namespace rankstacks;

namespace {

constexpr std::size_t kMaxAddresses = 64;

class OneFile : public symbolizers::SplitSource {
 public:
  explicit OneFile(std::shared_ptr<const symbolizers::SplitFile> file) : file_(std::move(file)) {}
  bool find(const symbolizers::DwarfUnit::SplitName&,
            const std::function<bool(const symbolizers::SplitFile&)>& use) override {
    return use(*file_);
  }

 private:
  std::shared_ptr<const symbolizers::SplitFile> file_;
};

std::vector<Vaddr> interesting(const elf::Image& image) {
  std::vector<Vaddr> all;
  for (std::size_t i = 0; i < image.static_symbols().size() && all.size() < kMaxAddresses; ++i) {
    const Elf64_Sym symbol = image.static_symbols().at(i);
    for (const Vaddr v : {symbol.st_value, symbol.st_value + symbol.st_size / 2}) all.push_back(v);
  }
  for (const Elf64_Phdr& p : image.segments()) {
    if ((p.p_flags & PF_X) == 0) continue;
    for (Vaddr v = p.p_vaddr; v - p.p_vaddr < p.p_filesz && all.size() < 2 * kMaxAddresses; v += 7) all.push_back(v);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t length = input.take<std::uint32_t>();
  const auto rest = input.rest();
  const auto first = rest.first(std::min(length, rest.size()));
  const auto second = rest.subspan(first.size());
  const auto program = elf::Image::from_bytes({first.begin(), first.end()}, "program");
  auto other = elf::Image::from_bytes({second.begin(), second.end()}, "program.dwp");
  if (!program || !other || !symbolizers::has_dwarf(**program)) return 0;
  auto split = symbolizers::SplitFile::open(std::move(*other));
  if (!split) return 0;
  OneFile source(std::move(*split));
  const auto lines = symbolizers::DwarfLines::open(**program, nullptr, &source);
  if (!lines) return 0;
  const std::vector<Vaddr> addresses = interesting(**program);
  DeadlineCheck deadline(Deadline::never());
  bool too_much_text = false;
  const auto frames = (*lines)->resolve(addresses, true, deadline, too_much_text);
  fuzz::require(frames.size() == addresses.size(), "an answer for each address");
  return 0;
}
