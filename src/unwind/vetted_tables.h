// The unwind tables of a target as libunwind sees them: each entry vetted, and rewritten.
//
//     .eh_frame_hdr --> an FDE and its CIE, copied --> vetted --> a block:  | table of one FDE | CIE | FDE |
//
// Blocks have addresses of their own, where no process has memory. So libunwind reads exactly what was vetted, even if
// the owner of a file changes the file meanwhile, or lets entries overlap. Blocks leave out what libunwind does not
// need here (personality routines, relative pointers). And as libunwind reads a word for each byte, reading a block is
// faster than reading the target.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "target/target.h"
#include "unwind/cfi_vetting.h"

namespace rankstacks::unwind {

class VettedTables {
 public:
  // Where the bytes of an image are read: as elf::Image::at(), or of a copy of the file.
  using BytesAt = std::function<std::span<const std::byte>(const elf::Image& image, Vaddr vaddr)>;
  // The target must outlive it.
  explicit VettedTables(
      const target::Target& target, CfiDialect dialect = CfiDialect::kLibunwind,
      BytesAt bytes_at = [](const elf::Image& image, Vaddr vaddr) { return image.at(vaddr); })
      : target_(target), dialect_(dialect), bytes_at_(std::move(bytes_at)) {}

  enum class Verdict { kNone, kUnsound, kSound };
  // The verdict on the entry that the search table names for `pc`. kNone: there is no FDE, or one that ends before
  // `pc`.
  Verdict vet(Address pc);

  // Where in a block libunwind finds the FDE for a pc: a sorted table of one pair, whose addresses are relative to the
  // FDE.
  struct Choice {
    Address table = 0;
    Address fde = 0;
  };

  // std::nullopt if no FDE covers `pc`, or none that is sound. The block stays valid until the next call or, if it has
  // expressions, until forget(): libunwind keeps the addresses of expressions in its cache, and reads them whenever it
  // needs their value.
  std::optional<Choice> choose(Address pc);

  // The code that the FDE of `pc` is for: a function, or a part of one. std::nullopt as for choose().
  std::optional<Range> covered(Address pc);

  // A word of a block; nullptr if `address` is not in a block.
  const std::uint64_t* word(Address address) const {
    if (address < kFirstBlock || address % sizeof(std::uint64_t) != 0) return nullptr;
    const Address offset = address - kFirstBlock, index = offset / kBlockSize,
                  word = offset % kBlockSize / sizeof(std::uint64_t);
    if (index > kept_.size()) return nullptr;
    const auto& words = index == 0 ? current_.words : kept_[index - 1].words;
    return word < words.size() ? &words[word] : nullptr;
  }

  // Whether blocks with expressions take too much memory. When forget() is called, no cache may hold an address of one.
  bool is_full() const { return kept_bytes_ > kMaxKeptBytes; }
  void forget();

 private:
  // In the kernel's half of the address space, away from the vsyscall page.
  static constexpr Address kFirstBlock = 0xffff'a000'0000'0000;
  static constexpr Address kBlockSize = 4 * kMaxEntryBytes;  // vetting at most doubles the instructions of a CIE
  static constexpr std::size_t kMaxKeptBytes = 4 << 20;

  // A module's sorted table of FDEs.
  struct SearchTable {
    Vaddr header = 0;                  // the base of its addresses
    std::span<const std::byte> pairs;  // of two 32-bit numbers: the start of a function, its FDE
  };
  struct Block {
    std::vector<std::uint64_t> words;
    Choice where;
    Range covered;
  };
  // The bytes of one entry, including its length.
  struct Entry {
    Address at = 0;
    std::vector<std::byte> bytes;
    // Returns false if the entry is missing, or has a length that no entry can have.
    bool read(const target::Target& target, Address from);
  };

  std::optional<SearchTable> search_table_of(const target::Module& module) const;
  std::optional<Address> find(const target::Module& module, Address pc);
  Verdict vet(const target::Module& module, Address pc, Address fde);
  void write(Block& block, Address at);  // writes the entries vetted last

  const target::Target& target_;
  CfiDialect dialect_;
  BytesAt bytes_at_;
  std::unordered_map<const target::Module*, std::optional<SearchTable>> search_tables_;
  Entry fde_, cie_;
  bool cie_is_sound_ = false;
  CieFacts cie_facts_;  // of cie_, if that is sound
  FdeFacts fde_facts_;
  std::vector<std::byte> written_;
  Block current_;
  std::vector<Block> kept_;                           // those with expressions
  std::unordered_map<Address, std::size_t> kept_of_;  // by the FDE's address in the target
  std::size_t kept_bytes_ = 0;
};

}  // namespace rankstacks::unwind
