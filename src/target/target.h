// The interface between "where the bytes come from" and everything that interprets them.
//
//     LiveTarget (a stopped, copied process)   CoreTarget (a core file)   FakeTarget (tests)
//                      \                             |                       /
//                       `------------------------ Target ------------------'
//                                                    |
//                              Unwinder, PythonReader, syscalls, environment
//
// A Target is a snapshot: what read() returned once it returns again. Reads never throw and never block on the target.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "model/snapshot.h"
#include "target/modules.h"
#include "target/read_pages.h"
#include "target/registers.h"

namespace rankstacks::target {

struct ThreadInfo {
  Tid tid = 0;
  std::string name;                       // the kernel's comm; empty: unknown (cores do not contain it)
  char state = 0;                         // live: R S D T t Z I ... as before the stop, F: frozen; 0: unknown
  std::optional<double> cpu_ms;           // user + system time used so far
  std::optional<Registers> registers;     // std::nullopt: it could not be stopped or has none; `problem` says why
  std::string problem;                    // empty: none
  std::string wchan;                      // state D: where it waits according to the kernel
  std::vector<std::string> kernel_stack;  // state D and root: /proc's kernel stack, innermost first
};

class Target {
 public:
  virtual ~Target() = default;

  // "pid 4711" or "core.4711": the subject of errors.
  virtual const std::string& subject() const = 0;

  virtual std::span<const ThreadInfo> threads() const = 0;
  virtual std::span<const Mapping> mappings() const = 0;
  virtual const ModuleMap& modules() const = 0;

  // Copies as many bytes from `address` on as are available, in order, and returns their number. If that is less than
  // asked for, the byte after them is not available. Read-only file-backed pages may be served from the module's
  // verified file. noexcept, as it is called from C callbacks.
  virtual std::size_t read(Address address, std::span<std::byte> into) const noexcept = 0;

  // Announces a batch of ranges to be read: a live target fetches the missing ones in as few system calls as it can.
  // Returns nothing; whether a range is available shows when it is read. Other targets ignore the call.
  virtual void prefetch(std::span<const Range>) const noexcept {}

  // Whether its time is over (limited_target.h) and its memory therefore unreadable: for walks that can continue
  // without reading any.
  virtual bool expired() const noexcept { return false; }

  // What happened to its bytes since it was opened, such as a file that was truncated while it was read. Data read from
  // it may be wrong.
  virtual std::vector<Problem> damage() const { return {}; }

  bool read_exact(Address address, std::span<std::byte> into) const noexcept {
    return read(address, into) == into.size();
  }

  template <class T>
  std::optional<T> read_value(Address address) const noexcept {
    T value;
    if (!read_exact(address, std::as_writable_bytes(std::span<T, 1>(&value, 1)))) return std::nullopt;
    return value;
  }

  // From now on, read() adds the pages that it returns to `pages`, which the target borrows; nullptr ends that.
  void record_reads(ReadPages* pages) { read_pages_ = pages; }

  // For reads that nothing but the record needs.
  virtual bool is_recorded() const noexcept { return read_pages_ != nullptr; }

  // The C string at `address`, without its 0; std::nullopt if it is not readable to its end or is longer than `limit`.
  std::optional<std::string> read_c_string(Address address, std::size_t limit) const;

 protected:
  void record(Address address, std::size_t size) const noexcept {
    if (read_pages_ != nullptr) read_pages_->add(address, size);
  }

 private:
  ReadPages* read_pages_ = nullptr;
};

}  // namespace rankstacks::target
