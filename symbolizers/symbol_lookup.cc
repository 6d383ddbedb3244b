#include "symbolizers/symbol_lookup.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "elf/bytes.h"

namespace rankstacks::symbolizers {
namespace {

constexpr std::size_t kBuckets = 4096;  // 16 KiB: stays in the first-level cache during the pass
// A file in which every symbol covers every address reaches this limit.
constexpr std::uint64_t kMaxOverlaps = 50'000'000;

std::size_t leading_underscores(std::string_view name) { return std::min(name.find_first_not_of('_'), name.size()); }

// GLOBAL before WEAK before LOCAL, as in gdb and elfutils. STB_GNU_UNIQUE counts as global.
int rank_of_bind(unsigned char bind) {
  if (bind == STB_GLOBAL || bind == STB_GNU_UNIQUE) return 2;
  return bind == STB_WEAK ? 1 : 0;
}

bool is_code(const Elf64_Phdr& segment) { return (segment.p_flags & PF_X) != 0; }

bool holds_code(const elf::Image& owner, std::optional<std::uint32_t> section, Vaddr value) {
  if (section && *section < owner.sections().size())
    return (owner.sections()[*section].header.sh_flags & SHF_EXECINSTR) != 0;
  const Elf64_Phdr* segment = owner.load_of(value);
  return segment != nullptr && is_code(*segment);
}

// Sorted, so that the section of each address is found in few steps; of overlapping ones, the one that begins first.
std::vector<Range> code_sections_of(const elf::Image& image) {
  std::vector<Range> code;
  for (const elf::Section& section : image.sections()) {
    constexpr std::uint64_t kCode = SHF_ALLOC | SHF_EXECINSTR;
    const Elf64_Shdr& h = section.header;
    if ((h.sh_flags & kCode) == kCode && h.sh_size > 0 && h.sh_size <= std::numeric_limits<Vaddr>::max() - h.sh_addr)
      code.push_back({h.sh_addr, h.sh_addr + h.sh_size});
  }
  std::stable_sort(code.begin(), code.end(), [](const Range& a, const Range& b) { return a.start < b.start; });
  std::size_t kept = 0;
  for (const Range& range : code)
    if (kept == 0 || range.start >= code[kept - 1].end) code[kept++] = range;
  code.resize(kept);
  return code;
}

}  // namespace

SymbolLookup::SymbolLookup(const elf::Image& image, std::span<const Vaddr> addresses)
    : image_(image), addresses_(addresses), best_(addresses.size()), gaps_(addresses.size()), work_left_(kMaxOverlaps) {
  if (addresses_.empty()) return;
  const std::uint64_t range = addresses_.back() - addresses_.front();
  while ((range >> bucket_shift_) >= kBuckets) ++bucket_shift_;
  buckets_.resize((range >> bucket_shift_) + 1);
  std::size_t next = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    while (next < addresses_.size() && (addresses_[next] - addresses_.front()) >> bucket_shift_ < b) ++next;
    buckets_[b] = static_cast<std::uint32_t>(next);
  }
}

std::size_t SymbolLookup::first_at_or_after(Vaddr v) const {
  if (v <= addresses_.front()) return 0;
  if (v > addresses_.back()) return addresses_.size();
  const std::size_t bucket = (v - addresses_.front()) >> bucket_shift_;
  std::size_t low = buckets_[bucket];
  const std::size_t high = bucket + 1 < buckets_.size() ? buckets_[bucket + 1] : addresses_.size();
  if (high - low > 8) {
    return static_cast<std::size_t>(std::lower_bound(addresses_.begin() + low, addresses_.begin() + high, v) -
                                    addresses_.begin());
  }
  while (low < high && addresses_[low] < v) ++low;
  return low;
}

bool SymbolLookup::better(const Candidate& a, const Candidate& b) {
  if (!b.there) return true;
  if (a.start != b.start) return a.start > b.start;
  if (rank_of_bind(a.bind) != rank_of_bind(b.bind)) return rank_of_bind(a.bind) > rank_of_bind(b.bind);
  const std::size_t a_underscores = leading_underscores(a.name);
  const std::size_t b_underscores = leading_underscores(b.name);
  if (a_underscores != b_underscores) return a_underscores < b_underscores;
  return a.size < b.size;
}

void SymbolLookup::add(const elf::Image& owner, const elf::SymbolTable& table, DeadlineCheck& deadline) {
  if (addresses_.empty()) return;
  const std::size_t count = table.size();
  for (std::size_t s = 1; s < count; ++s) {
    if (s % 4096 == 0 && deadline.passed()) return;
    const Elf64_Sym symbol = table.at(s);
    const unsigned char type = ELF64_ST_TYPE(symbol.st_info);
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) continue;
    const std::size_t first = first_at_or_after(symbol.st_value);
    // An end that wraps around is behind every address.
    const Vaddr end = symbol.st_size > std::numeric_limits<Vaddr>::max() - symbol.st_value
                          ? std::numeric_limits<Vaddr>::max()
                          : symbol.st_value + symbol.st_size;
    if (symbol.st_size != 0) {
      // For nearly every symbol the work ends here: it covers no address, and its gap has seen a later end.
      const bool covers = first < addresses_.size() && addresses_[first] < end;
      if (!covers && (first == addresses_.size() || gaps_[first].function_end >= end)) continue;
    } else if (first == addresses_.size()) {
      continue;
    }
    const auto section = table.section_of(s, symbol);
    if (!section) continue;
    if (type == STT_NOTYPE && !holds_code(owner, section, symbol.st_value)) continue;

    Candidate candidate{
        symbol.st_value, symbol.st_size, {}, static_cast<unsigned char>(ELF64_ST_BIND(symbol.st_info)), true, false};
    if (symbol.st_size == 0) {
      Candidate& label = gaps_[first].label;
      if (label.there && label.start > candidate.start) continue;
      if (deadline.passed()) return;  // a name without an end is as long as the file
      candidate.name = table.name(symbol);
      if (!candidate.name.empty() && better(candidate, label)) label = candidate;
      continue;
    }
    std::size_t i = first;
    for (; i < addresses_.size() && addresses_[i] < end && work_left_ > 0; ++i, --work_left_) {
      Candidate& best = best_[i];
      if (best.settled || (best.there && best.start > candidate.start)) continue;
      if (deadline.passed()) return;
      if (candidate.name.empty()) candidate.name = table.name(symbol);
      if (candidate.name.empty() || !better(candidate, best)) continue;
      covered_ += best.there ? 0 : 1;
      best = candidate;
    }
    if (i < addresses_.size() && addresses_[i] >= end) gaps_[i].function_end = std::max(gaps_[i].function_end, end);
  }
}

void SymbolLookup::settle() {
  for (Candidate& candidate : best_) candidate.settled = candidate.there;
}

std::optional<std::string_view> SymbolLookup::sized(std::size_t i) const {
  if (!best_[i].there) return std::nullopt;
  return best_[i].name;
}

// The start of the code section that contains `pc`, or of its segment if there are no sections; std::nullopt if there
// is none.
std::optional<Vaddr> SymbolLookup::start_of_code_around(Vaddr pc) const {
  if (image_.sections().empty()) {
    const Elf64_Phdr* segment = image_.load_of(pc);
    return segment != nullptr && is_code(*segment) ? std::optional(segment->p_vaddr) : std::nullopt;
  }
  const auto after =
      std::upper_bound(code_.begin(), code_.end(), pc, [](Vaddr v, const Range& r) { return v < r.start; });
  if (after == code_.begin() || !std::prev(after)->contains(pc)) return std::nullopt;
  return std::prev(after)->start;
}

void SymbolLookup::prepare_labels() {
  if (!labels_.empty()) return;
  code_ = code_sections_of(image_);
  labels_.resize(gaps_.size());
  for (std::size_t g = 0; g < gaps_.size(); ++g) {
    const Gap& gap = gaps_[g];
    if (gap.label.there) labels_[g] = {g, true, gap.function_end};
    else if (g > 0)
      labels_[g] = {labels_[g - 1].gap, labels_[g - 1].there, std::max(labels_[g - 1].function_end, gap.function_end)};
  }
}

std::optional<std::string_view> SymbolLookup::sizeless(std::size_t i) {
  prepare_labels();
  const Vaddr pc = addresses_[i];
  const auto code_start = start_of_code_around(pc);
  if (!code_start || !labels_[i].there) return std::nullopt;
  const Candidate& label = gaps_[labels_[i].gap].label;
  // A function that begins after the label also ends after it; and a label inside a function does not extend beyond it.
  if (label.start < *code_start || labels_[i].function_end > label.start) return std::nullopt;
  // If unwind information begins after the label, it belongs to another function, whose symbol was stripped.
  const auto frame_start = frame_start_before(pc);
  if (frame_start && *frame_start > label.start) return std::nullopt;
  return label.name;
}

// The highest start of unwind information at or before `pc`, from the binary search table of .eh_frame_hdr (LSB,
// "Exception Frames").
std::optional<Vaddr> SymbolLookup::frame_start_before(Vaddr pc) const {
  const auto header_at = image_.eh_frame_hdr();
  if (!header_at) return std::nullopt;
  const auto bytes = image_.at(*header_at);
  // version 1; eh_frame_ptr sdata4, pc-relative; fde_count udata4; table sdata4, relative to this header: the only form
  // that linkers write.
  const auto head = elf::load<std::uint32_t>(bytes, 0);
  const auto count = elf::load<std::uint32_t>(bytes, 8);
  if (head != 0x3b031b01U || !count) return std::nullopt;
  const auto start_of = [&](std::uint64_t entry) -> std::optional<Vaddr> {
    const auto relative = elf::load<std::int32_t>(bytes, 12 + entry * 8);
    if (!relative) return std::nullopt;
    return *header_at + static_cast<std::uint64_t>(std::int64_t{*relative});
  };
  std::uint64_t low = 0;  // the entries before it start at or before pc
  std::uint64_t high = *count;
  while (low < high) {
    const std::uint64_t middle = (low + high) / 2;
    const auto start = start_of(middle);
    if (!start) return std::nullopt;
    if (*start <= pc) low = middle + 1;
    else high = middle;
  }
  return low == 0 ? std::nullopt : start_of(low - 1);
}

}  // namespace rankstacks::symbolizers
