// The bytes of one ELF file, opened once and shared by every rank that maps it.
//
// An Image is immutable after open() and safe to share between threads. It knows only the file, not where it is loaded.
// Every offset and count in the file is untrusted: accessors return an empty span or std::nullopt where the file does
// not contain what it claims.
//
//     +-------------+  program headers: what is loaded where (Vaddr), .eh_frame_hdr by PT_GNU_EH_FRAME, the build-id by
//     PT_NOTE | ELF header  |  section headers: symbol tables, debug sections; may be missing (an image read back from
//     memory, a stripped core)
//     +-------------+
#pragma once

#include <elf.h>
#include <chrono>
#include <cstddef>
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
class MountNamespaces;

class Image {
 public:
  // Maps the file. Reports call it `shown_name` (the path in the target, where `path` may be under
  // /proc/PID/map_files). Errors: kUnreadable (open, fstat, mmap; with errno), kMalformed (no ELF header, tables
  // outside the file), kUnsupported (32-bit, big-endian, not x86-64). Never follows anything that the file names. Opens
  // only regular files.
  static Result<std::shared_ptr<const Image>> open(const std::string& path, const std::string& shown_name);

  // The same for a path below the root of another process, or of an unpacked system, out of which no link leads
  // (base/root_directory.h). path() is root + path.
  static Result<std::shared_ptr<const Image>> open_below(const std::string& root, const std::string& path,
                                                         const std::string& shown_name);

  // The same for bytes in memory (a vdso copied from a target, an unpacked .gnu_debugdata, a file made by a test),
  // which the image owns.
  static Result<std::shared_ptr<const Image>> from_bytes(std::vector<std::byte> bytes, const std::string& shown_name);

  // An image as the loader laid it out in a target's memory, for a file that is gone: `read` copies from the target, by
  // Vaddr. Only what PT_LOAD segments cover is available (so .dynsym and .eh_frame are, .symtab is not); sections are
  // not. `vaddr_of_header` is the address of the ELF header in the file's own address space (p_vaddr of the segment
  // with offset 0). Pages that `read` does not supply are left out, and at() is empty there; bytes() is empty as there
  // is no file. At most `most` bytes of the segments are requested in total: libtorch_cuda, the largest file seen, has
  // 1.5 GB.
  using MemoryReader = std::function<bool(Vaddr, std::span<std::byte>)>;
  static Result<std::shared_ptr<const Image>> from_memory(const MemoryReader& read, Vaddr vaddr_of_header,
                                                          const std::string& shown_name,
                                                          std::uint64_t most = kMaxMemory);
  static constexpr std::uint64_t kMaxMemory = std::uint64_t{4} << 30;

  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  const std::string& name() const;  // shown_name
  const std::string& path() const;  // the path that was opened; empty for from_bytes and from_memory
  // The user who owns the opened file; std::nullopt for from_bytes and from_memory.
  std::optional<std::uint32_t> owner() const;
  // Whether somebody else than the tool's user and the machine's root may change the bytes of the file while they are
  // read: it belongs to another user, its group or everybody may write to it, its file system is served by a process
  // (FUSE), or it was opened through a process in another mount namespace, whose root is not the machine's. What was
  // checked of such bytes may be gone when they are read again, so a library that reads them twice has to get a copy.
  bool others_may_change() const;
  const BuildId& build_id() const;  // empty: the file has none
  std::uint16_t type() const;       // ET_EXEC, ET_DYN, ...
  std::span<const Elf64_Phdr> segments() const;
  std::span<const Section> sections() const;
  const Section* section(std::string_view name) const;  // the first section of that name, or nullptr
  // Raw bytes (SHF_COMPRESSED stays compressed); empty for SHT_NOBITS or bad bounds.
  std::span<const std::byte> contents(const Section& s) const;
  std::span<const std::byte> bytes() const;  // the whole file as mapped
  // The file was truncated, or its disk failed, while it was read: the lost pages were read as zeros.
  bool has_lost_pages() const;

  // Bytes of the loaded image at `vaddr`, as far as they come from the file (p_filesz, never p_memsz). Empty if the
  // file does not contain them.
  std::span<const std::byte> at(Vaddr vaddr) const;

  // The PT_LOADs with a nonzero size, by address; of two that overlap, only the one that begins first.
  std::span<const Elf64_Phdr> loads() const;
  // The PT_LOAD that contains `vaddr`, also where the file does not have its bytes (beyond p_filesz); nullptr if there
  // is none. Logarithmic, like at().
  const Elf64_Phdr* load_of(Vaddr vaddr) const;

  // Whether it names a loader (PT_INTERP), as programs do, but no library except libc itself.
  bool has_interpreter() const;

  // The address of the PT_GNU_EH_FRAME segment.
  std::optional<Vaddr> eh_frame_hdr() const;

  // The definition of `name` in .dynsym, else in .symtab; std::nullopt if it is undefined. Hashed in .dynsym, linear in
  // .symtab.
  std::optional<Symbol> find_symbol(std::string_view name) const;

  // The same in .dynsym alone: by hash, so that asking every library of a process costs next to nothing.
  std::optional<Symbol> find_exported(std::string_view name) const;

  // Whether its .dynsym says that the loader is to find `name` in another file. Linear, once for each name.
  bool imports(std::string_view name) const;

  // .symtab, and .dynsym (found through PT_DYNAMIC if there are no sections); empty tables if the file has none.
  const SymbolTable& static_symbols() const;
  const SymbolTable& dynamic_symbols() const;

 private:
  friend class ImageCache;
  struct Impl;
  explicit Image(std::unique_ptr<Impl> impl);
  static Result<std::shared_ptr<const Image>> parse(std::unique_ptr<Impl> impl);
  static Result<std::shared_ptr<const Image>> map(const OpenedFile& file, const std::string& path,
                                                  const std::string& shown_name, MountNamespaces& namespaces);
  std::unique_ptr<Impl> impl_;
};

// Lower-case hex; "none" for an empty id.
std::string to_string(const BuildId& id);

// Images by file identity, so that each library is opened and parsed once for all ranks. Thread-safe.
class ImageCache {
 public:
  // Opens `path` unless a file with the same device, inode, size and mtime is in the cache already. Failures are cached
  // too. If another thread is opening the file, waits for it for `longest_wait`, and then fails (kTimeout).
  Result<std::shared_ptr<const Image>> open(const std::string& path, const std::string& shown_name);

  // The same below another root (Image::open_below).
  Result<std::shared_ptr<const Image>> open_below(const std::string& root, const std::string& path,
                                                  const std::string& shown_name);

  explicit ImageCache(std::chrono::steady_clock::duration longest_wait = std::chrono::steady_clock::duration::max());
  ~ImageCache();

 private:
  struct Impl;
  Result<std::shared_ptr<const Image>> open(const std::string& path, const std::string& shown_name,
                                            const std::function<Result<OpenedFile>()>& open_file);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rankstacks::elf
