#include "gpu/thread_code.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "elf/image.h"
#include "target/call_instruction.h"
#include "target/live_target.h"
#include "target/mapping_list.h"
#include "target/proc.h"

namespace rankstacks::gpu {
namespace {

// Exported functions in which a thread must not be interrupted for a call, or in which it waits for a lock. Source:
// glibc 2.17 to 2.42, malloc/, nptl/, elf/.
struct KnownFunction {
  const char* name;
  CodePart part;
};
constexpr std::array kFunctions{
    KnownFunction{"malloc", CodePart::kAllocator},
    KnownFunction{"free", CodePart::kAllocator},
    KnownFunction{"cfree", CodePart::kAllocator},
    KnownFunction{"calloc", CodePart::kAllocator},
    KnownFunction{"realloc", CodePart::kAllocator},
    KnownFunction{"reallocarray", CodePart::kAllocator},
    KnownFunction{"memalign", CodePart::kAllocator},
    KnownFunction{"aligned_alloc", CodePart::kAllocator},
    KnownFunction{"posix_memalign", CodePart::kAllocator},
    KnownFunction{"valloc", CodePart::kAllocator},
    KnownFunction{"pvalloc", CodePart::kAllocator},
    KnownFunction{"malloc_trim", CodePart::kAllocator},
    KnownFunction{"malloc_info", CodePart::kAllocator},
    KnownFunction{"malloc_stats", CodePart::kAllocator},
    KnownFunction{"mallinfo", CodePart::kAllocator},
    KnownFunction{"mallinfo2", CodePart::kAllocator},
    KnownFunction{"mallopt", CodePart::kAllocator},
    KnownFunction{"dl_iterate_phdr", CodePart::kLoader},  // holds the loader's list while it calls back
    KnownFunction{"pthread_mutex_lock", CodePart::kLock},
    KnownFunction{"pthread_mutex_timedlock", CodePart::kLock},
    KnownFunction{"pthread_mutex_clocklock", CodePart::kLock},
    KnownFunction{"pthread_rwlock_rdlock", CodePart::kLock},
    KnownFunction{"pthread_rwlock_wrlock", CodePart::kLock},
    KnownFunction{"pthread_rwlock_timedrdlock", CodePart::kLock},
    KnownFunction{"pthread_rwlock_timedwrlock", CodePart::kLock},
    KnownFunction{"pthread_rwlock_clockrdlock", CodePart::kLock},
    KnownFunction{"pthread_rwlock_clockwrlock", CodePart::kLock},
};
// A thread that waits for a lock is in that function's frame or one or two below it: words further out are of calls
// that have returned.
constexpr std::size_t kInnermostWords = 64;
constexpr std::uint64_t kMaxTrampolineCode = std::uint64_t{8} << 20;  // glibc's code is 1.4 MB, musl's 0.4

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// libcuda.so.1, libcudadebugger.so.1 and what they load; libcudart, which programs link, is not the driver.
bool is_driver(std::string_view path) {
  const std::string_view name = base_name(path);
  return (name.starts_with("libcuda") && !name.starts_with("libcudart")) ||
         name.starts_with("libnvidia-ptxjitcompiler") || name.starts_with("libnvidia-nvvm");
}

// Opens the file that is mapped: through map_files if that is permitted, else below the process's root, if that is
// still the same file.
Result<std::shared_ptr<const elf::Image>> open_mapped(Pid pid, const target::Mapping& mapping) {
  auto image = elf::Image::open(
      fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, mapping.range.start, mapping.range.end), mapping.path);
  if (image || mapping.deleted) return image;
  return elf::Image::open_below(fmt::format("/proc/{}/root", pid), mapping.path, mapping.path);
}

std::size_t read_memory(Pid pid, Address from, void* into, std::size_t size) {
  const iovec local{into, size}, remote{reinterpret_cast<void*>(from), size};
  const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

}  // namespace

Result<ProcessCode> ProcessCode::read(Pid pid) {
  auto mappings = target::mappings_in(fmt::format("/proc/{}", pid));
  if (!mappings) return fail(target::attach_error(pid, mappings.error().os_errno));
  ProcessCode code(pid, std::move(*mappings));
  const auto vector = target::proc::read_file(fmt::format("/proc/{}/auxv", pid));
  if (!vector) return fail(target::attach_error(pid, vector.error().os_errno));
  for (std::size_t at = 0; at + sizeof(Elf64_auxv_t) <= vector->size(); at += sizeof(Elf64_auxv_t)) {
    Elf64_auxv_t entry;
    std::memcpy(&entry, vector->data() + at, sizeof entry);
    if (entry.a_type == AT_BASE) code.loader_ = entry.a_un.a_val;
    if (entry.a_type == AT_ENTRY) code.entry_ = entry.a_un.a_val;
  }
  return code;
}

const target::Mapping* ProcessCode::mapping_of(Address a) const {
  auto it = std::upper_bound(mappings_.begin(), mappings_.end(), a,
                             [](Address x, const target::Mapping& m) { return x < m.range.start; });
  if (it == mappings_.begin()) return nullptr;
  --it;
  return it->range.contains(a) ? &*it : nullptr;
}

std::optional<Address> ProcessCode::signal_trampoline() {
  if (looked_for_trampoline_) return trampoline_;
  looked_for_trampoline_ = true;
  static constexpr std::array<unsigned char, 9> kGlibc{0x48, 0xc7, 0xc0, 0x0f, 0,
                                                       0,    0,    0x0f, 0x05};          // mov $15,%rax; syscall
  static constexpr std::array<unsigned char, 7> kMusl{0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05};  // mov $15,%eax; syscall
  for (const target::Mapping& mapping : mappings_) {
    const std::string_view name = base_name(mapping.path);
    if (!mapping.executable || !(name.starts_with("libc.so") || name.starts_with("libc-2") ||
                                 name.starts_with("ld-musl") || name.starts_with("libpthread")))
      continue;
    std::vector<unsigned char> bytes(std::min(mapping.range.size(), kMaxTrampolineCode));
    bytes.resize(read_memory(pid_, mapping.range.start, bytes.data(), bytes.size()));
    for (const std::span<const unsigned char> pattern :
         {std::span<const unsigned char>(kGlibc), std::span<const unsigned char>(kMusl)}) {
      const auto at = std::search(bytes.begin(), bytes.end(), pattern.begin(), pattern.end());
      if (at == bytes.end()) continue;
      trampoline_ = mapping.range.start + static_cast<Address>(at - bytes.begin());
      return trampoline_;
    }
  }
  return trampoline_;
}

ProcessCode::Module ProcessCode::look_into(const target::Mapping& mapping) const {
  Module module;
  if (is_driver(mapping.path)) module.whole = CodePart::kDriver;
  const auto same_file = [&](Address a) {
    const target::Mapping* other = a != 0 ? mapping_of(a) : nullptr;
    return other != nullptr && other->device == mapping.device && other->inode == mapping.inode;
  };
  if (same_file(loader_)) module.whole = CodePart::kLoader;
  if (module.whole) return module;
  const auto image = open_mapped(pid_, mapping);
  if (!image) {
    module.whole = CodePart::kUnknown;
    return module;
  }
  const auto& segments = (*image)->segments();
  const auto segment = std::find_if(segments.begin(), segments.end(), [&](const Elf64_Phdr& s) {
    return s.p_type == PT_LOAD && (s.p_flags & PF_X) != 0 && mapping.file_offset + mapping.range.size() > s.p_offset &&
           s.p_offset + s.p_filesz > mapping.file_offset;
  });
  if (segment == segments.end()) return module;
  const Address bias = mapping.range.start - mapping.file_offset + segment->p_offset - segment->p_vaddr;
  const bool is_c_library = (*image)->find_exported("__libc_start_main").has_value();
  if (!is_c_library && !same_file(entry_) && (*image)->find_exported("malloc")) {
    module.whole = CodePart::kAllocator;
    return module;
  }
  for (const KnownFunction& known : kFunctions)
    if (const auto symbol = (*image)->find_exported(known.name); symbol && symbol->size != 0)
      module.functions.push_back({{bias + symbol->value, bias + symbol->value + symbol->size}, known.part, known.name});
  return module;
}

const ProcessCode::Module& ProcessCode::module_of(const target::Mapping& mapping) {
  const std::pair key(mapping.device, mapping.inode);
  const auto it = modules_.find(key);
  return it != modules_.end() ? it->second : modules_.emplace(key, look_into(mapping)).first->second;
}

bool ProcessCode::follows_call(Address a) const {
  std::array<std::uint8_t, target::kLongestCall> before{};
  return a > before.size() && read_memory(pid_, a - before.size(), before.data(), before.size()) == before.size() &&
         target::call_at_the_end_of(before) != target::CallInstruction::kNone;
}

std::optional<FoundCode> ProcessCode::find_at(Address a, bool innermost, bool is_return) {
  const target::Mapping* mapping = mapping_of(a);
  if (mapping == nullptr || !mapping->executable || mapping->inode == 0)
    return std::nullopt;  // generated code and the vdso belong to no library
  const Module& module = module_of(*mapping);
  const std::string file(base_name(mapping->path));
  if (module.whole) {
    if (is_return && !follows_call(a)) return std::nullopt;
    return FoundCode{*module.whole, file};
  }
  for (const KnownRange& known : module.functions) {
    if (!known.range.contains(a) || (known.part == CodePart::kLock && !innermost)) continue;
    if (is_return && !follows_call(a)) return std::nullopt;
    return FoundCode{known.part, fmt::format("{} of {}", known.function, file)};
  }
  return std::nullopt;
}

std::optional<FoundCode> ProcessCode::find(std::span<const Address> stack, Address pc) {
  if (auto found = find_at(pc, true, false)) return found;
  const auto trampoline = signal_trampoline();
  for (std::size_t i = 0; i < stack.size(); ++i) {
    if (trampoline && stack[i] == *trampoline) return FoundCode{CodePart::kSignalHandler, ""};
    if (auto found = find_at(stack[i], i < kInnermostWords, true)) return found;
  }
  return std::nullopt;
}

}  // namespace rankstacks::gpu
