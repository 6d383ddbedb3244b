// A fake CUDA driver for tests of sessions: the debugger API's table, and the words of the attach protocol. Like real
// drivers it is loaded twice: into the process that is debugged (fixtures/gpu/cuda_session.py), whose state it keeps,
// and into the helper that attaches, which accesses that state through the process's memory. A directory says what
// the driver should do, and keeps what it did:
//
//     scenario   lines "word value": devices N, warps N, lock N (attaching is refused N times), error CALL CODE,
//                hang CALL, kill CALL (once), slow CALL MS, no-context, no-handler, attach-ms N, exception CODE, same-pci,
//                version MAJOR MINOR REVISION, descriptor, image-bytes N
//     target     the process and the address of its state
//     log        one line per call: the pid, the call
//     rights     one line when it is loaded and one line per call: "loaded" or "called", pid, real and effective uid,
//                effective capabilities
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gpu/driver_api.h"
#include "gpu/gpu_core_writer.h"

namespace api = rankstacks::gpu::api;
using rankstacks::testing::Bytes;

#define EXPORTED __attribute__((visibility("default")))
// In pages of their own: a process that maps something else there is not affected.
#define WORD EXPORTED __attribute__((section("driver_words"))) volatile

extern "C" {
constexpr std::size_t kPage = 4096;
__attribute__((section("driver_words"), aligned(kPage), used)) char before_the_words[kPage] = {1};
WORD std::uint32_t cudbgApiClientPid = 0, cudbgApiClientRevision = 0, cudbgSessionId = 0, cudbgRpcEnabled = 0,
                   cudbgIpcFlag = 0, cudbgDebuggerCapabilities = 0;
WORD std::uint32_t cudbgDebuggerInitialized = 0, cudbgAttachHandlerAvailable = 0, cudbgResumeForAttachDetach = 0;
WORD std::uint64_t cudbgReportedDriverInternalErrorCode = 0;
#ifdef NEW_DRIVER
WORD std::int32_t cudbgInitiateDebuggerAttachProcedureFd = -1;
#endif
__attribute__((section("driver_words"), aligned(kPage), used)) char behind_the_words[kPage] = {1};
}

namespace {

constexpr std::uint32_t kSms = 132;
constexpr std::uint64_t kCode = 0x7f00'0000'1000;  // of the kernel `spin`; inner() at +0x100

// The state in the process that is debugged.
struct State {
  std::uint32_t waits_for_client, connected, detaching, refused;
  std::uint32_t suspended[8];
  std::uint32_t client;
};
volatile State state;

// The directory of this file. Determined when it is loaded: its name may be a descriptor's (/proc/self/fd/N), which
// is closed later.
const std::string& directory() {
  static const std::string kDirectory = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<const void*>(&directory), &info);
    char path[PATH_MAX];
    if (realpath(info.dli_fname, path) == nullptr) std::abort();
    return std::string(path, static_cast<std::size_t>(std::strrchr(path, '/') + 1 - path));
  }();
  return kDirectory;
}
[[maybe_unused]] const std::string& kAskedAtOnce = directory();

// The text after `word` in the scenario; std::nullopt if the scenario does not have the word.
bool scenario(const std::string& word, std::string& rest) {
  std::ifstream file(directory() + "scenario");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first != word) continue;
    std::getline(words >> std::ws, rest);
    return true;
  }
  return false;
}
bool is(const char* word) {
  std::string rest;
  return scenario(word, rest);
}
std::uint32_t number(const char* word, std::uint32_t otherwise) {
  std::string rest;
  return scenario(word, rest) ? static_cast<std::uint32_t>(std::stoul(rest)) : otherwise;
}

void append(const char* file, const char* line, int length) {
  const int fd = open((directory() + file).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd >= 0 && write(fd, line, static_cast<std::size_t>(length)) != length) std::abort();
  close(fd);
}

// Records what this process could do now. If it runs for another user, that must not be more than that user could do.
void log_rights(const char* when) {
  char text[4096] = "", line[256];
  const int status = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
  if (status < 0 || read(status, text, sizeof text - 1) < 0) std::abort();
  close(status);
  const char* capabilities = std::strstr(text, "CapEff:\t");
  append("rights", line,
         std::snprintf(line, sizeof line, "%s %d %d %d %.16s\n", when, getpid(), getuid(), geteuid(),
                       capabilities == nullptr ? "?" : capabilities + 8));
}
__attribute__((constructor)) void loaded() { log_rights("loaded"); }

void log(const char* call) {
  log_rights("called");
  char line[128];
  append("log", line, std::snprintf(line, sizeof line, "%d %s\n", getpid(), call));
}

// Each call into the API begins with this. If the result is not 0, the call returns it.
api::Result enter(const char* call) {
  log(call);
  std::string rest;
  if (scenario("hang", rest) && rest == call && access((directory() + "hung").c_str(), F_OK) != 0) {
    close(open((directory() + "hung").c_str(), O_CREAT | O_WRONLY, 0666));
    while (true) pause();
  }
  if (scenario("slow", rest)) {
    std::istringstream words(rest);
    std::string name;
    unsigned ms = 0;
    words >> name >> ms;
    if (name == call) usleep(ms * 1000);
  }
  if (scenario("kill", rest) && rest == call && access((directory() + "killed").c_str(), F_OK) != 0) {
    close(open((directory() + "killed").c_str(), O_CREAT | O_WRONLY, 0666));
    kill(getpid(), SIGKILL);
  }
  if (scenario("error", rest)) {
    std::istringstream words(rest);
    std::string name;
    api::Result code = 0;
    words >> name >> code;
    if (name == call) return code;
  }
  return api::kSuccess;
}

// The state in the other process.
struct Target {
  pid_t pid = 0;
  std::uint64_t at = 0;
};
Target target() {
  Target t;
  std::ifstream(directory() + "target") >> t.pid >> t.at;
  return t;
}
void* remote_of(const volatile void* ours) {
  // The two copies of this library differ only in the address at which they are loaded.
  const Target t = target();
  return reinterpret_cast<void*>(t.at + reinterpret_cast<std::uint64_t>(ours) -
                                 reinterpret_cast<std::uint64_t>(&state));
}
std::uint32_t get(const volatile std::uint32_t& ours) {
  std::uint32_t value = 0;
  const iovec local{&value, sizeof value}, remote{remote_of(&ours), sizeof value};
  if (process_vm_readv(target().pid, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(sizeof value)) std::abort();
  return value;
}
void put(const volatile std::uint32_t& ours, std::uint32_t value) {
  const iovec local{&value, sizeof value}, remote{remote_of(&ours), sizeof value};
  if (process_vm_writev(target().pid, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(sizeof value)) std::abort();
}

std::uint32_t devices() { return number("devices", 1); }

const Bytes& image() {
  static const Bytes bytes = [] {
    rankstacks::testing::CubinWriter writer;
    writer.code.push_back(
        {.name = "_Z4spinPi",
         .address = kCode,
         .size = 0x200,
         .functions = {{"_Z4spinPi", 0, 0x100, true, true}, {"$_Z4spinPi$_Z5inneri", 0x100, 0x100, false, false}}});
    return writer.write();
  }();
  return bytes;
}

// ---- the API, in the helper

std::deque<api::Event> events;
bool is_ours = false;

void add_context(std::uint32_t device) {
  if (!is("no-context-events")) {
    api::Event created{.kind = api::EventKind::kContextCreate, .room = {}};
    created.context = {device, 0, 0xc000 + device};
    events.push_back(created);
  }
  api::Event loaded{.kind = api::EventKind::kElfImageLoaded, .room = {}};
  loaded.image = {device,          0xc000 + device,
                  0xd000 + device, number("image-bytes", static_cast<std::uint32_t>(image().size())),
                  0xe000 + device, 0};
  events.push_back(loaded);
}

api::Result initialize() {
  if (const auto code = enter("initialize")) return code;
  is_ours = get(state.client) == cudbgApiClientPid;  // calls of any other process succeed too, without an effect
  if (!is_ours) return api::kSuccess;
  put(state.waits_for_client, 0);
  put(state.connected, 1);
  for (const auto& suspended : state.suspended) put(suspended, 0);
  if (is("no-context")) return api::kSuccess;
  static int sessions = 0;
  if (sessions++ != 0 || !is("reports-nothing-at-first"))
    for (std::uint32_t device = 0; device < devices(); ++device) add_context(device);
  events.push_back({.kind = api::EventKind::kAttachComplete, .room = {}});
  return api::kSuccess;
}
api::Result finalize() { return enter("finalize"); }
api::Result set_callback(void (*)(void*)) { return enter("setNotifyNewEventCallback"); }
api::Result set_mode(std::uint32_t) { return enter("setKernelLaunchNotificationMode"); }
api::Result next_event(std::uint32_t queue, api::Event* event) {
  if (queue != api::kSyncQueue) return api::kNoEvent;
  if (events.empty()) {
    static std::atomic<int> silent = 0;
    if (silent++ == 0)
      if (const auto code = enter("getNextEvent")) return code;
    return api::kNoEvent;
  }
  if (const auto code = enter("getNextEvent")) return code;
  *event = events.front();
  events.pop_front();
  return api::kSuccess;
}
api::Result acknowledge() { return enter("acknowledgeSyncEvents"); }
api::Result num_sms(std::uint32_t, std::uint32_t* sms) {
  *sms = kSms;
  return enter("getNumSMs");
}
api::Result text_into(const char* call, const char* text, char* into, std::uint32_t size) {
  std::snprintf(into, size, "%s", text);
  return enter(call);
}
api::Result device_name(std::uint32_t, char* into, std::uint32_t size) {
  return text_into("getDeviceName", "NVIDIA Fake", into, size);
}
api::Result sm_type(std::uint32_t, char* into, std::uint32_t size) {
  return text_into("getSmType", "sm_90", into, size);
}
api::Result pci(std::uint32_t device, std::uint32_t* bus, std::uint32_t* slot) {
  *bus = is("same-pci") ? 10 : 10 + device;
  *slot = 0;
  return enter("getDevicePCIBusInfo");
}
api::Result suspend(std::uint32_t device) {
  if (const auto code = enter("suspendDevice")) return code;
  if (get(state.suspended[device]) != 0) return 0x0f;
  put(state.suspended[device], 1);
  return api::kSuccess;
}
api::Result resume(std::uint32_t device) {
  if (const auto code = enter("resumeDevice")) return code;
  put(state.suspended[device], 0);
  return api::kSuccess;
}
// Larger than the known struct, as a newer driver's may be.
constexpr std::uint32_t kMore = 8;
api::Result info_sizes(std::uint32_t, api::DeviceInfoSizes* sizes) {
  *sizes = {};
  sizes->buffer = 64u << 20;
  sizes->device = sizeof(api::DeviceInfo);
  sizes->device_attribute[api::kDeviceActiveSms] = sizes->device_attribute[api::kDeviceExceptionSms] = 24;
  sizes->sm = sizeof(api::SmInfo) + kMore;
  sizes->warp = sizeof(api::WarpInfo) + kMore;
  sizes->warp_attribute[api::kWarpException] = 4;
  sizes->warp_attribute[api::kWarpErrorPc] = 8;
  sizes->lane = sizeof(api::LaneInfo);
  return enter("getDeviceInfoSizes");
}
api::Result device_info(std::uint32_t, std::uint32_t, void* buffer, std::uint32_t size, std::uint32_t* length) {
  if (const auto code = enter("getDeviceInfo")) return code;
  const std::uint32_t warps = number("warps", 8), exception = number("exception", 0);
  Bytes out;
  std::array<std::uint8_t, 24> active{}, excepted{};
  const std::uint32_t used = std::min(kSms, (warps + 63) / 64);
  for (std::uint32_t sm = 0; sm < used; ++sm)
    active[sm / 8] = static_cast<std::uint8_t>(active[sm / 8] | 1u << (sm % 8));
  if (exception != 0) excepted[0] = 1;
  using rankstacks::testing::append_value;
  append_value(out, api::DeviceInfo{0, 1u << api::kDeviceActiveSms | 1u << api::kDeviceExceptionSms});
  append_value(out, active);
  append_value(out, excepted);
  for (std::uint32_t sm = 0, left = warps; sm < used; ++sm) {
    const std::uint32_t here = std::min(left, 64u);
    left -= here;
    append_value(out, api::SmInfo{here == 64 ? ~0ull : (1ull << here) - 1, 0, 0});
    append_value(out, std::uint64_t{0});
    for (std::uint32_t w = 0; w < here; ++w) {
      const bool failed = exception != 0 && sm == 0 && w == 0;
      append_value(out, api::WarpInfo{1,
                                      {sm, 0, 0},
                                      {w * 32, 0, 0},
                                      ~0u,
                                      ~0u,
                                      failed ? 1u << api::kWarpException | 1u << api::kWarpErrorPc : 0u});
      append_value(out, std::uint64_t{0});
      if (failed) {
        append_value(out, exception);
        append_value(out, kCode + 0x20);
      }
      for (int lane = 0; lane < 32; ++lane) append_value(out, api::LaneInfo{kCode + 0x110});
    }
  }
  if (out.size() > size) return 2;
  std::memcpy(buffer, out.data(), out.size());
  *length = static_cast<std::uint32_t>(out.size());
  return api::kSuccess;
}
api::Result grid_info(std::uint32_t device, std::uint64_t id, api::GridInfo* grid) {
  *grid = {};
  *grid = {device,
           id,
           0,
           0xc000ull + device,
           0xd000ull + device,
           1,
           kCode,
           {std::max(1u, number("warps", 8) / 64), 1, 1},
           {64, 1, 1},
           2,
           0,
           0,
           {1, 1, 1}};
  return enter("getGridInfo");
}
api::Result return_addresses(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t* into,
                             std::uint32_t room, std::uint32_t* depth, std::uint32_t* in_driver) {
  if (room > 0) into[0] = kCode + 0x50;
  *depth = 1;
  *in_driver = 0;
  return enter("readAllVirtualReturnAddresses");
}
api::Result sm_exception(std::uint32_t, std::uint32_t, std::uint32_t* code, std::uint64_t* pc, bool* valid) {
  *code = number("exception", 0);
  *pc = kCode + 0x20;
  *valid = true;
  return enter("readSmException");
}
api::Result elf_image(std::uint32_t, std::uint64_t, std::uint32_t, void* into, std::uint64_t size) {
  if (const auto code = enter("getElfImageByHandle")) return code;
  std::memcpy(into, image().data(), std::min<std::size_t>(size, image().size()));
  return api::kSuccess;
}
api::Result generate_core(const char* path, std::uint32_t) {
  if (const auto code = enter("generateCoredump")) return code;
  std::ofstream(path) << "a core";
  return api::kSuccess;
}
api::Result clear_attach_state() {
  if (const auto code = enter("clearAttachState")) return code;
  events.clear();
  return api::kSuccess;
}
api::Result request_cleanup(std::uint32_t) {
  if (const auto code = enter("requestCleanupOnDetach")) return code;
  if (!is("never-detached")) events.push_back({.kind = api::EventKind::kDetachComplete, .room = {}});
  return api::kSuccess;
}
api::Result not_supported() { return api::kNotSupported; }

std::array<void*, 148> table;

}  // namespace

extern "C" {

EXPORTED api::Result cudbgGetAPIVersion(std::uint32_t* major, std::uint32_t* minor, std::uint32_t* revision) {
  *major = 13;
  *minor = 0;
  *revision = 163;
  std::string rest;
  if (scenario("version", rest)) std::istringstream(rest) >> *major >> *minor >> *revision;
  return api::kSuccess;
}

EXPORTED api::Result cudbgGetAPI(std::uint32_t, std::uint32_t, std::uint32_t, void* const** into) {
  table.fill(reinterpret_cast<void*>(&not_supported));
  const auto set = [](api::Slot slot, auto function) {
    table[static_cast<std::size_t>(slot)] = reinterpret_cast<void*>(function);
  };
  set(api::Slot::kInitialize, &initialize);
  set(api::Slot::kFinalize, &finalize);
  set(api::Slot::kSuspendDevice, &suspend);
  set(api::Slot::kResumeDevice, &resume);
  set(api::Slot::kGetSmType, &sm_type);
  set(api::Slot::kGetNumSms, &num_sms);
  set(api::Slot::kSetNotifyNewEventCallback, &set_callback);
  set(api::Slot::kClearAttachState, &clear_attach_state);
  set(api::Slot::kAcknowledgeSyncEvents, &acknowledge);
  set(api::Slot::kSetKernelLaunchNotificationMode, &set_mode);
  set(api::Slot::kGetDevicePciBusInfo, &pci);
  set(api::Slot::kGetNextEvent, &next_event);
  set(api::Slot::kGetElfImageByHandle, &elf_image);
  set(api::Slot::kRequestCleanupOnDetach, &request_cleanup);
  set(api::Slot::kGetDeviceName, &device_name);
  set(api::Slot::kGetGridInfo, &grid_info);
  set(api::Slot::kGenerateCoredump, &generate_core);
  set(api::Slot::kGetDeviceInfoSizes, &info_sizes);
  set(api::Slot::kGetDeviceInfo, &device_info);
  set(api::Slot::kReadAllVirtualReturnAddresses, &return_addresses);
  set(api::Slot::kReadSmException, &sm_exception);
  *into = table.data();
  return enter("cudbgGetAPI");
}

// ---- called in the process that is debugged

EXPORTED void cudbgApiAttach() {
  log("cudbgApiAttach");
  if (const std::uint32_t timeout = number("attach-ms", 0); timeout != 0) {
    const timespec pause{0, static_cast<long>(timeout) * 1'000'000};
    nanosleep(&pause, nullptr);
  }
  if ((cudbgDebuggerCapabilities & 1) == 0) {
    cudbgReportedDriverInternalErrorCode = api::kNotSupported;
    return;
  }
  if (state.refused < number("lock", 0)) {
    state.refused = state.refused + 1;
    cudbgReportedDriverInternalErrorCode = api::kAttachNotPossible;
    return;
  }
  state.client = cudbgApiClientPid;
  state.waits_for_client = 1;
  cudbgResumeForAttachDetach = 3;
}

EXPORTED void cudbgApiDetach() {
  log("cudbgApiDetach");
  state.waits_for_client = 0;
  state.connected = 0;
  for (auto& suspended : state.suspended) suspended = 0;
  state.client = 0;
  cudbgResumeForAttachDetach = 3;
}

static void* handle_events(void* pipe_end) {
  pthread_setname_np(pthread_self(), "cuda-EvtHandlr");
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(pipe_end));
  while (true) {
    pollfd waiting{fd, POLLIN, 0};
    poll(&waiting, 1, -1);
    char byte = 0;
    if (read(fd, &byte, 1) == 1) {
      log("attach by descriptor");
      state.client = cudbgApiClientPid;
      state.waits_for_client = 1;
      cudbgResumeForAttachDetach = 3;
    }
  }
}

EXPORTED void fake_cuda_begin() {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::ofstream(directory() + "target") << getpid() << ' ' << reinterpret_cast<std::uint64_t>(&state) << '\n';
  pthread_t thread;
  pthread_create(&thread, nullptr, &handle_events, reinterpret_cast<void*>(static_cast<std::intptr_t>(ends[0])));
  cudbgAttachHandlerAvailable = is("no-handler") ? 0 : 1;
#ifdef NEW_DRIVER
  cudbgInitiateDebuggerAttachProcedureFd = ends[1];
#endif
}

// Does nothing while its client or its GPU makes it wait, as a call into CUDA would.
EXPORTED void fake_cuda_work() {
  const auto waits = [] {
    for (const auto& suspended : state.suspended)
      if (suspended != 0) return true;
    return state.waits_for_client != 0;
  };
  while (waits()) usleep(1000);
}

// "client capabilities initialized ipc-flag waits"
EXPORTED void fake_cuda_state(std::uint32_t* into) {
  into[0] = cudbgApiClientPid;
  into[1] = cudbgDebuggerCapabilities;
  into[2] = cudbgDebuggerInitialized;
  into[3] = cudbgIpcFlag;
  into[4] = state.waits_for_client;
}
}
