#include "base/mapped_file.h"

#include <sys/mman.h>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace rankstacks {
inline namespace base {

// A range that the handler takes care of. Never freed, so that the handler needs no lock; a released one is reused for
// another mapping.
struct MappedFile::Watched {
  std::atomic<std::uintptr_t> start{0}, end{0};  // end 0: free
  std::atomic<std::uintptr_t> lost_from{0};      // the lowest page that was lost; equal to `end` if none was
  Watched* next = nullptr;
};

struct BusErrors {
  static inline std::atomic<MappedFile::Watched*> all{nullptr};
  static inline std::mutex changing;
  static inline std::atomic<std::size_t> unused{0};  // how many of all are free
  static inline struct sigaction before {};

  // Uses only what signal-safety(7) allows, and mmap(), which is a bare system call.
  static void handle(int signal, siginfo_t* info, void* context) {
    constexpr std::uintptr_t kPage = 4096;
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    for (MappedFile::Watched* w = all.load(std::memory_order_acquire); w != nullptr; w = w->next) {
      if (address < w->start.load(std::memory_order_acquire) || address >= w->end.load(std::memory_order_acquire))
        continue;
      const std::uintptr_t page = address & ~(kPage - 1);
      if (mmap(reinterpret_cast<void*>(page), kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          MAP_FAILED)
        break;
      std::uintptr_t lowest = w->lost_from.load(std::memory_order_acquire);
      while (page < lowest && !w->lost_from.compare_exchange_weak(lowest, page, std::memory_order_acq_rel)) continue;
      return;
    }
    if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
    // The access is repeated on return, and then meets the handler that was installed before.
    sigaction(signal, &before, nullptr);
  }

  static MappedFile::Watched* watch(std::uintptr_t start, std::uintptr_t end) {
    const std::lock_guard lock(changing);
    MappedFile::Watched* w = all.load();
    if (w == nullptr) {
      struct sigaction action {};
      action.sa_sigaction = &handle;
      action.sa_flags = SA_SIGINFO | SA_RESTART;
      sigemptyset(&action.sa_mask);
      sigaction(SIGBUS, &action, &before);
    }
    // Most often none is free, and there may be thousands of them.
    if (unused == 0) w = nullptr;
    while (w != nullptr && w->end.load() != 0) w = w->next;
    if (w != nullptr) {
      --unused;
    } else {
      w = new MappedFile::Watched;
      w->next = all.load();
      all.store(w, std::memory_order_release);
    }
    w->lost_from = end;
    w->start = start;
    w->end.store(end, std::memory_order_release);
    return w;
  }
};

std::optional<MappedFile> MappedFile::map(int descriptor, std::size_t size) {
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (mapped == MAP_FAILED) return std::nullopt;
  MappedFile file;
  file.bytes_ = {static_cast<const std::byte*>(mapped), size};
  const auto start = reinterpret_cast<std::uintptr_t>(mapped);
  file.watched_ = BusErrors::watch(start, start + size);
  return file;
}

MappedFile::~MappedFile() {
  if (watched_ == nullptr) return;
  watched_->end = 0;  // before another mapping can get its addresses
  ++BusErrors::unused;
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), watched_(std::exchange(other.watched_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(watched_, other.watched_);
  return *this;
}

std::size_t MappedFile::first_lost() const noexcept {
  return watched_ == nullptr
             ? 0
             : watched_->lost_from.load(std::memory_order_acquire) - watched_->start.load(std::memory_order_relaxed);
}

bool MappedFile::has_lost_pages() const noexcept { return first_lost() < bytes_.size(); }

}  // namespace base
}  // namespace rankstacks
