#include "python/frames.h"

#include <fmt/format.h>
#include <utility>

namespace rankstacks::python {
namespace {

// From 3.11 frames are stored one after another in "data stack" chunks, callers at lower addresses than their callees:
// the memory fetched below a frame contains the next ones. Up to 3.10 each frame is an object of its own.
constexpr Address kFetchBelow = 8192;

// From 3.12, owners from this value on (FRAME_OWNED_BY_CSTACK in 3.12 and 3.13, FRAME_OWNED_BY_INTERPRETER and up in
// 3.14) mark frames that run no Python code: the shim that each call of the eval loop keeps on the C stack.
constexpr std::uint8_t kOwnerShim = 3;

constexpr Address kStackRefTags = 3;  // 3.14+: low bits of a _PyStackRef
constexpr Address kPointerAlignment = 8;

// The eval loop's calls, from the chain of CFrame / _PyCFrame: all but the outermost one, which is in the thread state
// itself.
struct CFrame {
  Address address = 0;
  Address current_frame = 0;  // 3.11, 3.12
};

// The number of frames and C frames that all walkers together may still read.
struct Budget {
  std::size_t frames = kMaxFramesInAll;
  std::size_t cframes = kMaxFramesInAll;
};

std::vector<CFrame> read_cframes(const target::Target& target, const Layout& layout, Address first, Address root,
                                 Budget& budget) {
  std::vector<CFrame> found;
  std::unordered_set<Address> seen;
  const std::size_t size = span_of({layout.cframe_previous, layout.cframe_current_frame});
  StructCopy copy;
  Address at = first;
  while (at != root && at % kPointerAlignment == 0 && found.size() < kMaxFramesPerThread && budget.cframes > 0 &&
         seen.insert(at).second) {
    --budget.cframes;
    if (!copy.read(target, at, size)) break;
    found.push_back({at, copy.get<Address>(layout.cframe_current_frame)});
    at = copy.get<Address>(layout.cframe_previous);
  }
  // The outermost CFrame is recognised by its address: 3.10 leaves its `previous` uninitialised. A chain that does not
  // end there is damaged; dropping it misplaces no frames.
  if (at != root) return {};
  return found;
}

class Walker {
 public:
  Walker(const target::Target& target, const Layout& layout, const ChainStart& start, Budget& budget)
      : target_(target),
        layout_(layout),
        budget_(budget),
        has_runs_by_frame_(layout.frame_owner == kAbsent),
        next_(start.frame) {
    size_ = span_of({layout.frame_previous, layout.frame_code, layout.frame_instruction, layout.frame_executing,
                     layout.frame_owner, layout.frame_is_entry, layout.frame_tlbc_index});
    if (start.cframe == 0) return;
    cframes_ = read_cframes(target, layout, start.cframe, start.thread_state + layout.thread_root_cframe, budget);
    if (layout.thread_frame == kAbsent) {
      first_cframe_ = start.cframe;
      next_ = target.read_value<Address>(start.cframe + layout.cframe_current_frame).value_or(0);
    }
  }

  bool done() const { return done_; }
  const Chain& chain() const { return chain_; }
  Chain take() { return std::move(chain_); }

  // The range of memory that the next steps need.
  Range wanted() {
    const Address end = next_ > ~Address{0} - size_ ? ~Address{0} : next_ + size_;
    window_ = {has_runs_by_frame_ || next_ < kFetchBelow ? next_ : next_ - kFetchBelow, end};
    return window_;
  }

  // Walks on until the chain leaves what was fetched.
  void advance() {
    if (first_cframe_ != 0) begin_at_cframe();
    while (!done_) {
      if (next_ == 0) return finish();
      if (next_ > ~Address{0} - size_) return end_damaged(fmt::format("a frame pointer is {:#x}", next_));
      if (next_ < window_.start || next_ + size_ > window_.end) return;
      step();
    }
  }

 private:
  // 3.11, 3.12: the innermost _PyCFrame points to the innermost frame. Between linking a new _PyCFrame and filling it
  // in, the eval loop executes a few instructions, during which that field has whatever the stack held before.
  void begin_at_cframe() {
    const Address first = std::exchange(first_cframe_, 0);
    if (!target_.read_value<Address>(first + layout_.cframe_current_frame)) {
      return end_damaged(fmt::format("the C frame at {:#x} cannot be read", first));
    }
    if (cframes_.empty()) return;
    const Address previous = cframes_.size() > 1 ? cframes_[1].current_frame : 0;
    if (!leads_to(next_, previous)) {
      chain_.left_out_innermost = true;
      next_ = previous;
      cframes_.erase(cframes_.begin());
    }
  }

  // Whether the frames of one call of the eval loop, from `frame` on, lead to the innermost frame of the call before
  // it. Not all of these frames need to belong to that call: throwing into a generator that delegates links its frames
  // without executing them (gen_throw()).
  bool leads_to(Address frame, Address previous) const {
    StructCopy copy;
    for (std::size_t n = 0; n < kMaxFramesPerThread; ++n) {
      if (frame == 0 || frame % kPointerAlignment != 0 || !copy.read(target_, frame, size_)) return false;
      const auto before = copy.get<Address>(layout_.frame_previous);
      const bool border = layout_.frame_is_entry != kAbsent ? copy.get<std::uint8_t>(layout_.frame_is_entry) != 0
                                                            : copy.get<std::uint8_t>(layout_.frame_owner) >= kOwnerShim;
      // No call precedes the outermost call of the loop; its predecessor is the thread state's own, empty _PyCFrame.
      if (border && (before == previous || previous == 0)) return true;
      if (before == frame || (border && layout_.frame_is_entry == kAbsent)) return false;
      frame = before;
    }
    return false;
  }

  void step() {
    const Address at = next_;
    if (at % kPointerAlignment != 0) return end_damaged(fmt::format("a frame pointer is {:#x}", at));
    if (!seen_.insert(at).second) return end_damaged(fmt::format("the frame at {:#x} is its own caller", at));
    if (seen_.size() > kMaxFramesPerThread) return end_damaged(fmt::format("more than {} frames", kMaxFramesPerThread));
    if (budget_.frames == 0) return end_damaged(fmt::format("more than {} frames in all threads", kMaxFramesInAll));
    --budget_.frames;
    StructCopy copy;
    if (!copy.read(target_, at, size_)) return end_damaged(fmt::format("the frame at {:#x} cannot be read", at));

    next_ = copy.get<Address>(layout_.frame_previous);
    ChainFrame frame{.address = at};
    frame.code = copy.get<Address>(layout_.frame_code);
    if (layout_.minor >= 14) frame.code &= ~kStackRefTags;
    if (layout_.frame_owner == kAbsent) {
      frame.instruction = static_cast<std::uint64_t>(std::int64_t{copy.get<std::int32_t>(layout_.frame_instruction)});
      if (next_ == 0 && delegates(copy) && !chain_.runs.empty()) {
        chain_.runs.back().frames.push_back(frame);
        return end_damaged("an exception is thrown through a generator, which hides its callers in 3.9");
      }
      run_.frames.push_back(frame);
      return end_run(std::nullopt);
    }
    frame.instruction = copy.get<std::uint64_t>(layout_.frame_instruction);
    frame.owner = copy.get<std::uint8_t>(layout_.frame_owner);
    frame.tlbc_index = copy.get<std::int32_t>(layout_.frame_tlbc_index);
    if (layout_.frame_is_entry != kAbsent) {
      // 3.11: each _PyCFrame names the frame at which its call's run begins.
      if (!run_.frames.empty() && cframe_index_ + 1 < cframes_.size() &&
          at == cframes_[cframe_index_ + 1].current_frame) {
        end_run(cframes_[cframe_index_++].address);
      }
      run_.frames.push_back(frame);
      is_entry_.push_back(copy.get<std::uint8_t>(layout_.frame_is_entry) != 0);
    } else if (frame.owner >= kOwnerShim) {
      if (run_.frames.empty()) chain_.empty_calls.push_back(at);
      end_run(at);
    } else {
      run_.frames.push_back(frame);
    }
  }

  // When 3.9 throws an exception into the innermost of delegating generators, it does not execute the others:
  // gen_throw() makes each the thread's current frame, and keeps the previous current frame in a local variable. Such a
  // frame has no caller, and no call of the loop. (A trace function that is notified of a call also sees a frame that
  // is not executing; if that is the outermost frame of a thread, the frame has not begun.)
  bool delegates(const StructCopy& copy) const {
    return layout_.frame_executing != kAbsent && copy.get<std::uint8_t>(layout_.frame_executing) == 0 &&
           copy.get<std::int32_t>(layout_.frame_instruction) >= 0;
  }

  // 3.11: ends the runs of the frames that no further _PyCFrame separates, which are those of the outermost call. If
  // the two chains do not fit each other, the frames' own marks show where the calls begin. Other versions have no such
  // marks.
  void end_runs_by_entry() {
    if (is_entry_.empty()) return end_run(std::nullopt);
    if (cframe_index_ + 1 == cframes_.size()) return end_run(cframes_.back().address);
    const ChainRun rest = std::exchange(run_, {});
    const std::vector<bool> is_entry = std::exchange(is_entry_, {});
    for (std::size_t i = 0; i < rest.frames.size(); ++i) {
      run_.frames.push_back(rest.frames[i]);
      if (is_entry[i]) end_run(std::nullopt);
    }
    end_run(std::nullopt);
  }

  void end_run(std::optional<Address> anchor) {
    run_.anchor = anchor;
    if (!run_.frames.empty()) chain_.runs.push_back(std::move(run_));
    run_ = {};
    is_entry_.clear();
  }

  void end_damaged(std::string why) {
    chain_.damage = std::move(why);
    cframes_.clear();
    end_runs_by_entry();
    done_ = true;
  }

  void finish() {
    // From 3.12 on there is a shim outside of each call's frames.
    if (layout_.frame_owner != kAbsent && layout_.frame_is_entry == kAbsent && !run_.frames.empty()) {
      return end_damaged(fmt::format("the frame at {:#x} names no caller", run_.frames.back().address));
    }
    if (layout_.frame_is_entry != kAbsent) end_runs_by_entry();
    else end_run(std::nullopt);
    if (has_runs_by_frame_ && layout_.thread_cframe != kAbsent) place_by_cframe_count();
    done_ = true;
  }

  // 3.10: the loop links its CFrame first and its frame a little later, and unlinks them in the same order. So both
  // chains have the same length, or one of them has one more entry at the innermost end.
  void place_by_cframe_count() {
    const std::size_t frames = chain_.runs.size(), calls = cframes_.size();
    if (calls > frames + 1 || frames > calls + 1) return;
    for (std::size_t back = 1; back <= frames && back <= calls; ++back)
      chain_.runs[frames - back].anchor = cframes_[calls - back].address;
  }

  const target::Target& target_;
  const Layout& layout_;
  Budget& budget_;
  const bool has_runs_by_frame_;  // up to 3.10: one call of the eval loop for each frame
  std::size_t size_ = 0;
  // 3.11, 3.12: set until the first step, which decides whether its current_frame can be trusted.
  Address first_cframe_ = 0;
  Address next_ = 0;
  Range window_;
  std::vector<CFrame> cframes_;  // innermost first
  std::size_t cframe_index_ = 0;
  std::unordered_set<Address> seen_;
  ChainRun run_;
  std::vector<bool> is_entry_;  // 3.11: of the frames in run_
  Chain chain_;
  bool done_ = false;
};

}  // namespace

std::vector<Chain> walk_chains(const target::Target& target, const Layout& layout, std::span<const ChainStart> starts) {
  Budget budget;
  std::vector<Walker> walkers;
  walkers.reserve(starts.size());
  for (const ChainStart& start : starts) walkers.emplace_back(target, layout, start, budget);
  for (bool active = true; active;) {
    active = false;
    std::vector<Range> ranges;
    for (Walker& walker : walkers) {
      if (!walker.done()) ranges.push_back(walker.wanted());
    }
    if (!ranges.empty()) target.prefetch(ranges);
    for (Walker& walker : walkers) {
      if (walker.done()) continue;
      walker.advance();
      active = active || !walker.done();
    }
  }
  std::vector<Chain> chains;
  for (Walker& walker : walkers) chains.push_back(walker.take());
  return chains;
}

}  // namespace rankstacks::python
