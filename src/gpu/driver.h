// The CUDA debugger API of a driver library that is loaded into this process: its function table. Every call has a name
// and is watched.
//
// The library is the very file that the process has mapped, and the machine's own (attach_point.h); it is loaded
// without cuInit. Only the client of a session helper does this (session_client.h): a driver that hangs or crashes
// takes nothing else down with it, and has no more rights than the process.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "gpu/driver_api.h"

namespace rankstacks::gpu {

// Called before and after each call into the driver, with the name of that call and how long it may take, and for each
// event that the driver reports.
struct CallWatch {
  std::function<void(const char* call, std::chrono::milliseconds limit)> begin = [](const char*,
                                                                                    std::chrono::milliseconds) {};
  std::function<void()> end = [] {};
  std::function<void(const api::Event& event)> event = [](const api::Event&) {};
};

class Driver {
 public:
  // Gets the function table of the highest version that both sides know, from a library that is already loaded
  // (machine_library.h); `path` names the library in errors. Errors: kUnsupported (no debugger API, another major
  // version, or one that is too old).
  static Result<Driver> of(void* handle, const std::string& path, CallWatch watch);

  std::uint32_t revision() const { return revision_; }
  std::string version() const;  // "13.0 revision 163"
  // Sets a word of this process's copy of the library; false if it has none of that name.
  bool set_own(const char* name, std::uint32_t value) const;

  static constexpr std::chrono::milliseconds kUsualLimit{5000};

  // Calls the function of that slot. Errors carry the call's name and the driver's name for its result.
  template <class... Arguments>
  Result<void> call(api::Slot slot, const char* name, Arguments... arguments) const {
    return call_within(kUsualLimit, slot, name, arguments...);
  }
  template <class... Arguments>
  Result<void> call_within(std::chrono::milliseconds limit, api::Slot slot, const char* name,
                           Arguments... arguments) const {
    const api::Result result = raw(limit, slot, name, arguments...);
    if (result != api::kSuccess) return fail(error(name, result));
    return {};
  }
  // The same, but returns the driver's result itself, for calls whose result carries information.
  template <class... Arguments>
  api::Result raw(std::chrono::milliseconds limit, api::Slot slot, const char* name, Arguments... arguments) const {
    using Function = api::Result (*)(Arguments...);
    const auto function = reinterpret_cast<Function>(table_[static_cast<std::size_t>(slot)]);
    watch_.begin(name, limit);
    const api::Result result = function(arguments...);
    watch_.end();
    return result;
  }

  void reported(const api::Event& event) const { watch_.event(event); }

  // Whether this slot is in the table that was negotiated.
  bool has(api::Slot slot) const;

  static Error error(const char* call, api::Result result);

 private:
  Driver() = default;
  void* library_ = nullptr;  // never closed: the driver's threads run in it
  void* const* table_ = nullptr;
  std::uint32_t major_ = 0, minor_ = 0, revision_ = 0;
  CallWatch watch_;
};

}  // namespace rankstacks::gpu
