#include "target/live_images.h"

#include <elf.h>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <set>

#include "target/proc.h"

namespace rankstacks::target {
struct LiveImages::Shared {
  std::mutex mutex;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Opened> by_inode;
  std::set<std::uint64_t> silent_devices;
  elf::ImageCache files;
};

LiveImages::LiveImages() : shared_(std::make_shared<Shared>()) {}

std::vector<const FileMappings*> LiveImages::unknown_among(std::span<const FileMappings> files) const {
  std::vector<const FileMappings*> unknown;
  std::set<std::pair<std::uint64_t, std::uint64_t>> met;
  const std::lock_guard lock(shared_->mutex);
  for (const FileMappings& file : files) {
    const std::pair key(file.parts.front().device, file.parts.front().inode);
    if (!shared_->by_inode.contains(key) && met.insert(key).second) unknown.push_back(&file);
  }
  return unknown;
}

LiveImages::Opened LiveImages::find_or(std::uint64_t device, std::uint64_t inode, const std::function<Opened()>& open) {
  const std::pair key(device, inode);
  {
    const std::lock_guard lock(shared_->mutex);
    if (const auto it = shared_->by_inode.find(key); it != shared_->by_inode.end()) return it->second;
    if (shared_->silent_devices.contains(device))
      return fail({.code = ErrorCode::kTimeout, .what = "does not answer, as another file of its file system"});
  }
  Opened opened = open();
  const std::lock_guard lock(shared_->mutex);
  const auto it = shared_->by_inode.find(key);
  if (it != shared_->by_inode.end()) return it->second;
  if (!opened && opened.error().code == ErrorCode::kGone) return opened;
  return shared_->by_inode.emplace(key, std::move(opened)).first->second;
}

std::optional<Problem> LiveImages::open(const FileToOpen& wanted, const Deadline& deadline) {
  const Mapping& first = wanted.file.parts.front();
  std::optional<Problem> problem;
  (void)find_or(first.device, first.inode, [&] { return open_mapped(wanted, deadline, problem); });
  return problem;
}

void LiveImages::give_up(const FileToOpen& wanted) {
  const Mapping& first = wanted.file.parts.front();
  const std::lock_guard lock(shared_->mutex);
  shared_->silent_devices.insert(first.device);
  shared_->by_inode.try_emplace(
      {first.device, first.inode},
      fail({.code = ErrorCode::kTimeout, .subject = wanted.file.path, .what = "does not answer"}));
}

// map_files leads to the very inode that is mapped, even if it was deleted or is in another mount namespace; it needs
// CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE. Otherwise the path as the process sees it is tried, and accepted only if the
// file's build-id is the one in memory.
LiveImages::Opened LiveImages::open_mapped(const FileToOpen& wanted, const Deadline& deadline,
                                           std::optional<Problem>& problem) {
  const FileMappings& file = wanted.file;
  const Mapping& first = file.parts.front();
  // Reads the image from the process's memory, where the ELF header is at the base address: it contains what the loader
  // mapped, by addresses relative to the base (or absolute, for ET_EXEC).
  const auto from_memory = [&]() -> Opened {
    if (first.file_offset != 0)
      return fail({.code = ErrorCode::kNotFound, .subject = file.path, .what = "its ELF header is not mapped"});
    Elf64_Ehdr header{};
    const bool absolute =
        proc::read_memory(wanted.tid, first.range.start, std::as_writable_bytes(std::span(&header, 1))) &&
        header.e_type == ET_EXEC;
    const Address base = absolute ? 0 : first.range.start;
    const auto read = [&](Vaddr v, std::span<std::byte> into) {
      // The program headers may claim any addresses.
      const Address at = v + base;
      return at >= file.range.start && at < file.range.end && into.size() <= file.range.end - at &&
             !deadline.passed() && proc::read_memory(wanted.tid, at, into);
    };
    return elf::Image::from_memory(read, first.range.start - base, file.path);
  };
  const std::string mapped =
      fmt::format("/proc/{}/map_files/{:x}-{:x}", wanted.pid, first.range.start, first.range.end);
  if (auto image = shared_->files.open(mapped, file.path);
      image || image.error().code == ErrorCode::kMalformed || image.error().code == ErrorCode::kUnsupported)
    return image;
  auto in_memory = from_memory();
  const auto on_disk =
      shared_->files.open_below(fmt::format("/proc/{}/task/{}/root", wanted.pid, wanted.tid), file.path, file.path);
  // The memory of a process that is ending is no evidence about the file, which other processes may have mapped too.
  if (const auto stat = proc::stat_of(wanted.pid, wanted.tid); !stat || stat->ends())
    return fail({.code = ErrorCode::kGone, .subject = file.path, .what = "its process ended while it was opened"});
  if (on_disk && !first.deleted && (!in_memory || (*on_disk)->build_id() == (*in_memory)->build_id())) return on_disk;
  if (in_memory) {
    problem = Problem{fmt::format("{}: {}: names come from its dynamic symbols in memory", file.path,
                                  first.deleted ? "deleted while mapped"
                                  : on_disk     ? fmt::format("the file has build-id {}, the process has {}",
                                                              elf::to_string((*on_disk)->build_id()),
                                                              elf::to_string((*in_memory)->build_id()))
                                                : on_disk.error().message()),
                      "as root, the mapped file itself can be read"};
  }
  return in_memory ? in_memory : on_disk;
}

}  // namespace rankstacks::target
