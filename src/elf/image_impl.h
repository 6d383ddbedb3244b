// The contents of an Image; for the files of this directory only.
#pragma once

#include <sys/types.h>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/mapped_file.h"
#include "base/regular_file.h"
#include "elf/image.h"

namespace rankstacks::elf {

struct OpenedFile : RegularFile {};

// Which processes are in another mount namespace than the tool. Each is asked once. Thread-safe.
class MountNamespaces {
 public:
  // Whether `path` leads through /proc/PID into another one. True if that is not known.
  bool is_elsewhere(const std::string& path);

 private:
  using Identity = std::pair<dev_t, ino_t>;
  static std::optional<Identity> of(const std::string& process);
  std::mutex mutex_;
  std::optional<Identity> own_;
  std::map<std::string, bool> elsewhere_;  // by the name of the directory in /proc
};

// Opens only regular stored files; never blocks on a FIFO or a device.
Result<OpenedFile> open_regular(const std::string& path, const std::string& shown_name);
Result<OpenedFile> open_regular_below(const std::string& root, const std::string& path, const std::string& shown_name);

struct Image::Impl {
  // A contiguous range of a target's memory, for from_memory.
  struct Run {
    Vaddr start = 0;
    std::vector<std::byte> bytes;
  };

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  void index_contents(const Image& image);
  void index_loads();
  void index_symbol_tables(const Image& image);

  std::string name;
  std::string path;
  std::optional<std::uint32_t> owner;
  bool others_may_change = false;
  BuildId build_id;
  std::uint16_t type = ET_NONE;
  std::vector<Elf64_Phdr> segments;
  std::vector<Elf64_Phdr> loads;  // the PT_LOADs of `segments` that have a size, by address, without overlaps
  bool has_interpreter = false;
  std::vector<Section> sections;
  std::string section_names;  // a copy, to which `sections` refer: names of bytes that change would change as well
  SymbolTable static_symbols;
  SymbolTable dynamic_symbols;
  std::span<const std::byte> bytes;  // of `mapped` or `owned`; empty for from_memory
  MappedFile mapped;
  std::vector<std::byte> owned;
  std::vector<Run> runs;  // by address
  mutable std::mutex found_mutex;
  // Results of find_symbol() from static_symbols.
  mutable std::map<std::string, std::optional<Symbol>, std::less<>> found;
  mutable std::map<std::string, bool, std::less<>> imported;  // results of imports()
};

}  // namespace rankstacks::elf
