#include "gpu/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <array>

namespace rankstacks::gpu {
namespace {

// CUDBGResult in words, for the values that mean something to a user.
std::string result_text(api::Result result) {
  switch (result) {
    case 0x01: return "unknown error";
    case 0x04: return "invalid arguments";
    case 0x05: return "not initialized";
    case 0x0a: return "internal error of the driver";
    case 0x0b: return "no such device";
    case 0x0f: return "the device is suspended";
    case 0x10: return "the device is running";
    case 0x13: return "another version of the API";
    case 0x14: return "the driver could not be initialized";
    case 0x15: return "no such grid";
    case 0x17:
    case 0x18: return "the device drives a display, whose watchdog would end its kernels";
    case 0x1c: return "no communication with the application";
    case 0x1d: return "no such context";
    case 0x20: return "the display driver is of another version";
    case 0x21: return "no such module";
    case 0x24: return "a CUDA environment variable has an invalid value";
    case 0x25: return "the operating system refused a resource";
    case 0x27: return "no CUDA device";
    case 0x28: return "attaching is not possible now";
    case 0x2d: return "data is missing";
    case 0x2e: return "not supported";
    default: return fmt::format("error 0x{:x}", result);
  }
}

}  // namespace

Error Driver::error(const char* call, api::Result result) {
  return {.code = result == api::kNotSupported ? ErrorCode::kUnsupported : ErrorCode::kUnreadable,
          .subject = "CUDA debugger API",
          .what = fmt::format("{}: {} (0x{:x})", call, result_text(result), result),
          .where = {},
          .hint = {}};
}

std::string Driver::version() const { return fmt::format("{}.{} revision {}", major_, minor_, revision_); }

bool Driver::has(api::Slot slot) const {
  const bool of_12_5 = slot == api::Slot::kReadAllVirtualReturnAddresses || slot == api::Slot::kReadSmException;
  return !of_12_5 || major_ > 12 || (major_ == 12 && minor_ >= 5);
}

bool Driver::set_own(const char* name, std::uint32_t value) const {
  void* at = dlsym(library_, name);
  if (at == nullptr) return false;
  *static_cast<volatile std::uint32_t*>(at) = value;
  return true;
}

Result<Driver> Driver::of(void* handle, const std::string& path, CallWatch watch) {
  const auto refuse = [&](ErrorCode code, std::string what, std::string hint = "") {
    return fail(
        {.code = code, .subject = path, .what = std::move(what), .where = {}, .os_errno = 0, .hint = std::move(hint)});
  };
  using GetVersion = api::Result (*)(std::uint32_t*, std::uint32_t*, std::uint32_t*);
  using GetApi = api::Result (*)(std::uint32_t, std::uint32_t, std::uint32_t, void* const**);
  const auto get_version = reinterpret_cast<GetVersion>(dlsym(handle, "cudbgGetAPIVersion"));
  const auto get_api = reinterpret_cast<GetApi>(dlsym(handle, "cudbgGetAPI"));
  if (get_version == nullptr || get_api == nullptr) return refuse(ErrorCode::kUnsupported, "has no debugger API");
  Driver driver;
  driver.library_ = handle;
  driver.watch_ = std::move(watch);
  std::uint32_t major = 0, minor = 0, revision = 0;
  if (const auto result = get_version(&major, &minor, &revision); result != api::kSuccess)
    return fail(error("cudbgGetAPIVersion", result));
  const bool too_old = major < api::kOldestMajor || (major == api::kOldestMajor && minor < api::kOldestMinor);
  if (too_old)
    return refuse(
        ErrorCode::kUnsupported,
        fmt::format("offers debugger API {}.{}; {}.{} is needed", major, minor, api::kOldestMajor, api::kOldestMinor),
        "a driver of R550 or newer");
  if (major > api::kMajor)
    return refuse(ErrorCode::kUnsupported,
                  fmt::format("offers debugger API {}.{}; this build knows {}.x and older", major, minor, api::kMajor),
                  "a newer rankstacks");
  // Of the same major version the lower revision counts; a table of an older major version is known completely.
  const bool newer = major == api::kMajor && revision > api::kRevision;
  driver.major_ = major;
  driver.minor_ = newer ? api::kMinor : minor;
  driver.revision_ = newer ? api::kRevision : revision;
  if (const auto result = get_api(driver.major_, driver.minor_, driver.revision_, &driver.table_);
      result != api::kSuccess)
    return fail(error("cudbgGetAPI", result));
  if (driver.table_ == nullptr) return refuse(ErrorCode::kUnsupported, "gave no function table");
  return driver;
}

}  // namespace rankstacks::gpu
