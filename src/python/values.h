// Values of a target's Python objects: int, tuple, dict, cells. An object counts as what its type's own flags say it is; whatever does not
// hold together is no value at all.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "python/layouts.h"
#include "target/target.h"

namespace rankstacks::python {

enum class ObjectKind {
  kInt,      // int itself; bool and other subclasses are kOther
  kString,
  kBytes,
  kTuple,
  kDict,
  kNone,
  kCell,
  kTraceback,
  kFrame,
  kLock,           // _thread.lock
  kRLock,          // _thread.RLock
  kThreadHandle,   // _thread._ThreadHandle
  kBuiltin,        // a function of C code, or a method of an object's
  kMethodDescriptor,
  kException,
  kUnnamed,  // none that its type's flags tell, and its type's name cannot be read (a core without its files): it may be one of those that a name tells
  kOther,    // another type, or no object at all
};

struct DictEntry {
  Address key = 0, value = 0;
};

// What a slot of a frame holds. 0: no object.
Address object_in_slot(const Layout& layout, Address word);

// Borrows the target and the layout. Remembers types, nothing else.
class ObjectReader {
 public:
  ObjectReader(const Target& target, const Layout& layout) : target_(target), layout_(layout) {}

  // Fetches the objects' heads and their types, in a few batches: of ints that is all there is.
  void prefetch(std::span<const Address> objects);
  // And the items of those that are tuples.
  void prefetch_tuples(std::span<const Address> tuples);

  ObjectKind kind(Address object);
  // Whether it is of a kind that the name of its type tells (kNone, kCell, kTraceback, kFrame ...), or may be.
  bool may_be(Address object, ObjectKind named);
  // Whether its type has tp_iternext, which stands seven words behind tp_flags in every CPython 3.
  bool is_iterator(Address object);
  std::optional<std::int64_t> integer(Address object);         // nothing: no int, or beyond 64 bits
  std::optional<Address> cell_content(Address cell) const;     // nothing: empty, or unreadable. That it is a cell is for the caller to know
  std::optional<std::vector<Address>> tuple(Address object, std::size_t limit);
  // In order of insertion. Nothing: no dict, or more than `limit` entries, or one whose values lie elsewhere (those of instances).
  std::optional<std::vector<DictEntry>> dict(Address object, std::size_t limit);
  // The same of a keys object alone; `values`: where the values are, in the order of the keys, as instances that share their keys have them. 0: with the keys.
  std::optional<std::vector<DictEntry>> entries(Address keys, Address values, std::size_t limit);
  // Of a dict of at most so many entries the one with this hash whose key is the one looked for, found as CPython finds it.
  std::optional<DictEntry> lookup(Address object, std::uint64_t hash, std::size_t limit, const std::function<bool(Address)>& is_key);

 private:
  // Where the parts of a dict's keys object lie.
  struct DictParts {
    Address indices = 0, entries = 0;
    std::uint64_t slots = 0, count = 0;
    std::size_t index_width = 0, entry_words = 0;   // an entry is {hash, key, value}; from 3.11, where all keys are str, {key, value}
  };
  std::optional<DictParts> keys_parts(Address keys, std::size_t limit);
  std::optional<DictParts> dict_parts(Address object, std::size_t limit);
  ObjectKind classify(Address type) const;
  std::optional<std::uint64_t> flags(Address type) const;

  const Target& target_;
  const Layout& layout_;
  std::unordered_map<Address, ObjectKind> kinds_;              // by type
};

}  // namespace rankstacks::python
