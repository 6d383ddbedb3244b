// Step 3: merges the Python frames into the native stack.
//
// Each run of Python frames belongs to one native frame, a call of the eval loop. If the run has an anchor, an address
// inside that frame's part of the C stack, the anchor identifies the frame. Runs without an anchor (all up to 3.9) are
// matched by count with the loop's frames between two placed neighbours:
//
//     native frames, innermost first    0 read   1 loop   2 call   3 loop   4 main
//     runs                                       `- A (anchor in [sp1, cfa1))
//                                                                  `- B (no anchor: the only loop left outside A)
//
// A run that cannot be placed is shown next to the native frames, near its neighbours, marked kSeparate, with a problem
// that says why.

#include <fmt/format.h>
#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include "python/python.h"

namespace rankstacks::python {
namespace {

// One number orders all positions: 2i + 1 is "in native frame i", 2i is "between the native frames i - 1 and i".
using Position = std::size_t;
constexpr Position in_frame(std::size_t i) { return 2 * i + 1; }
constexpr Position before_frame(std::size_t i) { return 2 * i; }

struct Item {
  enum class Place { kPlaced, kToCount, kSeparate };
  const Run* run = nullptr;
  std::optional<Address> anchor;  // the run's, unless it cannot be trusted
  Position at = 0;                // if not yet placed: the position of its neighbours
  Place place = Place::kToCount;
  bool damaged_outside = false;  // runs that belong outside this one may be missing
};

std::uint64_t width(const unwind::UnwoundFrame& f) {
  return (f.cfa == 0 ? std::numeric_limits<Address>::max() : f.cfa) - f.sp;
}
bool holds(const unwind::UnwoundFrame& f, Address a) { return a >= f.sp && (f.cfa == 0 || a < f.cfa); }

// The native frame around `anchor`. Frames follow each other on the stack, except where a signal switched stacks: such
// a frame may span more than its own part, so the narrowest frame wins. A frame without a known end holds everything
// above its start. std::nullopt if the anchor is in none of the frames.
std::optional<Position> position_of(const unwind::UnwoundStack& native, Address anchor) {
  if (native.omitted) {
    const std::size_t at = native.omitted->at;
    if (at > 0 && at < native.frames.size() && anchor >= native.frames[at - 1].cfa && anchor < native.frames[at].sp)
      return before_frame(at);
  }
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < native.frames.size(); ++i) {
    const unwind::UnwoundFrame& f = native.frames[i];
    if (holds(f, anchor) && (!best || width(f) < width(native.frames[*best]))) best = i;
  }
  return best ? std::optional(in_frame(*best)) : std::nullopt;
}

bool beyond_end(const unwind::UnwoundStack& native, Address anchor) {
  return !native.frames.empty() && anchor >= std::max(native.frames.back().sp, native.frames.back().cfa);
}

class Merger {
 public:
  Merger(const State& state, const unwind::UnwoundStack& native, const KnownFrames& known)
      : state_(state),
        native_(native),
        count_(native.frames.size()),
        greenlet_(known.greenlet.value_or(count_)),
        loops_(known.eval_loop),
        borders_(known.loop_border) {
    loops_.resize(count_, false);
    borders_.resize(count_, false);
  }

  MergedStack merge(std::vector<const ThreadState*> threads) {
    // Without anchors it is not known how the frames of several interpreters nest. The interpreter that holds the GIL
    // is running, so it is innermost; and an interpreter that was created later is called from an earlier one.
    std::stable_sort(threads.begin(), threads.end(), [](const ThreadState* a, const ThreadState* b) {
      return a->holds_gil != b->holds_gil ? a->holds_gil : a->interpreter_id > b->interpreter_id;
    });
    for (const ThreadState* thread : threads) place_by_anchor(*thread);
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.at < b.at; });
    place_by_count();
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.at < b.at; });
    decide_replacements();
    look_for_lost(threads);
    emit();
    return std::move(result_);
  }

 private:
  void problem(std::string message) {
    const auto known = [&](const Problem& p) { return p.message == message; };
    if (std::none_of(result_.problems.begin(), result_.problems.end(), known))
      result_.problems.push_back({std::move(message), std::nullopt});
  }

  // The anchors of 3.10 come from matching the loop's CFrames with the frames by count. A greenlet links a CFrame of
  // its own, which has no frame, where its part of the stack begins: then all anchors are one call too far out.
  bool trusts_anchors(const ThreadState& thread) const {
    constexpr int kCountedOff = 10;
    if (state_.version.minor != kCountedOff) return true;
    return std::none_of(thread.runs.begin(), thread.runs.end(), [&](const Run& run) {
      const auto at = run.anchor ? position_of(native_, *run.anchor) : std::nullopt;
      return at && *at / 2 >= greenlet_;
    });
  }

  void place_by_anchor(const ThreadState& thread) {
    std::vector<Item> items;
    bool any_placed = false, any_anchor = false;
    Position reached = 0;
    const bool trusted = trusts_anchors(thread);
    for (const Run& run : thread.runs) {
      Item item{.run = &run, .anchor = trusted ? run.anchor : std::nullopt};
      if (item.anchor) {
        any_anchor = true;
        auto at = position_of(native_, *item.anchor);
        // Beyond the last frame whose end is known, only the symbol shows whether this frame is the loop, or just the
        // last frame that could be found.
        if (at && *at % 2 == 1 && native_.frames[*at / 2].cfa == 0 && !loops_[*at / 2]) at.reset();
        // Outer runs are further out; a run that is not belongs to a damaged chain.
        if (at && *at >= reached) {
          item.at = reached = *at;
          item.place = Item::Place::kPlaced;
          any_placed = true;
        } else {
          item.place = Item::Place::kSeparate;
          if (beyond_end(native_, *item.anchor)) reached = before_frame(count_);
        }
      }
      if (item.place != Item::Place::kPlaced) item.at = reached;
      items.push_back(item);
    }
    if (!thread.problems.empty() && !items.empty()) items.back().damaged_outside = true;
    // Runs before the first placed one are directly inside it. If none was placed, anchors that fit nowhere go to the
    // end.
    const auto first =
        std::find_if(items.begin(), items.end(), [](const Item& i) { return i.place == Item::Place::kPlaced; });
    for (auto i = items.begin(); i != first; ++i) {
      if (any_placed) i->at = first->at - 1;
      else if (any_anchor) i->at = before_frame(count_);
    }
    const bool lost =
        std::any_of(items.begin(), items.end(), [](const Item& i) { return i.place == Item::Place::kSeparate; });
    if (lost && count_ > 0)
      problem("some Python frames lie outside the native stack as far as it could be unwound: shown next to it");
    items_.insert(items_.end(), items.begin(), items.end());
  }

  // Matches each group of unplaced runs between two placed ones with the loop's frames between them.
  void place_by_count() {
    std::vector<Item*> group;
    std::optional<std::size_t> inner;  // the native frame of the last placed run
    for (std::size_t i = 0; i <= items_.size(); ++i) {
      if (i < items_.size() && items_[i].place == Item::Place::kSeparate) continue;
      if (i < items_.size() && items_[i].place == Item::Place::kToCount) {
        group.push_back(&items_[i]);
        continue;
      }
      const std::size_t outer = i < items_.size() ? items_[i].at / 2 : count_;
      if (!group.empty()) match(group, inner ? *inner + 1 : 0, outer);
      group.clear();
      if (i < items_.size()) inner = items_[i].at / 2;
    }
  }

  void put(Item& item, Position at) {
    item.at = at;
    item.place = Item::Place::kPlaced;
  }

  // Matches the runs of `group` with the native frames [begin, end).
  void match(const std::vector<Item*>& group, std::size_t begin, std::size_t end) {
    if (count_ == 0) return;
    std::vector<std::size_t> loops;
    for (std::size_t i = begin; i < end; ++i) {
      if (loops_[i]) loops.push_back(i);
    }
    const std::size_t runs = group.size();
    const bool outermost = end == count_;
    if (loops.size() == runs) {
      for (std::size_t i = 0; i < runs; ++i) put(*group[i], in_frame(loops[i]));
      return;
    }
    if (loops.size() > runs && outermost && group.back()->damaged_outside) {
      for (std::size_t i = 0; i < runs; ++i) put(*group[i], in_frame(loops[i]));
      return;
    }
    // A call of the loop that has just begun, or is about to return, has no frame. At these moments it is calling
    // either a function that runs no Python code, or no function.
    if (loops.size() == runs + 1 && begin == 0 && (loops.front() <= 1 || borders_[loops.front() - 1])) {
      for (std::size_t i = 0; i < runs; ++i) put(*group[i], in_frame(loops[i + 1]));
      return;
    }
    if (loops.size() < runs && native_.omitted && native_.omitted->at >= begin && native_.omitted->at < end) {
      const std::size_t at = native_.omitted->at;
      const auto inside = static_cast<std::size_t>(std::lower_bound(loops.begin(), loops.end(), at) - loops.begin());
      const std::size_t outside = loops.size() - inside;
      for (std::size_t i = 0; i < runs; ++i) {
        if (i < inside) put(*group[i], in_frame(loops[i]));
        else if (i < runs - outside) put(*group[i], before_frame(at));
        else put(*group[i], in_frame(loops[loops.size() - (runs - i)]));
      }
      return;
    }
    if (loops.size() < runs && outermost && native_.end != StackEnd::kComplete) {
      for (std::size_t i = 0; i < runs; ++i) {
        if (i < loops.size()) put(*group[i], in_frame(loops[i]));
        else separate(*group[i], before_frame(end));
      }
      problem("some Python frames lie outside the native stack as far as it could be unwound: shown next to it");
      return;
    }
    const std::size_t near = loops.empty() ? end : loops.front();
    for (Item* item : group) separate(*item, before_frame(near));
    problem(
        fmt::format("{} Python frames do not match {} calls of the interpreter's loop: shown next to the native frames",
                    runs, loops.size()));
  }

  void separate(Item& item, Position at) {
    item.at = at;
    item.place = Item::Place::kSeparate;
  }

  // Decides whether the native frames that runs were placed in are the eval loop, and are replaced by the runs.
  void decide_replacements() {
    replaced_.assign(count_, false);
    const auto each_placed = [&](auto&& visit) {
      for (const Item& item : items_) {
        if (item.place == Item::Place::kPlaced && item.at % 2 == 1) visit(item, item.at / 2);
      }
    };
    // A frame that holds the loop's local variable, and whose extent is known from unwind information, is the loop,
    // whatever its symbol: stripped files have no names for the parts that compilers split off a function, and the loop
    // spends most of its time there. If the extent comes from the chain of frame pointers, frames may have been missed;
    // then the symbol decides, or that the local is as far from the CFA as in a known call.
    std::set<std::uint64_t> distances;
    each_placed([&](const Item& item, std::size_t i) {
      if (loops_[i] && item.anchor && native_.frames[i].cfa != 0)
        distances.insert(native_.frames[i].cfa - *item.anchor);
    });
    each_placed([&](const Item& item, std::size_t i) {
      const unwind::UnwoundFrame& frame = native_.frames[i];
      const bool exact = i + 1 < count_ && native_.frames[i + 1].origin == FrameOrigin::kNormal;
      if (loops_[i] || exact) {
        replaced_[i] = true;
      } else if (item.anchor && frame.cfa != 0 && distances.count(frame.cfa - *item.anchor)) {
        replaced_[i] = true;
      } else {
        problem("Python frames belong to a native frame that is not the interpreter's loop: both are shown");
      }
    });
    // 3.14 may be built with tail calls: then the anchor is in the frame of _PyEval_EvalFrameDefault, and the bytecode
    // is executed by one function per instruction (_TAIL_CALL_*), called from it.
    constexpr int kFirstWithTailCalls = 14;
    if (state_.version.minor < kFirstWithTailCalls) return;
    each_placed([&](const Item& item, std::size_t i) {
      if (!item.anchor || !replaced_[i]) return;
      for (std::size_t j = i; j-- > 0 && loops_[j] && !replaced_[j];) replaced_[j] = true;
    });
  }

  // A call of the loop that runs something has Python frames. If the thread's state has no frames for it, they were not
  // found.
  void look_for_lost(const std::vector<const ThreadState*>& threads) {
    if (threads.empty()) return;
    std::set<std::size_t> empty;
    bool left_out = false;
    for (const ThreadState* thread : threads) {
      left_out |= thread->left_out_innermost;
      for (const Address shim : thread->empty_calls) {
        const auto at = position_of(native_, shim);
        if (!at) continue;
        // The functions of the instructions in a tail-calling loop (3.14) are inside of the call.
        std::size_t call = *at / 2;
        empty.insert(call);
        // For calls reached before, this has been done already.
        while (call-- > 0 && loops_[call] && empty.insert(call).second) {}
      }
    }
    if (!items_.empty() && !left_out) return;
    const std::size_t end = std::min(count_, greenlet_);
    for (std::size_t i = 0; i < end; ++i) {
      if (!loops_[i] || empty.count(i)) continue;
      // One that has just begun, or is about to return: see match().
      if (replaced_[i] || i <= 1 || borders_[i - 1]) return;
      problem("a call of the interpreter's loop has no Python frames in the thread's state: they are missing");
      result_.partial = true;
      return;
    }
  }

  void emit() {
    auto item = items_.begin();
    const auto emit_up_to = [&](Position at) {
      for (; item != items_.end() && item->at <= at; ++item) {
        for (const RawFrame& frame : item->run->frames) {
          MergedFrame merged{.is_python = true,
                             .code = frame.code,
                             .line = line_of(state_, frame),
                             .variables = frame.variables,
                             .address = frame.address};
          if (item->place == Item::Place::kSeparate && count_ > 0) merged.origin = FrameOrigin::kSeparate;
          result_.frames.push_back(merged);
        }
      }
    };
    for (std::size_t i = 0; i < count_; ++i) {
      emit_up_to(before_frame(i));
      if (!replaced_[i]) result_.frames.push_back({.native = i, .origin = native_.frames[i].origin});
      emit_up_to(in_frame(i));
    }
    emit_up_to(std::numeric_limits<Position>::max());
  }

  const State& state_;
  const unwind::UnwoundStack& native_;
  const std::size_t count_;
  const std::size_t greenlet_;  // KnownFrames::greenlet, or count_
  std::vector<bool> loops_;
  std::vector<bool> borders_;
  std::vector<Item> items_;
  std::vector<bool> replaced_;  // by native frame
  MergedStack result_;
};

// Whether the state is that of a thread that has ended, in whose memory `thread` runs: the numbers of the two differ.
// Only the main thread of a forked process, which is the one that called fork(), may still have its parent's number.
bool is_of_ended(const ThreadState& state, const NativeThread& thread) {
  return state.pthread_id == thread.pthread_id && state.native_id != 0 && state.descriptor_tid &&
         *state.descriptor_tid != state.native_id && !thread.is_leader;
}

// Whether the state's numbers are those of `thread`, from which no stack can differ.
bool is_confirmed(const ThreadState& state, const NativeThread& thread) {
  return state.pthread_id == thread.pthread_id && state.native_id != 0 && state.descriptor_tid == state.native_id;
}

bool is_known_completely(const unwind::UnwoundStack& stack) {
  return stack.end == StackEnd::kComplete && !stack.omitted && !stack.frames.empty() &&
         std::all_of(stack.frames.begin(), stack.frames.end(),
                     [](const unwind::UnwoundFrame& f) { return f.origin == FrameOrigin::kNormal; });
}

}  // namespace

std::vector<const ThreadState*> states_on_stack(const State& state, const NativeThread& thread,
                                                std::span<const ThreadState* const> states, const KnownFrames& known) {
  std::vector<const ThreadState*> kept(states.begin(), states.end());
  if (known.greenlet || thread.stack == nullptr || !is_known_completely(*thread.stack)) return kept;
  const auto count = [](const std::vector<bool>& marks) {
    return static_cast<std::size_t>(std::count(marks.begin(), marks.end(), true));
  };
  std::size_t calls = count(known.eval_loop) + count(known.nameless);
  // An interpreter lists its newest state first. How those of several interpreters nest is not known.
  const bool one_interpreter = std::all_of(states.begin(), states.end(), [&](const ThreadState* s) {
    return s->interpreter_id == states.front()->interpreter_id;
  });
  constexpr int kFirstWithCalls = 11;  // a frame may be entered without a call of the loop
  const bool counts = one_interpreter && state.version.minor < kFirstWithCalls;
  std::erase_if(kept, [&](const ThreadState* s) {
    if (s->runs.empty() || is_confirmed(*s, thread)) return false;
    if (calls == 0) return true;
    if (counts) calls -= std::min(calls, s->runs.size());
    return false;
  });
  return kept;
}

MergedStack merge(const State& state, std::span<const ThreadState* const> threads, const unwind::UnwoundStack& native,
                  const KnownFrames& known) {
  return Merger(state, native, known).merge({threads.begin(), threads.end()});
}

std::vector<std::vector<const ThreadState*>> assign_threads(const State& state, std::span<const NativeThread> threads) {
  // A process has a state for each thread; a damaged process may have 65,536 of them, and each is compared with each
  // thread's stack.
  constexpr std::size_t kMaxComparisons = std::size_t{1} << 24;
  std::size_t comparisons = 0;
  // The thread with a frame that contains the anchor: frames of a known extent only, unless `any`. An outermost frame
  // of unknown extent seems to hold everything above it, so the narrowest frame wins here too.
  const auto by_anchor = [&](Address anchor, bool any) {
    std::optional<std::size_t> best;
    std::uint64_t best_width = 0;
    for (std::size_t i = 0; i < threads.size() && comparisons < kMaxComparisons; ++i, ++comparisons) {
      const auto at = threads[i].stack ? position_of(*threads[i].stack, anchor) : std::nullopt;
      if (!at) continue;
      if (*at % 2 == 1 && threads[i].stack->frames[*at / 2].cfa == 0) {
        // Where a complete stack ends nothing is called from Python: _start, clone.
        const bool ends_there = *at / 2 + 1 == threads[i].stack->frames.size();
        if (!any || (ends_there && threads[i].stack->end == StackEnd::kComplete)) continue;
      }
      const std::uint64_t w = *at % 2 == 1 ? width(threads[i].stack->frames[*at / 2]) : 0;
      if (!best || w < best_width) {
        best = i;
        best_width = w;
      }
    }
    return best;
  };
  std::unordered_map<Address, std::size_t> by_pthread_id;  // the first state of each
  for (std::size_t i = 0; i < threads.size(); ++i)
    if (threads[i].pthread_id != 0) by_pthread_id.try_emplace(threads[i].pthread_id, i);
  std::vector<std::vector<const ThreadState*>> assigned(threads.size());
  for (const ThreadState& state_of_thread : state.threads) {
    std::optional<std::size_t> owner, by_id;
    if (const auto found = by_pthread_id.find(state_of_thread.pthread_id); found != by_pthread_id.end())
      by_id = found->second;
    const auto anchored = std::find_if(state_of_thread.runs.begin(), state_of_thread.runs.end(),
                                       [](const Run& r) { return r.anchor.has_value(); });
    if (anchored != state_of_thread.runs.end()) owner = by_anchor(*anchored->anchor, false);
    if (!owner) owner = by_id;
    if (!owner && anchored != state_of_thread.runs.end()) owner = by_anchor(*anchored->anchor, true);
    if (owner && !is_of_ended(state_of_thread, threads[*owner])) assigned[*owner].push_back(&state_of_thread);
  }
  return assigned;
}

}  // namespace rankstacks::python
