// What the harnesses share: an input that is consumed piece by piece, a file that holds it, and a check that ends the
// run.
#pragma once

#include <sys/mman.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace rankstacks::fuzz {

// For answers that are wrong without a crash: the sanitizers print the stack.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// Reads bytes of the input in order; zeros once it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}

  template <class T>
  T take() {
    T value{};
    const std::size_t n = std::min(sizeof(T), left_.size());
    std::memcpy(&value, left_.data(), n);
    left_ = left_.subspan(n);
    return value;
  }
  bool empty() const { return left_.empty(); }
  std::span<const std::byte> rest() const { return std::as_bytes(left_); }
  std::string_view text() const { return {reinterpret_cast<const char*>(left_.data()), left_.size()}; }

 private:
  std::span<const std::uint8_t> left_;
};

// A file in memory that holds one input after the other, for code that can only open paths.
class ScratchFile {
 public:
  ScratchFile() : fd_(memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {
    require(fd_ >= 0, "memfd_create");
  }
  ~ScratchFile() { close(fd_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  int descriptor() const { return fd_; }
  const std::string& path() const { return path_; }
  void hold(std::span<const std::byte> bytes) const {
    require(ftruncate(fd_, 0) == 0 && pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
            "writing the input");
  }

 private:
  int fd_;
  std::string path_;
};

}  // namespace rankstacks::fuzz
