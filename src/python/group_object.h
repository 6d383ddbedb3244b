// The C++ object of a process group of PyTorch, c10d::ProcessGroup, by its shape, as its layout differs by version:
//
//     reference counts (one word from 2.10 on, else two)   2.0 on: store_ (a pointer)
//     rank_, size_ (two ints)                              up to 2.5: options_ (a pointer)
//     backendType_                                         2.4 on: pg_desc_ (std::string)
//
// torch/csrc/distributed/c10d/ProcessGroup.hpp. pybind11's instances hold the pointer to their C++ object right behind
// their head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "python/layouts.h"
#include "target/target.h"

namespace rankstacks::python {

struct GroupObject {
  std::int32_t rank = 0;    // of its process, in the group
  std::string description;  // "mesh_tp", "default_pg"; "" if it has none, or if the version keeps it elsewhere
};

// `object`: the Python object of a group of `size` members. std::nullopt if there is no such shape, or if it is
// ambiguous.
std::optional<GroupObject> read_group_object(const target::Target& target, const Layout& layout, Address object,
                                             std::size_t size);

}  // namespace rankstacks::python
