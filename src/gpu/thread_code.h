// What code a thread is in the middle of, by each return address on its stack, from the innermost frame to the
// outermost.
//
// Nothing is unwound: every word of the stack that is an address right behind a call instruction counts, so that no
// frame is missed. A word that is left over from a call that has returned counts as well: a thread may be refused
// because of one, but none is accepted because of one.
//
// How the libraries are recognized: the loader is the file at the auxiliary vector's AT_BASE; an allocator is what
// exports malloc (all of its code, but of the C library and of the executable these functions alone); the driver's
// files are known by their names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "target/modules.h"

namespace rankstacks::gpu {

enum class CodePart : std::uint8_t {
  kDriver,  // the GPU's driver and its debug engine
  kLoader,  // the dynamic loader: a constructor or destructor of a library runs, or a walk over all libraries
  kAllocator,
  kLock,           // a function that takes a lock, and waits
  kSignalHandler,  // a signal frame: a handler has interrupted the thread, at any point
  kUnknown,        // code of a file that cannot be read
};

struct FoundCode {
  CodePart part = CodePart::kUnknown;
  std::string where;  // "malloc of libc.so.6", "libjemalloc.so.2"
};

class ProcessCode {
 public:
  // Reads the process's mappings as they are now, and its auxiliary vector. Errors: they cannot be read.
  static Result<ProcessCode> read(Pid pid);

  const std::vector<target::Mapping>& mappings() const { return mappings_; }
  const target::Mapping* mapping_of(Address a) const;

  // "mov $15, %rax; syscall" of its C library: its signal handlers return to it, and any function may.
  std::optional<Address> signal_trampoline();

  // The first such part that a thread is in which waits at `pc` with this stack (the first word is the innermost);
  // std::nullopt if it is in none. Each file is opened once, when the first of its addresses is met.
  std::optional<FoundCode> find(std::span<const Address> stack, Address pc);

 private:
  struct KnownRange {
    Range range;
    CodePart part;
    const char* function;
  };
  struct Module {
    std::optional<CodePart> whole;  // all of its code
    std::vector<KnownRange> functions;
  };
  ProcessCode(Pid pid, std::vector<target::Mapping> mappings) : pid_(pid), mappings_(std::move(mappings)) {}
  const Module& module_of(const target::Mapping& mapping);
  Module look_into(const target::Mapping& mapping) const;
  std::optional<FoundCode> find_at(Address a, bool innermost, bool is_return);
  bool follows_call(Address a) const;

  Pid pid_;
  std::vector<target::Mapping> mappings_;  // sorted, as the kernel lists them
  Address loader_ = 0, entry_ = 0;         // AT_BASE, AT_ENTRY
  std::optional<Address> trampoline_;
  bool looked_for_trampoline_ = false;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Module> modules_;  // by device and inode
};

}  // namespace rankstacks::gpu
