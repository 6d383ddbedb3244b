#include "target/live_target.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/unattended.h"
#include "target/mapping_list.h"
#include "target/module_list.h"

namespace rankstacks::target {
namespace {

// The time limit for opening a file that was mapped after the process was prepared: the names in it are not worth a
// longer wait.
constexpr std::chrono::seconds kLongestOpening{2};

// Whether the process runs a 32-bit program, according to the auxiliary vector: the size of a program header. The
// kernel has a copy of its own, so neither the file nor the process's memory is touched. False if it cannot be read.
bool runs_32_bit(const std::string& task_dir) {
  const auto vector = proc::read_file(task_dir + "/auxv");
  if (!vector) return false;
  std::array<std::uint32_t, 2> entry{};
  for (std::size_t at = 0; at + sizeof entry <= vector->size(); at += sizeof entry) {
    std::memcpy(&entry, vector->data() + at, sizeof entry);
    if (entry[0] == AT_PHENT && entry[1] == sizeof(Elf32_Phdr)) return true;
    if (entry[0] == AT_PHENT && entry[1] == 0) return false;  // that of a 64-bit program: the upper half of a number
  }
  return false;
}

}  // namespace

LiveTarget::LiveTarget(Pid pid, LiveImages images)
    : pid_(pid), images_(std::move(images)), subject_(fmt::format("pid {}", pid)), process_{.memory_tid = pid} {}

std::string LiveTarget::task_dir() const { return fmt::format("/proc/{}/task/{}", pid_, process_.memory_tid); }

Result<std::unique_ptr<LiveTarget>> LiveTarget::prepare(Pid pid, const LiveImages& images) {
  auto target = look_at(pid, images);
  if (!target) return target;
  LiveImages opener = images;
  for (const FileMappings* file : (*target)->unopened_files())
    if (auto problem = opener.open((*target)->to_open(*file))) (*target)->add_problem(std::move(*problem));
  (*target)->add_modules();
  return target;
}

Result<std::unique_ptr<LiveTarget>> LiveTarget::look_at(Pid pid, const LiveImages& images) {
  std::unique_ptr<LiveTarget> target(new LiveTarget(pid, images));
  const auto stat = proc::stat_of(pid);
  if (!stat) return fail(attach_error(pid, ESRCH));
  if (stat->kernel_thread()) return fail(attach_error(pid, 0));
  target->process_.start_ticks = stat->start_ticks;
  target->process_.program = *stat;
  if (stat->state == 'Z' || stat->state == 'X') {
    // The main thread may have ended before the others (pthread_exit). The process then continues, and is inspected
    // through them.
    const auto tasks = proc::tasks_of(pid);
    const auto alive = std::find_if(tasks.begin(), tasks.end(), [&](Tid t) {
      const auto s = proc::stat_of(pid, t);
      return s && s->state != 'Z' && s->state != 'X';
    });
    if (alive == tasks.end()) return fail(attach_error(pid, 0));
    target->process_.memory_tid = *alive;
    target->process_.program = proc::stat_of(pid, *alive).value_or(*stat);
  }
  if (runs_32_bit(target->task_dir())) {
    return fail({.code = ErrorCode::kUnsupported,
                 .subject = target->subject_,
                 .what = "a 32-bit process",
                 .hint = "only 64-bit x86-64 processes are read; use gdb for this one"});
  }
  if (auto read = target->read_mappings(); !read) return fail(read.error());
  target->process_.executable = proc::read_link(target->task_dir() + "/exe").value_or("");
  constexpr std::string_view kDeleted = " (deleted)";
  if (target->process_.executable.ends_with(kDeleted))
    target->process_.executable.resize(target->process_.executable.size() - kDeleted.size());
  if (auto command = proc::read_file(target->task_dir() + "/cmdline"))
    target->process_.command = proc::split_nul(*command);
  return target;
}

std::unique_ptr<LiveTarget> LiveTarget::again() const {
  std::unique_ptr<LiveTarget> target(new LiveTarget(pid_, images_));
  target->process_ = process_;
  target->stops_ = stops_;
  return target;
}

Result<void> LiveTarget::read_mappings() {
  auto mappings = mappings_in(task_dir());
  if (!mappings) return fail(attach_error(pid_, mappings.error().os_errno));
  process_.mappings = std::move(*mappings);
  process_.files = group_mappings(process_.mappings);
  return {};
}

std::vector<const FileMappings*> LiveTarget::unopened_files() const { return images_.unknown_among(process_.files); }

FileToOpen LiveTarget::to_open(const FileMappings& file) const { return {pid_, process_.memory_tid, file}; }

// For mappings that were made after the process was prepared; called once it runs again.
void LiveTarget::open_new_files() {
  process_.files = group_mappings(process_.mappings);
  for (const FileMappings* const mapped : unopened_files()) {
    const FileToOpen file = to_open(*mapped);
    const auto problem = unattended<std::optional<Problem>>(
        [images = images_, file]() mutable { return images.open(file, Deadline::after(kLongestOpening)); },
        Unattended::beyond(kLongestOpening));
    if (!problem) images_.give_up(file);
    else if (*problem) process_.problems.push_back(**problem);
  }
}

void LiveTarget::add_modules() {
  memory_.open(process_.memory_tid);
  make_modules();
}

void LiveTarget::make_modules() {
  process_.silent_files.clear();
  std::vector<Module> modules;
  for (const FileMappings& file : process_.files) modules.push_back(make_module(file));
  for (const Mapping& m : process_.mappings) {
    if (m.path != "[vdso]") continue;
    Module vdso{.path = m.path, .range = m.range};
    std::vector<std::byte> bytes(m.range.size());
    if (proc::read_memory(process_.memory_tid, m.range.start, bytes)) {
      if (auto image = elf::Image::from_bytes(std::move(bytes), "[vdso]")) {
        vdso.image = *image;
        vdso.build_id = (*image)->build_id();
        vdso.bias = load_bias(**image, {m.path, m.range, {m}}).value_or(m.range.start);
      }
    }
    modules.push_back(std::move(vdso));
  }
  process_.modules = ModuleMap(std::move(modules));
  process_.modules_fit = true;
}

Module LiveTarget::make_module(const FileMappings& file) {
  const Mapping& first = file.parts.front();
  Module module{.path = file.path, .range = file.range};
  const LiveImages::Opened opened = images_.find_or(first.device, first.inode, [&]() -> LiveImages::Opened {
    return fail(
        {.code = ErrorCode::kGone, .subject = file.path, .what = "it was not opened: its process ended meanwhile"});
  });
  if (!opened) {
    module.why_no_image = opened.error().message();
    if (opened.error().code == ErrorCode::kTimeout) process_.silent_files.push_back(file.path);
    return module;
  }
  const auto bias = load_bias(**opened, file);
  if (!bias) {
    module.why_no_image = fmt::format("{}: its program headers do not fit the way it is mapped", file.path);
    return module;
  }
  module.image = *opened;
  module.bias = *bias;
  module.build_id = (*opened)->build_id();
  return module;
}

std::vector<Problem> LiveTarget::damage() const {
  std::vector<Problem> problems;
  if (unreadable_) problems.push_back(*unreadable_);
  if (!process_.silent_files.empty()) {
    const std::string others = process_.silent_files.size() == 1
                                   ? ""
                                   : fmt::format(" and {} more of its files", process_.silent_files.size() - 1);
    problems.push_back(
        {fmt::format("{}{} did not answer in time: functions in there have no names, and callers may be missing",
                     process_.silent_files.front(), others),
         "the server of that file system (NFS, FUSE) is gone or slow: `stat` on the file waits as well; give it more "
         "time with --timeout",
         ProblemCode::kTimeout});
  }
  return problems;
}

void LiveTarget::read_threads() {
  threads_.clear();
  for (const Tid tid : proc::tasks_of(pid_)) {
    const auto stat = proc::stat_of(pid_, tid);
    if (!stat) continue;
    threads_.push_back({.tid = tid, .name = stat->name, .state = stat->state, .cpu_ms = stat->cpu_ms});
  }
}

// Of the kernel's state, a frozen thread is in S or D, as if it waited for something. The process is read by then.
void LiveTarget::mark_frozen() {
  if (!freeze_ || !freeze_->is_complete) return;
  for (ThreadInfo& thread : threads_)
    if (thread.state != 'Z' && thread.state != 'X' && has_groups_of(pid_, thread.tid, process_.memory_tid))
      thread.state = 'F';
}

const Mapping* LiveTarget::mapping_of(Address a) const {
  auto it = std::upper_bound(process_.mappings.begin(), process_.mappings.end(), a,
                             [](Address x, const Mapping& m) { return x < m.range.start; });
  if (it == process_.mappings.begin()) return nullptr;
  --it;
  return it->range.contains(a) ? &*it : nullptr;
}

std::size_t LiveTarget::read(Address address, std::span<std::byte> into) const noexcept {
  std::size_t done = 0;
  while (done < into.size()) {
    const Address a = address + done;
    // Memory that never changes comes from the file: segments that are not writable. (Relocated read-only data is in a
    // writable segment.)
    if (const Module* module = process_.modules_fit ? process_.modules.find(a) : nullptr;
        module != nullptr && module->image) {
      const Vaddr v = module->to_vaddr(a);
      if (const Elf64_Phdr* segment = module->image->load_of(v); segment != nullptr && (segment->p_flags & PF_W) == 0) {
        const auto bytes = module->image->at(v);
        if (!bytes.empty()) {
          const std::size_t n = std::min(bytes.size(), into.size() - done);
          memory_.copy_from_file(bytes.first(n), into.data() + done);
          done += n;
          continue;
        }
      }
    }
    const std::size_t n =
        memory_.read(a, into.subspan(done, std::min<std::size_t>(into.size() - done, 4096 - (a & 4095))));
    if (n == 0) break;
    done += n;
  }
  record(address, done);
  return done;
}

void LiveTarget::prefetch(std::span<const Range> ranges) const noexcept { memory_.fetch_pages(ranges); }

}  // namespace rankstacks::target
