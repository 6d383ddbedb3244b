#include "gpu/session.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <thread>

#include "gpu/device_info.h"
#include "gpu/pci_address.h"
#include "gpu/summarize.h"

namespace rankstacks::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using api::Slot;
using std::chrono::milliseconds;

constexpr milliseconds kLockTimeout{3000};  // a driver lock is held: retried for so long
constexpr milliseconds kLockPause{100};
constexpr milliseconds kTriggerTimeout{10'000};
constexpr milliseconds kAnswerTimeout{300}, kSilenceTimeout{3000}, kDeadClientTimeout{2000};
constexpr milliseconds kReplayTimeout{20'000};  // 36 cubins take 1.2 s
// A driver that has not begun to report within this time waits for a lock that a launch holds, for as long as that
// launch waits for its GPU.
constexpr milliseconds kFirstEventTimeout{2500};
constexpr milliseconds kNothingToDetach{1000};  // nothing was reported: there is little to take back
constexpr milliseconds kDetachTimeout{5000};
// Pausing a GPU whose time other processes' kernels share took up to 11 s (docs/gpu.md). A client that is killed
// meanwhile leaves the GPU's kernels of this process paused, so it is waited for.
constexpr milliseconds kPauseTimeout{120'000};
constexpr milliseconds kImageTimeout{20'000};
constexpr milliseconds kCoreTimeout{120'000};
constexpr std::uint32_t kMaxStackDepth = 256;
constexpr std::uint64_t kCoreBytesOfWarp = 16 * 1024,
                        kCoreBytesOfDevice = std::uint64_t{1} << 20;  // seen: 12 KiB, 0.4 MB
constexpr std::uint64_t kMaxImageBytes = std::uint64_t{2} << 30;
constexpr std::uint64_t kMaxUnwoundImage = std::uint64_t{16} << 20;
constexpr std::uint64_t kMaxFetchedAhead = std::uint64_t{512} << 20;
constexpr std::size_t kMaxDeviceBuffer = std::size_t{256} << 20;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void ignore_event(void*) {}

Error simple(ErrorCode code, std::string what, std::string hint = "") {
  return {.code = code,
          .subject = "CUDA debugger API",
          .what = std::move(what),
          .where = {},
          .os_errno = 0,
          .hint = std::move(hint)};
}

struct LoadedImage {
  std::uint32_t device = 0;
  std::uint64_t context = 0, module = 0, size = 0, handle = 0;
  std::vector<std::byte> bytes{};  // once fetched
};

class Session {
 public:
  Session(const TargetProxy& target, const Driver& driver, const PhaseObserver& entered)
      : target_(target), driver_(driver), entered_(entered) {}

  // Attaches, up to the point at which all contexts and modules are known. If anything fails: let_go() afterwards.
  Result<void> enter(Pid client, bool trigger) {
    if (auto done = introduce(client, trigger); !done) return done;
    if (trigger) {
      if (auto done = this->trigger(); !done) return done;
    } else {
      to(Phase::kTriggered);
    }
    // The debugger is let in at a time of the process's own: by a thread of its own, or by one whose caller has died.
    in_its_own_time_ = by_descriptor_ || !trigger;
    if (auto done = initialize(); !done) return done;
    return replay();
  }

  void sample(SessionResult& result) {
    fetch_ahead();
    for (const auto& [device, contexts] : contexts_) {
      SampledDevice looked;
      looked.state.device = device;
      looked.state.contexts = static_cast<std::uint32_t>(contexts.size());
      describe(looked.state);
      note(result, sample_device(looked));
      result.devices.push_back(std::move(looked));
    }
    for (SampledDevice& looked : result.devices) fetch_images(looked.state, result);
  }

  // A device that was paused when its debugger was killed runs again only after it was suspended and resumed anew.
  void resume_all() {
    for (const auto& [device, contexts] : contexts_) {
      to(Phase::kSuspended);
      (void)driver_.call_within(kPauseTimeout, Slot::kSuspendDevice, "suspendDevice", device);
      (void)driver_.call_within(kPauseTimeout, Slot::kResumeDevice, "resumeDevice", device);
      to(Phase::kResumed);
    }
  }

  void write_core(const std::string& path, std::uint64_t limit, SessionResult& result) {
    // A lightweight core is the modules' images and some hundred bytes a thread.
    std::uint64_t expected = 0;
    for (const LoadedImage& image : images_) expected += image.size;
    for (const SampledDevice& looked : result.devices)
      expected += looked.state.warps.size() * kCoreBytesOfWarp + kCoreBytesOfDevice;
    if (expected > limit)
      return note(result, fail(simple(ErrorCode::kLimit,
                                      fmt::format("a GPU core of about {} MiB was not written: the limit is {} MiB",
                                                  expected >> 20, limit >> 20),
                                      "--gpu-core-limit")));
    api::Result status =
        driver_.raw(kCoreTimeout, Slot::kGenerateCoredump, "generateCoredump", path.c_str(), api::kLightweightCore);
    if (status == 0x10) {  // "the device is running"
      to(Phase::kSuspended);
      for (const auto& [device, contexts] : contexts_)
        note(result, driver_.call_within(kPauseTimeout, Slot::kSuspendDevice, "suspendDevice", device));
      status =
          driver_.raw(kCoreTimeout, Slot::kGenerateCoredump, "generateCoredump", path.c_str(), api::kLightweightCore);
      for (const auto& [device, contexts] : contexts_)
        note(result, driver_.call_within(kPauseTimeout, Slot::kResumeDevice, "resumeDevice", device));
      to(Phase::kResumed);
    }
    if (status != api::kSuccess) return note(result, fail(Driver::error("generateCoredump", status)));
    struct stat file {};
    if (stat(path.c_str(), &file) == 0) result.core_bytes = static_cast<std::uint64_t>(file.st_size);
  }

  // Detaches, from whatever phase the session has reached. The process must be as before at the end of this: errors are
  // reported, and the next step is done all the same.
  void let_go(std::vector<Problem>& problems) {
    const auto report = [&](const char* what, const Result<void>& done) {
      if (!done) problems.push_back({fmt::format("GPU session: {}: {}", what, done.error().message()), std::nullopt});
    };
    if (phase_ >= Phase::kTriggered) {
      if (connected_) report("preparing to detach", driver_.call(Slot::kClearAttachState, "clearAttachState"));
      report("detaching", call_with_timeout(EntryPoint::kDetach));
      const auto resume = target_.read(Word::kResumeForAttachDetach);
      const std::uint32_t flag = resume ? resume->value_or(0) : 0;
      if (connected_ && flag != 0)
        report("detaching", driver_.call(Slot::kRequestCleanupOnDetach, "requestCleanupOnDetach", flag));
      set(Word::kDebuggerCapabilities, 0);
      set(Word::kDebuggerInitialized, 0);
      if (connected_ && flag != 0 &&
          !drain_to(api::EventKind::kDetachComplete, kDetachTimeout,
                    contexts_.empty() ? kNothingToDetach : kDetachTimeout))
        problems.push_back({"GPU session: the driver did not say that it has detached", std::nullopt});
      set(Word::kIpcFlag, 0);
      if (connected_) report("ending", driver_.call(Slot::kFinalize, "finalize"));
    } else if (introduced_) {
      set(Word::kDebuggerCapabilities, 0);
      set(Word::kApiClientPid, 0);
    }
    to(Phase::kReleased);
  }

  double thread_held_ms() const { return thread_held_ms_; }

 private:
  void to(Phase phase) {
    phase_ = phase;
    entered_(phase);
  }

  static void note(SessionResult& result, const Result<void>& done) {
    if (!done) result.problems.push_back(problem_of(done.error()));
  }

  Result<void> set(Word word, std::uint32_t value) {
    if (auto done = target_.write(word, value); !done) return fail(done.error());
    return {};
  }

  // Sets in both sides who the client is, and what it can do.
  Result<void> introduce(Pid client, bool in_target) {
    driver_.set_own(name_of(Word::kApiClientPid), static_cast<std::uint32_t>(client));
    driver_.set_own(name_of(Word::kApiClientRevision), driver_.revision());
    driver_.set_own(name_of(Word::kSessionId), 0);
    if (!in_target) return {};
    introduced_ = true;
    for (const auto& [name, value] : {std::pair{Word::kApiClientPid, static_cast<std::uint32_t>(client)},
                                      {Word::kApiClientRevision, driver_.revision()},
                                      {Word::kSessionId, 0u},
                                      {Word::kRpcEnabled, 0u},
                                      {Word::kDebuggerCapabilities, api::kCapabilities}})
      if (auto done = set(name, value); !done) return done;
    return {};
  }

  Result<void> trigger() {
    // Drivers since 590: after one byte into a pipe of the process, it lets the debugger in at a moment that it finds
    // safe.
    const auto asked = target_.ask_by_descriptor();
    if (!asked) return fail(asked.error());
    if (!*asked) return call_with_timeout(EntryPoint::kAttach);
    to(Phase::kTriggered);
    by_descriptor_ = true;
    return {};
  }

  // Calls cudbgApiAttach or cudbgApiDetach in the process, and waits for a driver lock that is held there.
  Result<void> call_with_timeout(EntryPoint function) {
    const auto start = Clock::now();
    while (true) {
      if (auto done = set(Word::kReportedDriverInternalErrorCode, 0); !done) return done;
      if (function == EntryPoint::kAttach) to(Phase::kTriggered);
      const auto called = target_.call(function);
      if (!called) {
        // No thread can make the call: the driver was not asked, and the process does not wait.
        if (function == EntryPoint::kAttach && called.error().code == ErrorCode::kUnsupported) to(Phase::kNothing);
        return fail(called.error());
      }
      thread_held_ms_ = std::max(thread_held_ms_, called->held_ms);
      const auto status = target_.read(Word::kReportedDriverInternalErrorCode);
      if (!status) return fail(status.error());
      const std::uint32_t code = status->value_or(0);
      if (code == api::kSuccess) return {};
      // The driver has refused, and does not wait for a client.
      if (function == EntryPoint::kAttach) to(Phase::kNothing);
      if (code != api::kAttachNotPossible) return fail(Driver::error(name_of(function), code));
      const milliseconds limit = function == EntryPoint::kDetach && contexts_.empty() ? kNothingToDetach : kLockTimeout;
      if (Clock::now() - start > limit)
        return fail(
            simple(ErrorCode::kTimeout,
                   fmt::format("{}: the process held a lock of its driver for {} ms", name_of(function), limit.count()),
                   "try again"));
      std::this_thread::sleep_for(kLockPause);
    }
  }

  Result<void> initialize() {
    const auto start = Clock::now();
    while (true) {
      const auto done = driver_.call_within(kTriggerTimeout, Slot::kInitialize, "initialize");
      // A process without anything to replay sends no event, and says so by this word.
      const auto resume = target_.read(Word::kResumeForAttachDetach);
      const bool silent = by_descriptor_ && resume && resume->value_or(0) == 0;
      const bool late = Clock::now() - start > (silent           ? kSilenceTimeout
                                                : by_descriptor_ ? kTriggerTimeout
                                                                 : kDeadClientTimeout);
      if (!done && (!in_its_own_time_ || late)) return done;
      if (done && (!in_its_own_time_ || late || is_answered(kAnswerTimeout))) break;
      // It also succeeds if nobody answers yet.
      if (done) (void)driver_.call(Slot::kFinalize, "finalize");  // and once more
      else std::this_thread::sleep_for(milliseconds(10));
    }
    connected_ = true;
    to(Phase::kInitialized);
    if (auto done = driver_.call(Slot::kSetNotifyNewEventCallback, "setNotifyNewEventCallback", &ignore_event); !done)
      return done;
    return driver_.call(Slot::kSetKernelLaunchNotificationMode, "setKernelLaunchNotificationMode",
                        api::kDeferLaunchNotifications);
  }

  bool is_answered(milliseconds timeout) {
    for (const auto until = Clock::now() + timeout; Clock::now() < until; std::this_thread::sleep_for(milliseconds(1)))
      if (next_event()) return true;
    return false;
  }

  // Takes one event of either queue; std::nullopt if there is none. Events of the synchronous queue are acknowledged
  // once it is empty.
  std::optional<api::EventKind> next_event() {
    for (const std::uint32_t queue : {api::kSyncQueue, api::kAsyncQueue}) {
      api::Event event{};
      const api::Result status = driver_.raw(Driver::kUsualLimit, Slot::kGetNextEvent, "getNextEvent", queue, &event);
      if (status == api::kSuccess) {
        if (queue == api::kSyncQueue) unacknowledged_ = true;
        driver_.reported(event);
        take(event);
        return event.kind;
      }
      if (queue == api::kSyncQueue && unacknowledged_) {
        driver_.raw(Driver::kUsualLimit, Slot::kAcknowledgeSyncEvents, "acknowledgeSyncEvents");
        unacknowledged_ = false;
      }
    }
    return std::nullopt;
  }

  // The driver's structure is packed: its members are copied before anything refers to them.
  void take(const api::Event& event) {
    switch (event.kind) {
      case api::EventKind::kContextCreate: {
        const std::uint32_t device = event.context.device;
        const std::uint64_t context = event.context.context;
        if (device < api::kMaxDevices) contexts_[device].insert(context);
        break;
      }
      case api::EventKind::kContextDestroy: {
        const std::uint32_t device = event.context.device;
        const std::uint64_t context = event.context.context;
        if (const auto it = contexts_.find(device);
            it != contexts_.end() && it->second.erase(context) != 0 && it->second.empty())
          contexts_.erase(it);
        break;
      }
      case api::EventKind::kElfImageLoaded: {
        images_.push_back(
            {event.image.device, event.image.context, event.image.module, event.image.size, event.image.handle});
        // The event of a context was seen to be missing once, of 58 sessions, while those of its modules had come.
        const std::uint64_t context = event.image.context;
        if (event.image.device < api::kMaxDevices) contexts_[event.image.device].insert(context);
        break;
      }
      case api::EventKind::kElfImageUnloaded:
        std::erase_if(images_, [&](const LoadedImage& i) {
          return i.handle == event.image.handle && i.device == event.image.device;
        });
        break;
      case api::EventKind::kInternalError: internal_error_ = std::uint32_t{event.error}; break;
      default: break;
    }
  }

  // Gives up after `first` if no event at all has arrived.
  bool drain_to(api::EventKind wanted, milliseconds timeout, milliseconds first) {
    const auto begun = Clock::now();
    auto until = begun + std::min(timeout, first);
    while (true) {
      const auto kind = next_event();
      if (kind) until = begun + timeout;
      if (kind == wanted) {
        while (next_event()) continue;  // events that are still there, and the acknowledgement
        return true;
      }
      if (kind) continue;
      if (internal_error_ || Clock::now() > until) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  Result<void> replay() {
    const auto resume = target_.read(Word::kResumeForAttachDetach);
    if (by_descriptor_ && contexts_.empty() && resume && resume->value_or(0) == 0) {
      // Nothing is replayed: events begin to flow.
      if (auto done = set(Word::kIpcFlag, 1); !done) return done;
      while (next_event()) continue;
    } else if (!drain_to(api::EventKind::kAttachComplete,
                         in_its_own_time_ && contexts_.empty() ? kDeadClientTimeout : kReplayTimeout,
                         kFirstEventTimeout)) {
      if (internal_error_) return fail(Driver::error("attaching", *internal_error_));
      if (contexts_.empty())
        return fail(simple(ErrorCode::kTimeout, "the driver reported no context: it has not attached",
                           "GPU memory that is nearly full (it needs some 50 MiB), MPS, or a child forked after CUDA "
                           "was in use, which has no context of its own"));
      return fail(simple(ErrorCode::kTimeout, fmt::format("the driver did not report all modules within {} s",
                                                          kReplayTimeout.count() / 1000)));
    }
    to(Phase::kAttached);
    if (contexts_.empty()) return fail(simple(ErrorCode::kNotFound, "the process has no context on any GPU"));
    return {};
  }

  void describe(DeviceState& state) const {
    char text[256] = "";
    if (driver_.call(Slot::kGetDeviceName, "getDeviceName", state.device, &text[0], std::uint32_t{sizeof text - 1}))
      state.name = text;
    std::memset(text, 0, sizeof text);
    if (driver_.call(Slot::kGetSmType, "getSmType", state.device, &text[0], std::uint32_t{sizeof text - 1}))
      state.sm_type = text;
    std::uint32_t bus = 0, slot = 0;
    if (driver_.call(Slot::kGetDevicePciBusInfo, "getDevicePCIBusInfo", state.device, &bus, &slot))
      state.pci = pci_address(bus, slot);
  }

  // The device is paused from suspendDevice to resumeDevice: in between nothing is named and no image is fetched.
  Result<void> sample_device(SampledDevice& looked) {
    DeviceState& state = looked.state;
    api::DeviceInfoSizes sizes{};
    std::uint32_t sms = 0;
    if (auto done = driver_.call(Slot::kGetNumSms, "getNumSMs", state.device, &sms); !done) return done;
    if (auto done = driver_.call(Slot::kGetDeviceInfoSizes, "getDeviceInfoSizes", state.device, &sizes); !done)
      return done;
    if (sizes.buffer > kMaxDeviceBuffer)
      return fail(simple(ErrorCode::kLimit, fmt::format("the device's state takes {} bytes", sizes.buffer)));
    std::vector<std::byte> buffer(sizes.buffer);
    to(Phase::kSuspended);
    const auto start = Clock::now();
    if (auto done = driver_.call_within(kPauseTimeout, Slot::kSuspendDevice, "suspendDevice", state.device); !done) {
      to(Phase::kResumed);
      return done;
    }
    const Result<void> seen = look_while_suspended(state, sizes, sms, buffer);
    const Result<void> resumed = driver_.call_within(kPauseTimeout, Slot::kResumeDevice, "resumeDevice", state.device);
    looked.held_ms = ms_since(start);
    to(Phase::kResumed);
    return resumed ? seen : resumed;
  }

  Result<void> look_while_suspended(DeviceState& state, const api::DeviceInfoSizes& sizes, std::uint32_t sms,
                                    std::vector<std::byte>& buffer) {
    std::uint32_t length = 0;
    const auto size = static_cast<std::uint32_t>(buffer.size());
    if (auto done = driver_.call(Slot::kGetDeviceInfo, "getDeviceInfo", state.device, api::kFullDeviceInfo,
                                 static_cast<void*>(buffer.data()), size, &length);
        !done)
      return done;
    auto parsed = parse_device_info(std::span(buffer).first(std::min<std::size_t>(length, buffer.size())), sizes, sms);
    if (!parsed) return fail(parsed.error());
    state.warps = std::move(parsed->warps);

    std::set<std::uint64_t> grids;
    for (const Warp& warp : state.warps) grids.insert(warp.grid_id);
    for (const std::uint64_t id : grids) {
      // Newer drivers write more than the layout of 12.0 only through their own slot; `room` is for those that do not
      // keep to that.
      struct {
        api::GridInfo grid;
        std::byte room[256];
      } info{};
      if (!driver_.call(Slot::kGetGridInfo, "getGridInfo", state.device, id, &info.grid))
        continue;  // it ended: its warps name an unknown grid
      const api::GridInfo& g = info.grid;
      state.grids.push_back({.id = id,
                             .context = g.context,
                             .module = g.module,
                             .function = g.function,
                             .entry = g.entry,
                             .grid = {g.grid.x, g.grid.y, g.grid.z},
                             .block = {g.block.x, g.block.y, g.block.z}});
    }
    for (const LaneId& lane : representative_lanes(state))
      if (is_unwound_at_once(state, lane.grid_id)) read_stack(state, lane);
    if (driver_.has(Slot::kReadSmException))
      for (const std::uint32_t sm : parsed->exception_sms) {
        std::uint32_t code = 0;
        Address pc = 0;
        bool valid = false;
        if (driver_.call(Slot::kReadSmException, "readSmException", state.device, sm, &code, &pc, &valid) && code != 0)
          state.sm_exceptions.push_back(
              {.sm = sm, .code = code, .error_pc = valid ? std::optional<Address>(pc) : std::nullopt});
      }
    return {};
  }

  // The first stack within a module makes the driver read that module: 60 ms for NCCL's, of 119 MB, while the GPU is
  // paused.
  bool is_unwound_at_once(const DeviceState& state, std::uint64_t grid_id) const {
    const auto grid =
        std::find_if(state.grids.begin(), state.grids.end(), [&](const Grid& g) { return g.id == grid_id; });
    if (grid == state.grids.end()) return false;
    const auto image = std::find_if(images_.begin(), images_.end(), [&](const LoadedImage& i) {
      return i.device == state.device && i.context == grid->context && i.module == grid->module;
    });
    return image == images_.end() || image->size <= kMaxUnwoundImage;
  }

  void read_stack(DeviceState& state, const LaneId& lane) const {
    LaneStack stack{.sm = lane.sm, .warp = lane.warp, .lane = lane.lane, .returns = {}};
    if (driver_.has(Slot::kReadAllVirtualReturnAddresses)) {
      std::array<Address, kMaxStackDepth> addresses{};
      std::uint32_t depth = 0, in_driver = 0;
      if (!driver_.call(Slot::kReadAllVirtualReturnAddresses, "readAllVirtualReturnAddresses", state.device, lane.sm,
                        lane.warp, lane.lane, addresses.data(), kMaxStackDepth, &depth, &in_driver))
        return;
      stack.returns.assign(addresses.begin(), addresses.begin() + std::min(depth, kMaxStackDepth));
    } else {
      std::uint32_t depth = 0;
      if (!driver_.call(Slot::kReadCallDepth, "readCallDepth", state.device, lane.sm, lane.warp, lane.lane, &depth))
        return;
      for (std::uint32_t level = 0; level < std::min(depth, kMaxStackDepth); ++level) {
        Address address = 0;
        if (!driver_.call(Slot::kReadVirtualReturnAddress, "readVirtualReturnAddress", state.device, lane.sm, lane.warp,
                          lane.lane, level, &address))
          break;
        stack.returns.push_back(address);
      }
    }
    if (!stack.returns.empty()) state.stacks.push_back(std::move(stack));
  }

  // Done while the GPU still runs, so that it does not wait for this.
  void fetch_ahead() {
    std::uint64_t left = kMaxFetchedAhead;
    for (LoadedImage& image : images_) {
      if (image.size > left) continue;
      left -= image.size;
      (void)fetch(image);
    }
  }

  Result<void> fetch(LoadedImage& image) {
    image.bytes.resize(image.size);
    const auto done =
        driver_.call_within(kImageTimeout, Slot::kGetElfImageByHandle, "getElfImageByHandle", image.device,
                            image.handle, api::kRelocatedImage, static_cast<void*>(image.bytes.data()), image.size);
    if (!done) image.bytes.clear();
    return done;
  }

  void fetch_images(DeviceState& state, SessionResult& result) {
    for (const ModuleId& wanted : needed_modules(state)) {
      const auto image = std::find_if(images_.begin(), images_.end(), [&](const LoadedImage& i) {
        return i.device == state.device && i.context == wanted.context && i.module == wanted.module;
      });
      if (image == images_.end()) continue;
      if (image->size > kMaxImageBytes) {
        result.problems.push_back(
            {fmt::format("GPU {}: a module of {} bytes is not read; its kernels stay without names", state.device,
                         image->size),
             std::nullopt});
        continue;
      }
      if (image->bytes.empty())
        if (const auto done = fetch(*image); !done) {
          note(result, done);
          continue;
        }
      state.images.push_back({.context = wanted.context, .module = wanted.module, .bytes = std::move(image->bytes)});
    }
  }

  const TargetProxy& target_;
  const Driver& driver_;
  const PhaseObserver& entered_;
  Phase phase_ = Phase::kNothing;
  bool introduced_ = false, connected_ = false, by_descriptor_ = false, in_its_own_time_ = false,
       unacknowledged_ = false;
  double thread_held_ms_ = 0;
  std::map<std::uint32_t, std::set<std::uint64_t>> contexts_;  // by device
  std::vector<LoadedImage> images_;
  std::optional<std::uint32_t> internal_error_;
};

}  // namespace

Result<SessionResult> run_session(const TargetProxy& target, const Driver& driver, const SessionRequest& request,
                                  const PhaseObserver& entered) {
  const auto start = Clock::now();
  SessionResult result{.driver = driver.version(), .core_bytes = {}};
  std::vector<Problem> leaving;
  const auto attempt = [&]() -> Result<void> {
    Session session(target, driver, entered);
    const auto in = session.enter(getpid(), true);
    if (in) {
      session.sample(result);
      if (request.core_path) session.write_core(*request.core_path, request.core_limit, result);
    }
    leaving.clear();
    session.let_go(leaving);
    result.thread_held_ms = std::max(result.thread_held_ms, session.thread_held_ms());
    return in;
  };
  auto in = attempt();
  // Only processes with the driver's own thread are asked, which have a context: once more, then.
  if (!in && in.error().code == ErrorCode::kNotFound && leaving.empty()) in = attempt();
  result.attach_ms = ms_since(start);
  if (!in) {
    // If the debugger was not let in, what went wrong on the way out is of no interest.
    return fail(in.error());
  }
  result.problems.insert(result.problems.end(), leaving.begin(), leaving.end());
  return result;
}

Result<void> release(const TargetProxy& target, const Driver& driver, std::optional<Phase> died_in, Pid dead_client,
                     const PhaseObserver& entered) {
  const auto attempt = [&](Pid client, bool trigger) -> Result<void> {
    Session session(target, driver, entered);
    const auto in = session.enter(client, trigger);
    if (in) session.resume_all();
    std::vector<Problem> leaving;
    session.let_go(leaving);
    return in;
  };
  // A process that waits for the dead client, which had asked it to, is answered in that client's name. If nobody
  // reacts to that, the dead client had not come so far.
  if (died_in == Phase::kTriggered && attempt(dead_client, false)) return {};
  return attempt(getpid(), true);
}

}  // namespace rankstacks::gpu
