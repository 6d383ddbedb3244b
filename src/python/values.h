// Values of a target's Python objects: int, tuple, dict, cells. The flags of its type determine the kind of an object;
// inconsistent data has no value.
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
  kInt,  // int itself; bool and other subclasses are kOther
  kString,
  kBytes,
  kTuple,
  kDict,
  kNone,
  kCell,
  kTraceback,
  kFrame,
  kLock,          // _thread.lock
  kRLock,         // _thread.RLock
  kThreadHandle,  // _thread._ThreadHandle
  kBuiltin,       // a function of C code, or a method of an object's
  kMethodDescriptor,
  kException,
  // Its type's flags do not identify it, and its type's name cannot be read (a core without its files): it may be of
  // any kind that is identified by name.
  kUnnamed,
  kOther,  // another type, or no object at all
};

struct DictEntry {
  Address key = 0, value = 0;
};

// The object that a slot of a frame holds; 0 if it holds none.
Address object_in_slot(const Layout& layout, Address word);

// Keeps references to the target and the layout. Caches the kinds of types, nothing else.
class ObjectReader {
 public:
  ObjectReader(const target::Target& target, const Layout& layout) : target_(target), layout_(layout) {}

  // Fetches the objects' heads and their types in a few batches; of an int, the head is the whole object.
  void prefetch(std::span<const Address> objects);
  // Fetches the items of those objects that are tuples, too.
  void prefetch_tuples(std::span<const Address> tuples);

  ObjectKind kind(Address object);
  // Whether it is, or may be, of a kind that is identified by the name of its type (kNone, kCell, kTraceback, kFrame
  // ...)
  bool may_be(Address object, ObjectKind named);
  // Whether its type has tp_iternext, which is seven words after tp_flags in every CPython 3.
  bool is_iterator(Address object);
  // std::nullopt if it is not an int, or does not fit into 64 bits.
  std::optional<std::int64_t> integer(Address object);
  // The same of an instance of a subclass (bool). The caller must know that it is one.
  std::optional<std::int64_t> number(Address object) const;
  // The flags of a type (Py_TPFLAGS_*). std::nullopt if it is not a type.
  std::optional<std::uint64_t> flags(Address type) const;
  // The object in a cell. std::nullopt if the cell is empty or unreadable. The caller must know that it is a cell.
  std::optional<Address> cell_content(Address cell) const;
  std::optional<std::vector<Address>> tuple(Address object, std::size_t limit);
  // In order of insertion. std::nullopt if it is not a dict, if it has more than `limit` entries, or if its values are
  // stored elsewhere (as those of instances are).
  std::optional<std::vector<DictEntry>> dict(Address object, std::size_t limit);
  // The same for a keys object alone. `values` is the address of the values, in the order of the keys, if they are
  // stored separately (instances that share their keys); 0 if they are in the keys object.
  std::optional<std::vector<DictEntry>> entries(Address keys, Address values, std::size_t limit);
  // The first of them, at most `most`, of a dict of any size, wherever its values are stored. std::nullopt if it is not
  // a dict, or cannot be read.
  std::optional<std::vector<DictEntry>> first_entries(Address object, std::size_t most);
  // Looks up the entry with this hash whose key satisfies `is_key`, in a dict of at most `limit` entries, the way
  // CPython looks it up.
  std::optional<DictEntry> lookup(Address object, std::uint64_t hash, std::size_t limit,
                                  const std::function<bool(Address)>& is_key);

 private:
  // The locations of the parts of a dict's keys object.
  struct DictParts {
    Address indices = 0, entries = 0;
    std::uint64_t slots = 0, count = 0;
    std::size_t index_width = 0,
                entry_words = 0;  // an entry is {hash, key, value}; from 3.11, where all keys are str, {key, value}
  };
  std::optional<DictParts> keys_parts(Address keys, std::size_t limit);
  std::optional<DictParts> dict_parts(Address object, std::size_t limit);
  // Adds those of `count` entries from `first` on that are not deleted. False: they cannot be read.
  bool add_entries(const DictParts& parts, Address values, std::size_t first, std::size_t count,
                   std::vector<DictEntry>& entries);
  ObjectKind classify(Address type) const;

  const target::Target& target_;
  const Layout& layout_;
  std::unordered_map<Address, ObjectKind> kinds_;  // by type
};

}  // namespace rankstacks::python
