// One ELF file's bytes, opened once and shared by every rank that maps it.
//
// An Image is immutable after open() and safe to share between threads. It only knows the file: nothing of where it is loaded.
// Every offset and count in the file is untrusted: accessors return an empty span or nothing where the file does not hold what it claims.
//
//     +-------------+  program headers: what is loaded where (Vaddr), .eh_frame_hdr by PT_GNU_EH_FRAME, the build-id by PT_NOTE
//     | ELF header  |  section headers: symbol tables, debug sections; may be missing (an image read back from memory, a stripped core)
//     +-------------+
#pragma once

#include <chrono>
#include <cstddef>
#include <elf.h>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "elf/symbol_table.h"

namespace rankstacks::elf {

struct Section {
  std::string_view name;
  Elf64_Shdr header;
};

struct OpenedFile;

class Image {
 public:
  // Maps the file. `shown_name` is what reports call it (the path in the target, where `path` may be under /proc/PID/map_files).
  // Errors: kUnreadable (open, fstat, mmap; errno), kMalformed (no ELF header, tables outside the file), kUnsupported (32-bit,
  // big-endian, another machine than x86-64). Never follows anything the file names. Only regular files are opened.
  static Result<std::shared_ptr<const Image>> open(const std::string& path, const std::string& shown_name);

  // The same over bytes in memory (a vdso copied from a target, .gnu_debugdata unpacked, a file made by a test). Owns them.
  static Result<std::shared_ptr<const Image>> from_bytes(std::vector<std::byte> bytes, const std::string& shown_name);

  // An image as the loader laid it out in a target's memory, for a file that is gone: `read` copies from the target, by Vaddr.
  // Only what PT_LOAD segments cover is there (so .dynsym and .eh_frame are, .symtab is not); sections are not available.
  // `vaddr_of_header` is where the ELF header lies, in the file's own view (p_vaddr of the segment with offset 0).
  // Pages that `read` does not give are left out, at() is empty there; bytes() is empty as there is no file. At most `most` bytes of the
  // segments are asked for, in all: libtorch_cuda, the largest file seen, has 1.5 GB.
  using MemoryReader = std::function<bool(Vaddr, std::span<std::byte>)>;
  static Result<std::shared_ptr<const Image>> from_memory(const MemoryReader& read, Vaddr vaddr_of_header, const std::string& shown_name,
                                                          std::uint64_t most = kMaxMemory);
  static constexpr std::uint64_t kMaxMemory = std::uint64_t{4} << 30;

  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  const std::string& name() const;          // shown_name
  const std::string& path() const;          // the path that was opened; empty for from_bytes and from_memory
  std::optional<std::uint32_t> owner() const;  // the opened file's user; nothing for from_bytes and from_memory
  const BuildId& build_id() const;          // empty: the file has none
  std::uint16_t type() const;               // ET_EXEC, ET_DYN, ...
  std::span<const Elf64_Phdr> segments() const;
  std::span<const Section> sections() const;
  const Section* section(std::string_view name) const;            // first of that name, or nullptr
  // Raw bytes (SHF_COMPRESSED stays compressed); empty for SHT_NOBITS or bad bounds.
  std::span<const std::byte> contents(const Section& s) const;
  std::span<const std::byte> bytes() const;                       // the whole file as mapped
  bool has_lost_pages() const;   // the file became shorter, or its disk failed, while it was read: zeros were read there

  // Bytes of the loaded view at `vaddr`, as far as they come from the file (p_filesz, never p_memsz). Empty: not in the file.
  std::span<const std::byte> at(Vaddr vaddr) const;

  // The PT_LOADs that have a size, by address; of two that overlap the one that begins first.
  std::span<const Elf64_Phdr> loads() const;
  // The PT_LOAD that holds `vaddr`, in the file or behind what the file has of it; nullptr: none does. Logarithmic, as at() is.
  const Elf64_Phdr* load_of(Vaddr vaddr) const;

  // It names a loader (PT_INTERP), as programs do and libraries do not, but for libc itself.
  bool has_interpreter() const;

  // The PT_GNU_EH_FRAME segment's address, or nothing.
  std::optional<Vaddr> eh_frame_hdr() const;

  // The definition of `name` in .dynsym, else in .symtab; nothing when undefined. Linear over .symtab, by hash over .dynsym.
  std::optional<Symbol> find_symbol(std::string_view name) const;

  // The same in .dynsym alone: by hash, so that asking every library of a process costs nothing.
  std::optional<Symbol> find_exported(std::string_view name) const;

  // .symtab, and .dynsym (found through PT_DYNAMIC where there are no sections); empty tables where the file has none.
  const SymbolTable& static_symbols() const;
  const SymbolTable& dynamic_symbols() const;

 private:
  friend class ImageCache;
  struct Impl;
  explicit Image(std::unique_ptr<Impl> impl);
  static Result<std::shared_ptr<const Image>> parse(std::unique_ptr<Impl> impl);
  static Result<std::shared_ptr<const Image>> map(const OpenedFile& file, const std::string& path, const std::string& shown_name);
  std::unique_ptr<Impl> impl_;
};

// Lower-case hex, "none" for an empty id.
std::string to_string(const BuildId& id);

// Images by file identity, so that each library is opened and parsed once for all ranks. Thread-safe.
class ImageCache {
 public:
  // Opens `path` unless a file with the same device, inode, size and mtime is here already. Failures are cached too. A file that another thread is
  // opening is waited for, for `longest_wait`; then it fails (kTimeout).
  Result<std::shared_ptr<const Image>> open(const std::string& path, const std::string& shown_name);

  explicit ImageCache(std::chrono::steady_clock::duration longest_wait = std::chrono::steady_clock::duration::max());
  ~ImageCache();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rankstacks::elf
