#include "unwind/vetted_tables.h"

#include <dwarf.h>
#include <algorithm>
#include <cstring>
#include <limits>

#include "target/registers.h"

namespace rankstacks::unwind {
namespace {

template <class T>
void put(std::vector<std::byte>& to, T value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

void put_uleb(std::vector<std::byte>& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<std::byte>(value | 0x80));
  to.push_back(static_cast<std::byte>(value));
}

void put_sleb(std::vector<std::byte>& to, std::int64_t value) {
  for (; value < -64 || value > 63; value >>= 7) to.push_back(static_cast<std::byte>(value | 0x80));
  to.push_back(static_cast<std::byte>(value & 0x7f));
}

// Called once the entry that began with the four bytes at `start` is complete.
void set_length(std::vector<std::byte>& in, std::size_t start) {
  const auto length = static_cast<std::uint32_t>(in.size() - start - sizeof(std::uint32_t));
  std::memcpy(in.data() + start, &length, sizeof length);
}

}  // namespace

bool VettedTables::Entry::read(const target::Target& target, Address from) {
  constexpr std::size_t kUsual = 128;  // most entries are shorter, and need one read
  at = from;
  bytes.resize(kUsual);
  const std::size_t there = target.read(from, bytes);
  std::uint32_t length;
  if (there < sizeof length) return false;
  std::memcpy(&length, bytes.data(), sizeof length);
  // 0 ends a section; 0xffffffff announces a 64-bit length, which nothing writes into .eh_frame.
  if (length < sizeof(std::uint32_t) || length > kMaxEntryBytes) return false;
  const std::size_t size = sizeof length + length;
  bytes.resize(size);
  if (size <= there) return true;
  return size > kUsual && target.read_exact(from + there, std::span(bytes).subspan(there));
}

std::optional<VettedTables::SearchTable> VettedTables::search_table_of(const target::Module& module) const {
  if (!module.image) return std::nullopt;
  const auto vaddr = module.image->eh_frame_hdr();
  if (!vaddr) return std::nullopt;
  const auto bytes = bytes_at_(*module.image, *vaddr);
  if (bytes.size() < 12) return std::nullopt;
  const auto* b = reinterpret_cast<const std::uint8_t*>(bytes.data());
  // version 1, any 4-byte pointer to .eh_frame, a udata4 count, a table of datarel|sdata4 pairs: the form that every
  // linker writes.
  if (b[0] != 1 || (b[1] & 0x0f) != DW_EH_PE_sdata4 || b[2] != DW_EH_PE_udata4 ||
      b[3] != (DW_EH_PE_datarel | DW_EH_PE_sdata4)) {
    return std::nullopt;
  }
  std::uint32_t count;
  std::memcpy(&count, b + 8, 4);
  return SearchTable{*vaddr, bytes.subspan(12, std::min<std::uint64_t>(count, (bytes.size() - 12) / 8) * 8)};
}

std::optional<Address> VettedTables::find(const target::Module& module, Address pc) {
  auto it = search_tables_.find(&module);
  if (it == search_tables_.end()) it = search_tables_.emplace(&module, search_table_of(module)).first;
  if (!it->second) return std::nullopt;
  const auto& [header, pairs] = *it->second;
  const auto number = [bytes = pairs.data()](std::size_t index) {
    std::int32_t value;
    std::memcpy(&value, bytes + index * sizeof value, sizeof value);
    return std::int64_t{value};
  };
  const auto distance = static_cast<std::int64_t>(module.to_vaddr(pc) - header);
  // The last function that starts at or before pc.
  std::size_t low = 0, high = pairs.size() / 8;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (distance < number(2 * middle)) high = middle;
    else low = middle + 1;
  }
  if (high == 0) return std::nullopt;
  return module.to_address(header + static_cast<Vaddr>(number(2 * (high - 1) + 1)));
}

VettedTables::Verdict VettedTables::vet(Address pc) {
  const target::Module* module = target_.modules().find(pc);
  if (module == nullptr) return Verdict::kNone;
  const auto at = find(*module, pc);
  return at ? vet(*module, pc, *at) : Verdict::kNone;
}

VettedTables::Verdict VettedTables::vet(const target::Module& module, Address pc, Address at) {
  if (!fde_.read(target_, at)) return Verdict::kUnsound;
  std::uint32_t back;  // distance from this field to the CIE
  std::memcpy(&back, fde_.bytes.data() + 4, sizeof back);
  const Address cie = at + 4 - back;
  if (back == 0 || !module.range.contains(cie)) return Verdict::kUnsound;
  if (!cie_is_sound_ || cie_.at != cie)
    cie_is_sound_ = cie_.read(target_, cie) && vet_cie(cie_.bytes, cie_facts_, dialect_).empty();
  if (!cie_is_sound_ || !vet_fde(fde_.bytes, at, cie_facts_, fde_facts_, dialect_).empty()) return Verdict::kUnsound;
  return fde_facts_.covered.contains(pc) ? Verdict::kSound : Verdict::kNone;
}

std::optional<VettedTables::Choice> VettedTables::choose(Address pc) {
  const target::Module* module = target_.modules().find(pc);
  if (module == nullptr) return std::nullopt;
  const auto at = find(*module, pc);
  if (!at) return std::nullopt;
  const auto before = kept_of_.find(*at);
  if (before != kept_of_.end() && kept_[before->second].covered.contains(pc)) return kept_[before->second].where;
  if (vet(*module, pc, *at) != Verdict::kSound) return std::nullopt;
  if (!fde_facts_.has_expressions && !cie_facts_.has_expressions) {
    write(current_, kFirstBlock);
    return current_.where;
  }
  Block& block = kept_.emplace_back();
  write(block, kFirstBlock + kept_.size() * kBlockSize);
  kept_bytes_ += block.words.size() * sizeof(std::uint64_t);
  kept_of_[*at] = kept_.size() - 1;
  return block.where;
}

std::optional<Range> VettedTables::covered(Address pc) {
  const target::Module* module = target_.modules().find(pc);
  const auto at = module != nullptr ? find(*module, pc) : std::nullopt;
  if (!at || vet(*module, pc, *at) != Verdict::kSound) return std::nullopt;
  return fde_facts_.covered;
}

void VettedTables::write(Block& block, Address at) {
  const FdeFacts& fde = fde_facts_;
  auto& out = written_;
  out.clear();
  put(out, std::numeric_limits<std::int32_t>::min());  // no pc is below it
  put(out, std::int32_t{0});                           // and addresses are relative to the FDE
  const std::size_t cie = out.size();
  put(out, std::uint32_t{0});
  put(out, std::uint32_t{0});
  put(out, std::uint8_t{1});
  for (const char letter : cie_facts_.signal_frame ? std::string_view("zRS\0", 4) : std::string_view("zR\0", 3))
    put(out, letter);
  put_uleb(out, cie_facts_.code_alignment);
  put_sleb(out, cie_facts_.data_alignment);
  put(out, static_cast<std::uint8_t>(target::kRip));
  put_uleb(out, 1);
  put(out, std::uint8_t{DW_EH_PE_udata8});
  out.insert(out.end(), cie_facts_.instructions.begin(), cie_facts_.instructions.end());
  set_length(out, cie);
  const std::size_t start = out.size();
  put(out, std::uint32_t{0});
  put(out, static_cast<std::uint32_t>(out.size() - cie));
  put(out, fde.covered.start);
  put(out, fde.covered.size());
  put_uleb(out, 0);
  out.insert(out.end(), fde.instructions.begin(), fde.instructions.end());
  set_length(out, start);
  block.where = {at, at + start};
  block.covered = fde.covered;
  block.words.assign((out.size() + 7) / 8, 0);
  std::memcpy(block.words.data(), out.data(), out.size());
}

void VettedTables::forget() {
  kept_.clear();
  kept_of_.clear();
  kept_bytes_ = 0;
}

}  // namespace rankstacks::unwind
