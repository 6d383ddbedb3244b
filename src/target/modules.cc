#include "target/modules.h"

#include <algorithm>

namespace rankstacks::target {

ModuleMap::ModuleMap(std::vector<Module> modules) : modules_(std::move(modules)) {
  std::sort(modules_.begin(), modules_.end(),
            [](const Module& a, const Module& b) { return a.range.start < b.range.start; });
}

const Module* ModuleMap::find(Address a) const {
  auto it = std::upper_bound(modules_.begin(), modules_.end(), a,
                             [](Address x, const Module& m) { return x < m.range.start; });
  if (it == modules_.begin()) return nullptr;
  --it;
  return it->range.contains(a) ? &*it : nullptr;
}

}  // namespace rankstacks::target
