#include "target/core_target.h"

#include <elf.h>
#include <algorithm>
#include <cstring>

#include "target/core_file.h"
#include "target/core_images.h"
#include "target/core_modules.h"
#include "target/core_notes.h"
#include "target/environment_block.h"
#include "target/gcore_gaps.h"
#include "target/initial_block.h"

namespace rankstacks::target {
namespace {

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

}  // namespace

struct CoreTarget::Impl {
  std::string subject;
  std::unique_ptr<CoreFile> file;
  CoreNotes notes;
  std::vector<Mapping> mappings;
  std::vector<FileBackedRange> file_backed;
  ModuleMap modules;
  std::string executable;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  Pid pid = 0;
  std::vector<Problem> problems;
  std::vector<MissingFile> missing_files;
  std::vector<Tid> lost_stacks;
  bool partial = false;

  // The segment of the main thread's stack: the one with the strings that the kernel put at its top, else the one of
  // its stack pointer.
  const CoreSegment* main_stack() const {
    for (const std::uint64_t type : {AT_EXECFN, AT_RANDOM, AT_PLATFORM}) {
      const auto address = value_of(notes.auxv, type);
      const CoreSegment* segment = address ? file->find(*address) : nullptr;
      if (segment != nullptr) return segment;
    }
    for (const ThreadInfo& thread : notes.threads) {
      if (notes.pid && thread.tid == *notes.pid && thread.registers) return file->find(thread.registers->sp());
    }
    return nullptr;
  }

  void name_stack(const CoreSegment& stack) {
    const auto it = std::find_if(mappings.begin(), mappings.end(),
                                 [&](const Mapping& m) { return m.range.contains(stack.range.start); });
    if (it != mappings.end() && it->path.empty()) it->path = "[stack]";
  }

  void find_executable() {
    for (const std::uint64_t type : {AT_PHDR, AT_ENTRY}) {
      const auto address = value_of(notes.auxv, type);
      for (const Mapping& m : mappings) {
        if (address && m.range.contains(*address) && m.path.starts_with('/')) {
          executable = m.path;
          return;
        }
      }
    }
    executable = notes.name;
  }

  // The pid from NT_PRPSINFO, else the thread that runs on the main stack, else the first thread.
  void find_pid(const CoreSegment* stack) {
    if (notes.pid) {
      pid = *notes.pid;
      return;
    }
    if (notes.threads.empty()) return;
    pid = notes.threads.front().tid;
    for (const ThreadInfo& thread : notes.threads) {
      if (stack != nullptr && thread.registers && stack->range.contains(thread.registers->sp())) pid = thread.tid;
    }
  }

  const FileBackedRange* file_backed_at(Address a) const noexcept {
    auto it = std::upper_bound(file_backed.begin(), file_backed.end(), a,
                               [](Address x, const FileBackedRange& r) { return x < r.range.start; });
    if (it == file_backed.begin()) return nullptr;
    --it;
    return a - it->range.start < it->bytes.size() ? &*it : nullptr;
  }
};

CoreTarget::CoreTarget(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CoreTarget::~CoreTarget() = default;

Result<std::unique_ptr<CoreTarget>> CoreTarget::open(const std::string& path, const CoreOptions& options,
                                                     elf::ImageCache& images, const Deadline& deadline) {
  auto file = CoreFile::open(path, deadline, options.memory);
  if (!file) return fail(file.error());
  auto impl = std::make_unique<Impl>();
  impl->subject = path;
  impl->file = std::move(*file);
  impl->problems = impl->file->problems();
  impl->notes = parse_notes(impl->file->notes());
  impl->problems.insert(impl->problems.end(), impl->notes.problems.begin(), impl->notes.problems.end());
  impl->partial = !impl->file->is_complete() || !impl->notes.problems.empty();
  GcoreGaps gaps = drop_gcore_gaps(*impl->file, impl->notes.threads);
  if (auto problem = describe(gaps)) {
    impl->problems.push_back(std::move(*problem));
    impl->partial = true;
  }
  impl->lost_stacks = std::move(gaps.threads);
  if (impl->notes.threads.empty()) {
    impl->problems.push_back({"no thread's registers (NT_PRSTATUS) are in it",
                              "its memory alone shows no stack; take the core again", ProblemCode::kIncomplete});
    impl->partial = true;
  }
  if (!impl->notes.has_files && !impl->notes.threads.empty()) {
    impl->problems.push_back({"it does not say which files were mapped (no NT_FILE): no module is known",
                              "cores of Linux 3.7 and later have it, unless the process had more mappings than "
                              "core_file_note_size_limit allows",
                              ProblemCode::kIncomplete});
    impl->partial = true;
  }
  CoreImages finder(options, images);
  CoreModules found = find_core_modules(*impl->file, impl->notes, finder, deadline);
  impl->partial = impl->partial || found.gave_up;
  impl->mappings = std::move(found.mappings);
  impl->file_backed = std::move(found.file_backed);
  impl->modules = ModuleMap(std::move(found.modules));
  impl->missing_files = std::move(found.missing);
  impl->problems.insert(impl->problems.end(), found.problems.begin(), found.problems.end());

  const CoreSegment* stack = impl->main_stack();
  impl->find_executable();
  impl->find_pid(stack);
  if (stack != nullptr) {
    impl->name_stack(*stack);
    // The kernel lets it have 6 MiB (Linux fs/exec.c, bprm_stack_limits).
    constexpr std::uint64_t kMaxBlock = 8u << 20;
    const std::uint64_t size = stack->bytes.size();
    const Address from = stack->range.start + (size > kMaxBlock ? size - kMaxBlock : 0);
    InitialBlock block = read_initial_block(impl->file->view(from, kMaxBlock), from, impl->notes.auxv);
    impl->command = std::move(block.command);
    impl->environment = std::move(block.environment);
  }
  if (impl->command.empty()) impl->command = split_words(impl->notes.arguments);

  std::unique_ptr<CoreTarget> target(new CoreTarget(std::move(impl)));
  if (const auto variable = find_environ_variable(target->modules())) {
    for (auto& [name, value] : read_current_environment(*target, *variable)) target->impl_->environment[name] = value;
  }
  return target;
}

const std::string& CoreTarget::subject() const { return impl_->subject; }
std::span<const ThreadInfo> CoreTarget::threads() const { return impl_->notes.threads; }
std::span<const Mapping> CoreTarget::mappings() const { return impl_->mappings; }
const ModuleMap& CoreTarget::modules() const { return impl_->modules; }
Pid CoreTarget::pid() const { return impl_->pid; }
std::optional<Pid> CoreTarget::parent() const { return impl_->notes.parent; }
std::optional<std::uint32_t> CoreTarget::user() const { return impl_->notes.user; }
const std::optional<SignalInfo>& CoreTarget::signal() const { return impl_->notes.signal; }
const std::string& CoreTarget::executable() const { return impl_->executable; }
const std::vector<std::string>& CoreTarget::command() const { return impl_->command; }
const std::map<std::string, std::string>& CoreTarget::environment() const { return impl_->environment; }
std::optional<std::uint64_t> CoreTarget::auxv(std::uint64_t type) const { return value_of(impl_->notes.auxv, type); }
const std::vector<Problem>& CoreTarget::problems() const { return impl_->problems; }
const std::vector<MissingFile>& CoreTarget::missing_files() const { return impl_->missing_files; }
std::span<const Tid> CoreTarget::lost_stacks() const { return impl_->lost_stacks; }
bool CoreTarget::partial() const { return impl_->partial; }
const CoreFile& CoreTarget::file() const { return *impl_->file; }
const OwnNotes& CoreTarget::own_notes() const { return impl_->notes.own; }
const AuxiliaryVector& CoreTarget::auxiliary_vector() const { return impl_->notes.auxv; }

std::vector<Problem> CoreTarget::damage() const {
  std::vector<Problem> problems;
  if (impl_->file->is_damaged_since())
    problems.push_back({"the core became shorter, or its disk failed, while it was read: stacks may end early",
                        "open it again when nothing writes to it"});
  if (auto shortage = impl_->file->shortage()) problems.push_back(std::move(*shortage));
  return problems;
}

std::size_t CoreTarget::read(Address address, std::span<std::byte> into) const noexcept {
  std::size_t done = 0;
  while (done < into.size()) {
    done += impl_->file->read(address + done, into.subspan(done));
    if (done == into.size()) break;
    // Only up to the next byte that the core has itself: that one may differ from the file's.
    const FileBackedRange* backing = impl_->file_backed_at(address + done);
    if (backing == nullptr) break;
    const std::size_t skip = address + done - backing->range.start;
    const std::size_t n = std::min(into.size() - done, backing->bytes.size() - skip);
    const CoreSegment* segment = impl_->file->find(address + done);
    const Address next = segment != nullptr ? segment->range.end : impl_->file->next_segment(address + done);
    const std::size_t until = std::min<std::uint64_t>(n, next - (address + done));
    std::memcpy(into.data() + done, backing->bytes.data() + skip, until);
    done += until;
  }
  record(address, done);
  return done;
}

}  // namespace rankstacks::target
