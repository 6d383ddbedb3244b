#include "python/thread_names.h"

#include <unordered_map>
#include <vector>

#include "python/attributes.h"
#include "python/loaded_modules.h"

namespace rankstacks::python {

void read_thread_names(const target::Target& target, const Runtime& runtime, State& state) {
  ObjectReader objects(target, runtime.layout);
  CodeReader text(target, runtime.layout);
  AttributeReader attributes(target, runtime.layout, objects, text);
  LoadedModules modules(target, runtime, objects, text);
  const Address globals = modules.globals_of("threading");
  const Address active = globals == 0 ? 0 : modules.entry(globals, "_active", kMaxGlobals);
  const auto entries = active == 0 ? std::nullopt : objects.dict(active, kMaxNamedThreads);
  if (!entries) return;
  std::vector<Address> held;
  for (const auto& [key, value] : *entries) held.insert(held.end(), {key, value});
  objects.prefetch(held);
  std::unordered_map<std::uint64_t, Address> by_id;
  for (const auto& [key, value] : *entries)
    if (const auto id = objects.integer(key)) by_id.emplace(static_cast<std::uint64_t>(*id), value);
  for (ThreadState& thread : state.threads) {
    const auto found = by_id.find(thread.pthread_id);
    const Address name = found == by_id.end() ? 0 : attributes.find(found->second, "_name").value_or(0);
    if (name != 0 && objects.kind(name) == ObjectKind::kString) thread.name = text.beginning(name, kLongestThreadName);
  }
}

}  // namespace rankstacks::python
