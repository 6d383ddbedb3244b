#include "cli/core_stream.h"

#include <elf.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/write_all.h"

namespace rankstacks::cli {
namespace {

constexpr std::uint64_t kMaxHead = 256u << 20;              // the notes of 80,000 threads
constexpr std::uint64_t kMaxCore = std::uint64_t{1} << 40;  // 1 TiB
constexpr const char* kStream = "the standard input";

Error malformed(std::string what) {
  return {.code = ErrorCode::kMalformed,
          .subject = kStream,
          .what = std::move(what),
          .hint = "kernel.core_pattern starts this command; `rankstacks capture CORE` makes a small core of a file"};
}

class HeadReader {
 public:
  HeadReader(int stream, const Deadline& deadline, CoreHead& head)
      : stream_(stream), deadline_(deadline), head_(head) {}

  // Reads on to `end`, into the file and, of a part, into `copy`.
  Result<void> read_to(std::uint64_t end, void* copy = nullptr) {
    std::vector<char> piece(kPiece);
    while (head_.bytes < end) {
      const auto n = read_stream(stream_, piece.data(), std::min<std::uint64_t>(kPiece, end - head_.bytes), deadline_);
      if (!n) return fail(n.error());
      if (*n == 0)
        return fail(malformed(fmt::format("ends after {} bytes, before the end of the core's notes", head_.bytes)));
      if (copy != nullptr) {
        std::memcpy(copy, piece.data(), *n);
        copy = static_cast<char*>(copy) + *n;
      }
      if (const int why = write_all_at(head_.file.get(), {piece.data(), *n}, head_.bytes); why != 0)
        return fail({.code = ErrorCode::kLimit, .subject = kStream, .what = "no memory for it", .os_errno = why});
      head_.bytes += *n;
    }
    return {};
  }

 private:
  static constexpr std::size_t kPiece = 256 << 10;
  int stream_;
  const Deadline& deadline_;
  CoreHead& head_;
};

// The end of the last byte that the program headers name; std::nullopt: no core is that large.
std::optional<std::uint64_t> size_of_core(const CoreHead& head, std::uint64_t table, std::uint64_t end_of_table) {
  std::uint64_t size = head.bytes;
  for (std::uint64_t at = table; at + sizeof(Elf64_Phdr) <= end_of_table; at += sizeof(Elf64_Phdr)) {
    Elf64_Phdr p;
    if (pread(head.file.get(), &p, sizeof p, static_cast<off_t>(at)) != sizeof p) return std::nullopt;
    std::uint64_t end = 0;
    if (__builtin_add_overflow(p.p_offset, p.p_filesz, &end) || end > kMaxCore) return std::nullopt;
    if (p.p_filesz > 0) size = std::max(size, end);
  }
  return size;
}

}  // namespace

Result<std::size_t> read_stream(int stream, void* into, std::size_t size, const Deadline& deadline) {
  std::size_t done = 0;
  while (done < size) {
    if (deadline.passed())
      return fail({.code = ErrorCode::kTimeout,
                   .subject = kStream,
                   .what = "has not come in time",
                   .hint = "give it more time with --within"});
    pollfd ready{stream, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
    if (poll(&ready, 1, static_cast<int>(std::min<long>(left.count(), 1000))) <= 0) continue;
    const ssize_t n = read(stream, static_cast<char*>(into) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail({.subject = kStream, .what = "cannot be read", .os_errno = errno});
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

Result<CoreHead> read_core_head(int stream, const Deadline& deadline) {
  CoreHead head;
  head.file = FileDescriptor(static_cast<int>(syscall(SYS_memfd_create, "core", MFD_CLOEXEC)));
  if (!head.file.is_open()) return fail({.subject = kStream, .what = "no memory for it", .os_errno = errno});
  HeadReader reader(stream, deadline, head);
  Elf64_Ehdr header;
  if (auto read = reader.read_to(sizeof header, &header); !read) return fail(read.error());
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_type != ET_CORE || header.e_machine != EM_X86_64 || header.e_phentsize != sizeof(Elf64_Phdr))
    return fail(malformed("is no core of an x86-64 process"));
  Elf64_Phdr first;
  if (header.e_phoff != sizeof header || header.e_phnum == 0)
    return fail(malformed("has its program headers elsewhere than the kernel writes them"));
  if (auto read = reader.read_to(sizeof header + sizeof first, &first); !read) return fail(read.error());
  if (first.p_type != PT_NOTE || first.p_offset < head.bytes || first.p_offset > kMaxHead ||
      first.p_filesz > kMaxHead - first.p_offset)
    return fail(malformed("does not begin with the core's notes, as the kernel writes them"));
  if (auto read = reader.read_to(first.p_offset + first.p_filesz); !read) return fail(read.error());
  const std::uint64_t end_of_table =
      header.e_phnum == PN_XNUM
          ? first.p_offset
          : std::min<std::uint64_t>(first.p_offset, header.e_phoff + std::uint64_t{header.e_phnum} * sizeof first);
  const auto size = size_of_core(head, header.e_phoff, end_of_table);
  if (!size) return fail(malformed("has program headers of a core larger than any"));
  head.size = *size;
  if (ftruncate(head.file.get(), static_cast<off_t>(head.size)) != 0)
    return fail({.subject = kStream, .what = "no memory for it", .os_errno = errno});
  return head;
}

}  // namespace rankstacks::cli
