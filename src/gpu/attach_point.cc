#include "gpu/attach_point.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <vector>

#include "elf/image.h"
#include "target/live_target.h"
#include "target/mapping_list.h"
#include "target/proc.h"

// System call numbers that the headers of older C libraries lack (arch/x86/entry/syscalls/syscall_64.tbl).
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace rankstacks::gpu {
namespace {

constexpr std::array<const char*, kWords> kWordNames{"cudbgApiClientPid",
                                                     "cudbgApiClientRevision",
                                                     "cudbgSessionId",
                                                     "cudbgRpcEnabled",
                                                     "cudbgIpcFlag",
                                                     "cudbgDebuggerCapabilities",
                                                     "cudbgDebuggerInitialized",
                                                     "cudbgAttachHandlerAvailable",
                                                     "cudbgResumeForAttachDetach",
                                                     "cudbgReportedDriverInternalErrorCode",
                                                     "cudbgInitiateDebuggerAttachProcedureFd"};
constexpr std::array<const char*, kEntryPoints> kFunctionNames{"cudbgApiAttach", "cudbgApiDetach"};

bool is_driver(const std::string& path) { return path.substr(path.rfind('/') + 1).starts_with("libcuda.so"); }

// Whether this mapping is of that file. /proc/PID/map_files leads to the very inode. If it may not be read, the device
// and inode numbers that the kernel lists identify the file on most file systems; on the others, the path in the
// process's mount namespace does.
bool is_mapped_from(Pid pid, const target::Mapping& mapping, const MachineLibrary& library) {
  const auto is_it = [&](const struct stat& file) {
    return file.st_dev == library.device && file.st_ino == library.inode;
  };
  struct stat mapped {};
  if (stat(fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, mapping.range.start, mapping.range.end).c_str(), &mapped) ==
      0)
    return is_it(mapped);
  if (mapping.device == library.device && mapping.inode == library.inode) return true;
  return !mapping.deleted && stat(fmt::format("/proc/{}/root{}", pid, mapping.path).c_str(), &mapped) == 0 &&
         is_it(mapped);
}

std::string subject_of(Pid pid) { return fmt::format("pid {}", pid); }

Error has_no_driver(Pid pid) {
  return {.code = ErrorCode::kNotFound,
          .subject = subject_of(pid),
          .what = "has no CUDA driver loaded",
          .where = {},
          .os_errno = 0,
          .hint = {}};
}

struct MappedDriver {
  Address start = 0;
  MachineLibrary library;
};

// The driver that the process has mapped, if it is this machine's own.
Result<MappedDriver> mapped_driver(Pid pid, const Machine& machine) {
  auto mappings = target::mappings_in(fmt::format("/proc/{}", pid));
  if (!mappings) return fail(target::attach_error(pid, mappings.error().os_errno));
  std::vector<target::Mapping> drivers = std::move(*mappings);
  std::erase_if(drivers, [](const target::Mapping& m) { return m.file_offset != 0 || !is_driver(m.path); });
  if (drivers.empty()) return fail(has_no_driver(pid));
  auto libraries = find_machine_libraries(kDriverLibrary, machine);
  if (libraries)
    for (const target::Mapping& mapping : drivers)
      for (MachineLibrary& library : *libraries)
        if (is_mapped_from(pid, mapping, library)) return MappedDriver{mapping.range.start, std::move(library)};
  const std::string own = libraries ? fmt::format("is not this machine's ({})", libraries->front().path)
                                    : fmt::format("is not loaded: {}", libraries.error().message());
  return fail({.code = ErrorCode::kMismatch,
               .subject = subject_of(pid),
               .what = fmt::format("its CUDA driver {} {}", drivers.front().path, own),
               .where = {},
               .os_errno = 0,
               .hint = "only the machine's own driver is asked, which a container has from NVIDIA's container "
                       "runtime (docker run --gpus all): not one of the container's image or of a user"});
}

// The address of the file's first byte in its own address space; 0 if no segment says it.
Vaddr first_address(const elf::Image& image) {
  for (const Elf64_Phdr& segment : image.segments())
    if (segment.p_type == PT_LOAD && segment.p_offset == 0) return segment.p_vaddr;
  return 0;
}

// The process that has the pid `inner` in the pid namespace of `pid`; std::nullopt if there is none.
std::optional<Pid> process_in_namespace_of(Pid pid, Pid inner) {
  const auto space = target::proc::read_link(fmt::format("/proc/{}/ns/pid", pid));
  if (!space || space == target::proc::read_link("/proc/self/ns/pid")) return inner;
  for (const Pid other : target::proc::processes()) {
    if (target::proc::read_link(fmt::format("/proc/{}/ns/pid", other)) != space) continue;
    const auto status = target::proc::read_file(fmt::format("/proc/{}/status", other));
    if (!status) continue;
    const auto at = status->find("\nNSpid:");
    if (at == std::string::npos) continue;
    // The last number is the one that the process itself sees.
    const std::string_view line = std::string_view(*status).substr(at + 1, status->find('\n', at + 1) - at - 1);
    const std::string_view word = line.substr(line.find_last_of("\t ") + 1);
    Pid seen = 0;
    if (std::from_chars(word.data(), word.data() + word.size(), seen).ec == std::errc() && seen == inner) return other;
  }
  return std::nullopt;
}

}  // namespace

const char* name_of(Word word) { return kWordNames[static_cast<std::size_t>(word)]; }
const char* name_of(EntryPoint function) { return kFunctionNames[static_cast<std::size_t>(function)]; }

Result<AttachPoint> AttachPoint::find(const target::ProcessId& process, const Machine& machine) {
  const Pid pid = process.pid;
  auto driver = mapped_driver(pid, machine);
  if (!driver) return fail(driver.error());
  AttachPoint point;
  point.process_ = process;
  point.mapped_at_ = driver->start;
  point.driver_ = std::move(driver->library);
  const auto image = elf::Image::open(fmt::format("/proc/self/fd/{}", point.driver_.file.get()), point.driver_.path);
  if (!image) return fail(image.error());
  const Vaddr first = first_address(**image);
  const auto locate = [&](const auto& names, auto& addresses) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (const auto symbol = (*image)->find_exported(names[i]))
        addresses[i] = point.mapped_at_ - first + symbol->value;
  };
  locate(kWordNames, point.words_);
  locate(kFunctionNames, point.functions_);
  const auto has = [&](Word word) { return point.words_[static_cast<std::size_t>(word)].has_value(); };
  if (!has(Word::kAttachHandlerAvailable) || !has(Word::kApiClientPid)) return fail(has_no_driver(pid));
  point.memory_ = FileDescriptor(::open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDWR | O_CLOEXEC));
  if (!point.memory_.is_open()) return fail(target::attach_error(pid, errno));
  // What was opened is the memory of whatever process had this pid at that moment.
  if (auto same = process.check(); !same) return fail(same.error());
  return point;
}

bool AttachPoint::is_still_mapped() const {
  const auto mappings = target::mappings_in(fmt::format("/proc/{}", pid()));
  if (!mappings) return false;
  for (const target::Mapping& mapping : *mappings)
    if (mapping.range.start == mapped_at_ && mapping.file_offset == 0)
      return is_mapped_from(pid(), mapping, driver_) && process_.check().has_value();
  return false;
}

std::optional<Address> AttachPoint::address(EntryPoint function) const {
  return functions_[static_cast<std::size_t>(function)];
}

Result<std::optional<std::uint32_t>> AttachPoint::read(Word word) const {
  const auto at = words_[static_cast<std::size_t>(word)];
  if (!at) return std::nullopt;
  std::uint32_t value = 0;
  const ssize_t n = pread(memory_.get(), &value, sizeof value, static_cast<off_t>(*at));
  if (n != static_cast<ssize_t>(sizeof value)) return fail(target::attach_error(pid(), n < 0 ? errno : ESRCH));
  return value;
}

Result<bool> AttachPoint::write(Word word, std::uint32_t value) const {
  const auto at = words_[static_cast<std::size_t>(word)];
  if (!at) return false;
  const ssize_t n = pwrite(memory_.get(), &value, sizeof value, static_cast<off_t>(*at));
  if (n != static_cast<ssize_t>(sizeof value)) return fail(target::attach_error(pid(), n < 0 ? errno : ESRCH));
  return true;
}

Result<std::optional<int>> AttachPoint::attach_descriptor() const {
  const auto value = read(Word::kInitiateDebuggerAttachProcedureFd);
  if (!value) return fail(value.error());
  if (!*value || static_cast<int>(**value) < 0) return std::nullopt;
  return static_cast<int>(**value);
}

Result<bool> AttachPoint::ask_by_descriptor() const {
  const auto number = attach_descriptor();
  if (!number) return fail(number.error());
  if (!*number) return false;
  const std::string subject = fmt::format("pid {} descriptor {}", pid(), **number);
  const auto refuse = [&](ErrorCode code, std::string what, int os_errno = 0, std::string hint = "") {
    return fail({.code = code,
                 .subject = subject,
                 .what = std::move(what),
                 .where = {},
                 .os_errno = os_errno,
                 .hint = std::move(hint)});
  };
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid(), 0)));
  if (!process.is_open())
    return refuse(ErrorCode::kUnsupported, "the driver cannot be asked to let a debugger in", errno,
                  "this needs Linux 5.6");
  if (auto same = process_.check(); !same) return fail(same.error());
  const FileDescriptor pipe(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), **number, 0)));
  if (!pipe.is_open())
    return refuse(ErrorCode::kPermission, "the driver cannot be asked to let a debugger in", errno,
                  errno == ENOSYS ? "this needs Linux 5.6" : "");
  if (!is_still_mapped()) return fail(target::attach_error(pid(), ESRCH));
  struct stat file {};
  const int flags = fcntl(pipe.get(), F_GETFL);
  const bool writes = flags >= 0 && (flags & O_PATH) == 0 && (flags & O_ACCMODE) != O_RDONLY;
  if (fstat(pipe.get(), &file) != 0 || !S_ISFIFO(file.st_mode) || !writes)
    return refuse(ErrorCode::kMismatch,
                  "the driver cannot be asked to let a debugger in: this is not the writing end of a pipe");
  // The file description is shared with the process: it is not made non-blocking, and is written to only if there is
  // room.
  pollfd ready{pipe.get(), POLLOUT, 0};
  const char any = 1;
  if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0)
    return refuse(ErrorCode::kTimeout,
                  "the driver cannot be asked to let a debugger in: its pipe is full, or nobody reads it");
  if (::write(pipe.get(), &any, 1) != 1)
    return refuse(ErrorCode::kUnreadable, "the driver cannot be asked to let a debugger in", errno);
  return true;
}

bool AttachPoint::lock() const { return flock(memory_.get(), LOCK_EX | LOCK_NB) == 0; }

Result<Admission> admission_to(const AttachPoint& point) {
  const auto available = point.read(Word::kAttachHandlerAvailable);
  if (!available) return fail(available.error());
  const std::string subject = subject_of(point.pid());
  if (available->value_or(0) == 0) {
    return Admission{.refusal = Error{.code = ErrorCode::kUnsupported,
                                      .subject = subject,
                                      .what = "its CUDA driver takes no debugger: it has no context yet, or a debugger "
                                              "was excluded at its start"},
                     .left_by = {}};
  }
  const auto capabilities = point.read(Word::kDebuggerCapabilities);
  if (!capabilities) return fail(capabilities.error());
  const auto client = point.read(Word::kApiClientPid);
  if (!client) return fail(client.error());
  if (capabilities->value_or(0) == 0 || client->value_or(0) == 0) return Admission{};
  const Pid inner = static_cast<Pid>(**client);
  const auto other = process_in_namespace_of(point.pid(), inner);
  const auto stat = other ? target::proc::stat_of(*other) : std::nullopt;
  if (!stat || stat->state == 'Z' || stat->state == 'X') return Admission{.refusal = {}, .left_by = inner};
  return Admission{.refusal = Error{.code = ErrorCode::kPermission,
                                    .subject = subject,
                                    .what = fmt::format("a GPU debugger is attached: pid {} ({})", *other, stat->name),
                                    .hint = "end that debugger; a process takes one at a time"},
                   .left_by = {}};
}

}  // namespace rankstacks::gpu
