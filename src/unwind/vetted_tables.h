// The unwind tables of a target as libunwind gets to see them: each entry vetted, and written anew.
//
//     .eh_frame_hdr --> an FDE and its CIE, copied --> vetted --> a block:  | table of one FDE | CIE | FDE |
//
// Blocks have addresses of their own, where no process has memory. So libunwind reads what was vetted, also where the owner of a file changes it
// meanwhile, or lets entries overlap; what it has no use for (personality routines, relative pointers) is not in them; and as it asks for a word for
// each byte, it is faster than reading the target.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "target/target.h"
#include "unwind/cfi_vetting.h"

namespace rankstacks {

class VettedTables {
 public:
  // The target outlives it.
  explicit VettedTables(const Target& target, CfiDialect dialect = CfiDialect::kLibunwind) : target_(target), dialect_(dialect) {}

  enum class Verdict { kNone, kUnsound, kSound };
  // What the search table names for `pc`. kNone: no FDE, or one that ends before.
  Verdict vet(Address pc);

  // Where in a block libunwind finds the FDE for a pc: a sorted table of one pair, whose address counts from the FDE's.
  struct Choice {
    Address table = 0;
    Address fde = 0;
  };

  // Nothing: no FDE covers `pc`, or none that is sound. The block is there until the next call, or, if it has expressions, until forget(): libunwind keeps
  // the addresses of expressions in its cache, and reads them whenever it needs their value.
  std::optional<Choice> choose(Address pc);

  // The code that the FDE of `pc` is for: a function, or a part of one. Nothing: as for choose().
  std::optional<Range> covered(Address pc);

  // A word of a block. nullptr: not the address of one.
  const std::uint64_t* word(Address address) const {
    if (address < kFirstBlock || address % sizeof(std::uint64_t) != 0) return nullptr;
    const Address offset = address - kFirstBlock, index = offset / kBlockSize, word = offset % kBlockSize / sizeof(std::uint64_t);
    if (index > kept_.size()) return nullptr;
    const auto& words = index == 0 ? current_.words : kept_[index - 1].words;
    return word < words.size() ? &words[word] : nullptr;
  }

  // Whether blocks with expressions take too much memory. When forget() is called, no address of one may be in a cache any more.
  bool is_full() const { return kept_bytes_ > kMaxKeptBytes; }
  void forget();

 private:
  // In the half of the address space that is the kernel's, away from the vsyscall page.
  static constexpr Address kFirstBlock = 0xffff'a000'0000'0000;
  static constexpr Address kBlockSize = 4 * kMaxEntryBytes;   // vetting can double a CIE's instructions at most
  static constexpr std::size_t kMaxKeptBytes = 4 << 20;

  // A module's sorted table of FDEs.
  struct SearchTable {
    Vaddr header = 0;                      // what its addresses count from
    std::span<const std::byte> pairs;      // of two 32-bit numbers: a function's start, its FDE
  };
  struct Block {
    std::vector<std::uint64_t> words;
    Choice where;
    Range covered;
  };
  // The bytes of one entry, from its length on.
  struct Entry {
    Address at = 0;
    std::vector<std::byte> bytes;
    bool read(const Target& target, Address from);   // false: not there, or no length that an entry can have
  };

  static std::optional<SearchTable> search_table_of(const Module& module);
  std::optional<Address> find(const Module& module, Address pc);
  Verdict vet(const Module& module, Address pc, Address fde);
  void write(Block& block, Address at);   // what was vetted last

  const Target& target_;
  CfiDialect dialect_;
  std::unordered_map<const Module*, std::optional<SearchTable>> search_tables_;
  Entry fde_, cie_;
  bool cie_is_sound_ = false;
  CieFacts cie_facts_;                                 // of cie_, where that is sound
  FdeFacts fde_facts_;
  std::vector<std::byte> written_;
  Block current_;
  std::vector<Block> kept_;                            // those with expressions
  std::unordered_map<Address, std::size_t> kept_of_;   // by the FDE's address in the target
  std::size_t kept_bytes_ = 0;
};

}  // namespace rankstacks
