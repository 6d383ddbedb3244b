// PyTorch's process groups as torch/distributed/distributed_c10d.py keeps them, in two dicts among its globals:
//
//     _pg_names          {group: name}
//     _pg_group_ranks    {group: {rank in the job: rank in the group}}
//
// These are the same from torch 1.13 to 2.15. Groups are distinguished by the addresses of their objects, as in these
// dicts. Their descriptions are in C++ objects (group_object.h).
#pragma once

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/snapshot.h"
#include "python/objects.h"
#include "python/values.h"

namespace rankstacks::python {

// Keeps references to all constructor arguments. `globals` are the globals of a frame of one of that module's
// functions.
class ProcessGroups {
 public:
  // `hash_secret` is the address of _Py_HashSecret, which allows direct lookup of names among the globals; 0: the
  // globals are searched one by one.
  ProcessGroups(const target::Target& target, const Layout& layout, Address hash_secret, CodeReader& codes,
                ObjectReader& objects)
      : target_(target), layout_(layout), hash_secret_(hash_secret), codes_(codes), objects_(objects) {}

  // nullptr if it is not a group that the module knows.
  const ProcessGroup* find(Address globals, Address object);

  // The Python objects of the groups that this process is in, the oldest first.
  std::vector<Address> objects(Address globals);

  // The default group, which functions use if no group is given. nullptr if there is none.
  const ProcessGroup* default_group(Address globals);
  // Its Python object; 0 if there is no default group.
  Address default_object(Address globals);

 private:
  struct Module {
    std::vector<DictEntry> names, ranks;
  };

  const Module& module(Address globals);
  bool is_string(Address object, std::string_view text);
  Address find_by_hash(Address globals, std::string_view name);
  void find_by_names(Address globals, Address& names, Address& ranks);
  std::vector<int> members(const Module& module, Address object);

  const target::Target& target_;
  const Layout& layout_;
  const Address hash_secret_;
  CodeReader& codes_;
  ObjectReader& objects_;
  std::unordered_map<Address, Module> modules_;                                // by globals
  std::map<std::pair<Address, Address>, std::optional<ProcessGroup>> groups_;  // by globals and object
  std::size_t entries_left_ = 1u << 20;                                        // of all dicts together
};

}  // namespace rankstacks::python
