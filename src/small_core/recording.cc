#include "small_core/recording.h"

#include <elf.h>
#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/unattended.h"
#include "small_core/changed_files.h"
#include "small_core/debugger_reads.h"
#include "small_core/interpreter_note.h"
#include "small_core/live_notes.h"
#include "small_core/loader_list.h"
#include "small_core/stack_note.h"
#include "small_core/stack_ranges.h"
#include "target/proc.h"

namespace rankstacks::small_core {
namespace {

constexpr std::uint64_t kPage = target::ReadPages::kPage;

std::uint32_t flags_of(const target::Mapping& m) {
  return (m.readable ? PF_R : 0u) | (m.writable ? PF_W : 0u) | (m.executable ? PF_X : 0u);
}

// Copies ranges of a target's memory as pieces: as much as can be read of them, cut where one mapping ends.
class Copier {
 public:
  Copier(const target::Target& target, std::uint64_t most, std::vector<Piece>& pieces)
      : target_(target), left_(most), pieces_(pieces) {}

  // Of a page perhaps only a part can be read, which may begin anywhere in it: of a live process's stack the first page
  // was copied from below the stack pointer on.
  void copy(const Range& range) {
    for (Address at = range.start; at < range.end;) {
      const Address page_end = std::min(range.end, (at & ~(kPage - 1)) + kPage);
      const Address end = std::min(mapping_end(at), page_end);
      const std::size_t n = std::min<std::uint64_t>(target_.read(at, std::span(page_).first(end - at)), left_);
      if (n > 0) append(at, std::span(page_).first(n));
      left_out_ += left_ == 0 ? end - at : 0;
      left_ -= n;
      at = n == end - at ? end : (at + n + kGrain) & ~(kGrain - 1);
    }
  }

  std::uint64_t left_out() const { return left_out_; }

 private:
  static constexpr std::uint64_t kGrain = 16;

  Address mapping_end(Address a) {
    const auto mappings = target_.mappings();
    const auto after = std::upper_bound(mappings.begin(), mappings.end(), a,
                                        [](Address x, const target::Mapping& m) { return x < m.range.start; });
    const bool inside = after != mappings.begin() && std::prev(after)->range.contains(a);
    flags_ = inside ? flags_of(*std::prev(after)) : PF_R;
    if (inside) return std::prev(after)->range.end;
    return after != mappings.end() ? after->range.start : ~Address{0};
  }

  void append(Address at, std::span<const std::byte> bytes) {
    const bool follows =
        !pieces_.empty() && pieces_.back().start + pieces_.back().bytes.size() == at && pieces_.back().flags == flags_;
    if (!follows) pieces_.push_back({at, flags_, {}});
    pieces_.back().bytes.insert(pieces_.back().bytes.end(), bytes.begin(), bytes.end());
  }

  const target::Target& target_;
  std::uint64_t left_, left_out_ = 0;
  std::uint32_t flags_ = PF_R;
  std::vector<Piece>& pieces_;
  std::vector<std::byte> page_ = std::vector<std::byte>(kPage);
};

// Where the dynamic linker's list is, while the process runs. Its memory may not answer.
std::vector<Range> loader_pages_now(Pid pid, const target::AuxiliaryVector& auxv) {
  constexpr std::chrono::seconds kLongest{2};
  const auto pages = unattended<std::vector<Range>>(
      [pid, auxv] {
        target::ReadPages read;
        read_loader_list(
            [&](Address at, std::span<std::byte> into) {
              if (!target::proc::read_memory(pid, at, into)) return false;
              read.add(at, into.size());
              return true;
            },
            auxv);
        return read.ranges();
      },
      kLongest);
  return pages.value_or(std::vector<Range>());
}

// Stacks and other pages were copied one after the other.
void join_neighbours(std::vector<Piece>& pieces) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (kept > 0 && pieces[kept - 1].start + pieces[kept - 1].bytes.size() == pieces[i].start &&
        pieces[kept - 1].flags == pieces[i].flags) {
      auto& bytes = pieces[kept - 1].bytes;
      bytes.insert(bytes.end(), pieces[i].bytes.begin(), pieces[i].bytes.end());
    } else {
      if (kept != i) pieces[kept] = std::move(pieces[i]);
      ++kept;
    }
  }
  pieces.resize(kept);
}

}  // namespace

Recording::Recording(target::Target& target, target::AuxiliaryVector auxv) : target_(target), auxv_(std::move(auxv)) {
  target_.record_reads(&pages_);
}

std::unique_ptr<Recording> Recording::of(target::LiveTarget& target, std::map<std::string, std::string> environment) {
  std::unique_ptr<Recording> recording(new Recording(target, auxiliary_vector_of(target.pid())));
  recording->expected_ = loader_pages_now(target.pid(), recording->auxv_);
  const auto parts = changeable_parts(target.modules());
  recording->expected_.insert(recording->expected_.end(), parts.begin(), parts.end());
  std::size_t more = 0;
  for (const Range& range : recording->expected_) more += range.size() + kPage;
  target.keep_raw_threads(more);
  recording->live_ = &target;
  recording->kept_.pid = target.pid();
  recording->kept_.environment = std::move(environment);
  recording->kept_.command = target.command();
  return recording;
}

std::unique_ptr<Recording> Recording::of(target::CoreTarget& target) {
  std::unique_ptr<Recording> recording(new Recording(target, target.auxiliary_vector()));
  recording->kept_.pid = target.pid();
  recording->kept_.path = target.subject();
  recording->kept_.environment = target.environment();
  recording->kept_.command = target.command();
  recording->expected_ = changeable_parts(target.modules());
  recording->files_ = target.own_notes().files;
  for (const target::CoreNoteSegment& segment : target.file().notes())
    append_foreign_notes(recording->kept_.notes, segment.bytes);
  return recording;
}

void Recording::read_more(const target::Target& target) { read_process_memory(target, auxv_, expected_); }

void Recording::add_interpreters(std::span<const python::RuntimeCandidate> candidates) {
  kept_.interpreters = write_interpreters(candidates);
}

void Recording::keep(std::span<const unwind::UnwoundStack> stacks, std::uint64_t most) {
  read_module_headers(target_);
  target_.record_reads(nullptr);
  kept_.mappings.clear();
  kept_.pieces.clear();
  if (live_ != nullptr) kept_.notes = notes_of(*live_, auxv_);
  kept_.notes = without_changed_files(kept_.notes, target_, files_);
  kept_.files = target::files_note(files_);
  for (const target::Mapping& m : target_.mappings()) kept_.mappings.push_back({m.range, flags_of(m)});
  kept_.stacks = write_stacks(target_.threads(), stacks);
  target::ReadPages of_stacks;
  for (const Range& range : stack_ranges(target_, stacks)) of_stacks.add(range.start, range.size());
  Copier copier(target_, most, kept_.pieces);
  for (const Range& range : of_stacks.ranges()) copier.copy(range);
  for (const Range& range : pages_.ranges_without(of_stacks)) copier.copy(range);
  kept_.left_out = copier.left_out();
  std::sort(kept_.pieces.begin(), kept_.pieces.end(), [](const Piece& a, const Piece& b) { return a.start < b.start; });
  join_neighbours(kept_.pieces);
}

}  // namespace rankstacks::small_core
