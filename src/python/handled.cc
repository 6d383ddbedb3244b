#include "python/handled.h"

#include <algorithm>
#include <deque>

#include "python/exception_text.h"
#include "python/loaded_modules.h"
#include "python/objects.h"
#include "python/values.h"

namespace rankstacks::python {
namespace {

constexpr std::size_t kLongestTypeName = 256;
constexpr std::size_t kLikelyTypeName = 64;
// Bytes of names and line tables; exceptions beyond that have no places.
constexpr std::size_t kMaxCodeText = 16u << 20;
constexpr Address kStackRefTags = 3;  // 3.14+: low bits of a _PyStackRef
constexpr Address kPointerAlignment = 8;

// The number of traceback entries that are searched for the thread's own frame. It is in the first one, unless the
// exception is handled twice: a function further in that handles it adds an entry of its own, and an exception can be
// handed to other threads.
constexpr std::size_t kMaxComparedEntries = 8;

// One entry of a traceback.
struct Entry {
  Address frame = 0;  // the frame object
  std::int32_t instruction = 0, line = 0;
};

// The state of one thread's walk.
struct Walk {
  ThreadState* thread = nullptr;
  Address next = 0;       // an item, then an entry of the traceback
  std::size_t count = 0;  // of items or entries
  Address exception = 0, traceback = 0;
  Address type = 0, argument = 0;      // of an exception that has not been made yet
  bool own_traceback = true;           // the exception itself says where its traceback is, if the version has it there
  std::optional<std::size_t> chained;  // index into Handled::chain: of an exception that led to the thread's
  std::optional<Entry> handler, raised;
  std::vector<Entry> outer;  // the first entries
  std::deque<Entry> inner;   // the last ones of those that follow
  bool whole = false;        // the traceback's end was reached
  Address frame = 0;         // the handler's frame, if it is one of the thread's
};

class HandledReader {
 public:
  HandledReader(const target::Target& target, const Layout& layout, State& state,
                std::optional<Handled> ThreadState::*into)
      : target_(target),
        layout_(layout),
        state_(state),
        into_(into),
        objects_(target, layout),
        codes_(target, layout, kMaxCodeText),
        text_(target, layout, objects_, codes_) {}

  void read_handled(std::span<const Address> items) {
    find_exceptions(items);
    read_found();
  }

  // Of one exception, which is on no item and in no error indicator.
  void read_one(Address exception, ThreadState& thread) {
    if (!may_be_at(exception) || objects_.kind(exception) != ObjectKind::kException) return;
    walks_.push_back({.thread = &thread, .exception = exception, .own_traceback = true});
    if (layout_.exc_item_traceback != kAbsent)
      walks_.back().traceback = word_at(exception + layout_.exception_traceback);
    read_found();
  }

  void read_raised(std::span<const Raised> raised) {
    std::vector<Address> values;
    for (const Raised& one : raised)
      for (const Address address : {one.type, one.value})
        if (may_be_at(address)) values.push_back(address);
    if (values.empty()) return;
    objects_.prefetch(values);
    for (std::size_t i = 0; i < std::min(raised.size(), state_.threads.size()); ++i) {
      Walk walk{.thread = &state_.threads[i], .traceback = raised[i].traceback, .own_traceback = raised[i].type == 0};
      if (may_be_at(raised[i].value) && objects_.kind(raised[i].value) == ObjectKind::kException)
        walk.exception = raised[i].value;
      else if (may_be_at(raised[i].type)) walk.type = raised[i].type, walk.argument = raised[i].value;
      else continue;
      walks_.push_back(walk);
    }
    read_found();
  }

 private:
  void read_found() {
    if (walks_.empty()) return;
    read_exceptions();
    follow_chains();
    follow_tracebacks();
    read_places();
  }

  // For all threads in parallel: each round fetches the next item of every thread in one batch. Threads that handle
  // nothing are dropped.
  void find_exceptions(std::span<const Address> items) {
    const std::size_t size = span_of({layout_.exc_item_value, layout_.exc_item_traceback, layout_.exc_item_previous});
    std::vector<Walk> open;
    for (std::size_t i = 0; i < std::min(items.size(), state_.threads.size()); ++i)
      open.push_back({.thread = &state_.threads[i], .next = items[i]});
    std::size_t left = kMaxExcItemsInAll;
    while (!open.empty()) {
      std::erase_if(open, [&](const Walk& w) { return !may_be_at(w.next) || w.count >= kMaxExcItems; });
      if (open.size() > left) open.resize(left);
      left -= open.size();
      std::vector<Range> ranges;
      for (const Walk& w : open) ranges.push_back(range_of(w.next, size));
      if (!ranges.empty()) target_.prefetch(ranges);
      std::vector<Address> values;
      for (Walk& w : open) {
        StructCopy item;
        const bool read = item.read(target_, w.next, size);
        ++w.count;
        w.exception = item.get<Address>(layout_.exc_item_value);
        w.traceback = item.get<Address>(layout_.exc_item_traceback);
        w.next = read ? item.get<Address>(layout_.exc_item_previous) : 0;
        if (w.exception != 0) values.push_back(w.exception);
      }
      objects_.prefetch(values);
      for (Walk& w : open) {
        if (w.exception == 0) continue;
        if (objects_.kind(w.exception) == ObjectKind::kException) {
          walks_.push_back(w);
          w.next = 0;
        } else if (!objects_.may_be(w.exception, ObjectKind::kNone)) {
          w.next = 0;  // no item
        }
      }
    }
  }

  static bool may_be_at(Address address) { return address != 0 && address % kPointerAlignment == 0; }
  Address word_at(Address address) const { return target_.read_value<Address>(address).value_or(0); }
  Address type_of(const Walk& walk) const { return walk.exception != 0 ? type_of(walk.exception) : walk.type; }
  Address type_of(Address object) const { return word_at(object + layout_.object_type); }

  // Reads the names of the exceptions' types, and their messages.
  void read_exceptions() {
    std::vector<Range> ranges;
    const std::size_t size = text_.size();
    for (const Walk& w : walks_) {
      if (w.exception != 0) ranges.push_back(range_of(w.exception, size));
      ranges.push_back(range_of(word_at(type_of(w) + layout_.type_name), kLikelyTypeName));
    }
    target_.prefetch(ranges);
    std::vector<Address> args;
    for (Walk& w : walks_) {
      if (w.exception != 0) args.push_back(word_at(w.exception + layout_.exception_args));
      if (layout_.exc_item_traceback == kAbsent && w.own_traceback)
        w.traceback = word_at(w.exception + layout_.exception_traceback);
    }
    std::erase(args, Address{0});
    objects_.prefetch(args);
    // Nearly all have one argument, a str.
    std::vector<Address> arguments;
    for (const Address tuple : args) {
      const auto items = objects_.tuple(tuple, 1);
      if (items && items->size() == 1) arguments.push_back(items->front());
    }
    for (const Walk& w : walks_)
      if (may_be_at(w.argument)) arguments.push_back(w.argument);
    objects_.prefetch(arguments);
    ranges.clear();
    const std::size_t likely = layout_.string_compact_data + kLongestMessage * sizeof(char32_t);
    for (const Address argument : arguments) ranges.push_back(range_of(argument, likely));
    if (!ranges.empty()) target_.prefetch(ranges);
    for (const Walk& w : walks_) {
      Handled& handled = (w.thread->*into_).emplace();
      handled.type = type_name(type_of(w));
      if (w.exception != 0) handled.message = text_.of(w.exception);
      else if (may_be_at(w.argument)) handled.message = text_.of_argument(w.type, w.argument);
    }
  }

  std::string type_name(Address type) const {
    const Address name = word_at(type + layout_.type_name);
    return target_.read_c_string(name, kLongestTypeName).value_or("");
  }

  // Few exceptions have a chain, so it is read one by one.
  void follow_chains() {
    std::size_t left = kMaxChainedInAll;
    const std::size_t own = walks_.size();
    for (std::size_t i = 0; i < own; ++i) {
      const Walk& w = walks_[i];
      if (w.exception == 0) continue;
      std::vector<Address> seen{w.exception};
      ThreadState* const thread = w.thread;
      while (left > 0 && seen.size() <= kMaxChain) {
        const auto [link, next, suppressed] = led_to(seen.back());
        if (!may_be_at(next) || std::find(seen.begin(), seen.end(), next) != seen.end()) break;
        if (objects_.kind(next) != ObjectKind::kException) break;
        Handled& handled = *(thread->*into_);
        const bool hidden = suppressed || !handled.hidden.empty();
        (hidden ? handled.hidden : handled.chain).push_back({link, type_name(type_of(next)), text_.of(next)});
        if (!hidden)
          walks_.push_back({.thread = thread,
                            .traceback = word_at(next + layout_.exception_traceback),
                            .chained = handled.chain.size() - 1});
        seen.push_back(next);
        --left;
      }
    }
  }

  struct Origin {
    ExceptionLink link;
    Address exception;  // 0: none
    bool suppressed;    // the interpreter does not print it
  };

  // What the interpreter prints above an exception (traceback.TracebackException), or would if it were not suppressed.
  // From 3.6 to 3.15 the fields of PyBaseExceptionObject behind the traceback are: context, cause, and
  // suppress_context, a char.
  Origin led_to(Address exception) const {
    const Address context = exception + layout_.exception_traceback + sizeof(Address),
                  cause = context + sizeof(Address);
    if (const Address other = word_at(cause); other != 0) return {ExceptionLink::kCause, other, false};
    const bool suppressed = target_.read_value<char>(cause + sizeof(Address)).value_or(1) != 0;
    return {ExceptionLink::kContext, word_at(context), suppressed};
  }

  // Also in parallel. Reads each entry, but only those frames that are needed.
  void follow_tracebacks() {
    const std::size_t size = span_of(
        {layout_.traceback_next, layout_.traceback_frame, layout_.traceback_instruction, layout_.traceback_line});
    std::vector<Walk*> open;
    for (Walk& w : walks_) {
      w.next = w.traceback;
      w.count = 0;
      open.push_back(&w);
    }
    std::size_t left = kMaxTracebackEntriesInAll;
    while (!open.empty()) {
      std::erase_if(open, [&](const Walk* w) { return !may_be_at(w->next) || w->count >= kMaxTracebackEntries; });
      if (open.size() > left) open.resize(left);
      left -= open.size();
      std::vector<Address> entries;
      for (const Walk* w : open) entries.push_back(w->next);
      objects_.prefetch(entries);
      std::vector<Walk*> to_compare;
      std::vector<Address> frames;
      for (Walk* w : open) {
        StructCopy copy;
        // Not a traceback: None, where the program has set it so.
        if (!objects_.may_be(w->next, ObjectKind::kTraceback) || !copy.read(target_, w->next, size)) {
          w->next = 0;
          continue;
        }
        w->raised =
            Entry{copy.get<Address>(layout_.traceback_frame), copy.get<std::int32_t>(layout_.traceback_instruction),
                  copy.get<std::int32_t>(layout_.traceback_line)};
        if (!w->chained) keep(*w, *w->raised);
        if (!w->handler) w->handler = w->raised;
        ++w->count;
        if (!w->chained && w->frame == 0 && w->count <= kMaxComparedEntries) {
          to_compare.push_back(w);
          frames.push_back(w->raised->frame);
        }
        w->next = copy.get<Address>(layout_.traceback_next);
        w->whole = w->next == 0;
      }
      objects_.prefetch(frames);
      for (Walk* w : to_compare) {
        const Address frame = frame_of(*w->raised);
        if (frame == 0 || !is_of(*w->thread, frame)) continue;
        w->handler = w->raised;
        w->frame = frame;
      }
    }
  }

  static void keep(Walk& walk, const Entry& entry) {
    constexpr std::size_t kOfEachEnd = kMaxTracebackPlaces / 2;
    if (walk.outer.size() < kOfEachEnd) return walk.outer.push_back(entry);
    walk.inner.push_back(entry);
    if (walk.inner.size() > kOfEachEnd) walk.inner.pop_front();
  }

  // The frame itself, as in RawFrame::address; 0 if there is none. The frame of a function that has returned is stored
  // in its frame object.
  Address frame_of(const Entry& entry) {
    if (!objects_.may_be(entry.frame, ObjectKind::kFrame)) return 0;
    if (layout_.frame_object_frame == kAbsent) return entry.frame;
    return word_at(entry.frame + layout_.frame_object_frame);
  }

  static bool is_of(const ThreadState& thread, Address frame) {
    return std::any_of(thread.runs.begin(), thread.runs.end(), [&](const Run& run) {
      return std::any_of(run.frames.begin(), run.frames.end(), [&](const RawFrame& f) { return f.address == frame; });
    });
  }

  // The code object of an entry's frame.
  std::optional<std::uint32_t> code_of(const Entry& entry) {
    const Address frame = frame_of(entry);
    auto code = frame != 0 ? target_.read_value<Address>(frame + layout_.frame_code) : std::nullopt;
    if (!code) return std::nullopt;
    if (layout_.minor >= 14) *code &= ~kStackRefTags;
    return codes_.add(*code);
  }

  void read_places() {
    std::vector<const Entry*> entries;
    for (Walk& w : walks_) {
      if (!w.whole) w.raised.reset(), w.inner.clear();  // the last entry that was read is not the last of the traceback
      if (w.chained) w.handler.reset();
      for (const auto* entry : {&w.handler, &w.raised})
        if (*entry) entries.push_back(&**entry);
      for (const Entry& entry : w.outer) entries.push_back(&entry);
      for (const Entry& entry : w.inner) entries.push_back(&entry);
    }
    std::vector<Address> objects;
    for (const Entry* entry : entries) objects.push_back(entry->frame);
    objects_.prefetch(objects);
    std::vector<Range> ranges;
    for (const Entry* entry : entries)
      if (const Address frame = frame_of(*entry); frame != 0)
        ranges.push_back(range_of(frame, layout_.frame_code + sizeof(Address)));
    if (!ranges.empty()) target_.prefetch(ranges);
    for (const Entry* entry : entries) code_of(*entry);
    codes_.read_all();
    for (const Walk& w : walks_) {
      Handled& handled = *(w.thread->*into_);
      if (w.chained) {
        handled.chain[*w.chained].raised = place_of(w.raised);
        continue;
      }
      handled.frame = w.frame;
      handled.handler = place_of(w.handler);
      handled.raised = place_of(w.raised);
      set_traceback(handled, w);
    }
  }

  // Entries whose places are not known count as left out.
  void set_traceback(Handled& handled, const Walk& w) {
    std::size_t at = 0;
    const auto add = [&](const Entry& entry) {
      if (auto place = place_of(entry)) handled.traceback.push_back(std::move(*place));
    };
    std::for_each(w.outer.begin(), w.outer.end(), add);
    at = handled.traceback.size();
    std::for_each(w.inner.begin(), w.inner.end(), add);
    if (handled.traceback.empty()) return;
    if (const std::size_t left_out = w.count - handled.traceback.size(); left_out > 0)
      handled.traceback_omitted = OmittedFrames{.at = at, .count = left_out};
  }

  std::optional<Handled::Place> place_of(const std::optional<Entry>& entry) {
    const auto index = entry ? code_of(*entry) : std::nullopt;
    if (!index || codes_.body(*index).kind != CodeReader::Kind::kCode) return std::nullopt;
    const Code& code = codes_.codes()[*index];
    Handled::Place place{.function = code.name, .file = code.file, .qualname = code.qualname, .line = {}};
    constexpr int kFirstByInstruction = 11;
    if (entry->line >= 0) place.line = entry->line;
    else if (layout_.minor >= kFirstByInstruction) place.line = line_in(code, layout_.minor, entry->instruction);
    return place;
  }

  const target::Target& target_;
  const Layout& layout_;
  State& state_;
  std::optional<Handled> ThreadState::*into_;
  ObjectReader objects_;
  // Of tracebacks alone, so that unreadable parts of them do not count as damage of the thread's frames.
  CodeReader codes_;
  ExceptionText text_;
  std::vector<Walk> walks_;  // of the threads that are handling an exception, then of what led to these
};

}  // namespace

void read_handled_exceptions(const target::Target& target, const Layout& layout, std::span<const Address> items,
                             State& state) {
  HandledReader(target, layout, state, &ThreadState::handles).read_handled(items);
}

// PyThreadState, from 3.7 on: curexc_type, curexc_value, curexc_traceback, then (up to 3.10) the thread's own item of
// four words, then exc_info; from 3.12 on current_exception, exc_info. (Include/cpython/pystate.h)
Raised raised_in(const Layout& layout, const StructCopy& thread_state) {
  if (layout.thread_exc_info == kAbsent || layout.minor < 7) return {};
  const auto word = [&](Offset words_before) {
    const Offset distance = words_before * static_cast<Offset>(sizeof(Address));
    return layout.thread_exc_info >= distance ? thread_state.get<Address>(layout.thread_exc_info - distance) : 0;
  };
  if (layout.minor >= 12) return {.value = word(1)};
  if (layout.minor == 11) return {.type = word(3), .value = word(2), .traceback = word(1)};
  return {.type = word(7), .value = word(6), .traceback = word(5)};
}

namespace {

constexpr std::string_view kModule = "<module>";

// The script of a program, or `python -m`.
bool is_outermost(std::string_view function) { return function == kModule || function == "_run_module_as_main"; }

bool has_frame_of_module(const ThreadState& thread, std::span<const Code> codes) {
  for (const Run& run : thread.runs)
    for (const RawFrame& frame : run.frames)
      if (frame.code < codes.size() && is_outermost(codes[frame.code].name)) return true;
  return false;
}

}  // namespace

void read_last_exception(const target::Target& target, const Runtime& runtime, std::span<const Code> codes,
                         State& state) {
  // The list begins with the newest, in the order of the interpreters.
  const auto main = std::find_if(state.threads.rbegin(), state.threads.rend(),
                                 [](const ThreadState& thread) { return thread.interpreter_id == 0; });
  if (main == state.threads.rend() || main->handles || main->raises) return;
  if (main->runs.empty() || has_frame_of_module(*main, codes)) return;
  ObjectReader objects(target, runtime.layout);
  CodeReader text(target, runtime.layout);
  LoadedModules modules(target, runtime, objects, text);
  const Address sys = modules.globals_of("sys");
  const Address last = sys == 0 ? 0 : modules.entry(sys, "last_value", kMaxGlobals);
  if (last == 0) return;
  HandledReader(target, runtime.layout, state, &ThreadState::handles).read_one(last, *main);
  if (main->handles && !(main->handles->handler && is_outermost(main->handles->handler->function)))
    main->handles.reset();
}

void read_raised_exceptions(const target::Target& target, const Layout& layout, std::span<const Raised> raised,
                            State& state) {
  HandledReader(target, layout, state, &ThreadState::raises).read_raised(raised);
}

}  // namespace rankstacks::python
