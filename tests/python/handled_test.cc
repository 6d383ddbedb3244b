// The exceptions that threads handle, in memory built by hand, intact and damaged, of every version.
#include <catch2/catch.hpp>

#include "fake_versions.h"
#include "python/exception_text.h"
#include "python/handled.h"

using namespace rankstacks;
using namespace rankstacks::testing;
using python::Handled;

namespace {

constexpr Address kNowhere = 0x7777'7777'0000;

// One thread with one frame, which handles an exception that was raised by a function that has returned.
struct Scene {
  explicit Scene(int which) : fake(interpreter_of(which)) {
    const auto& layout = fake.layout();
    const bool has_shims = layout.frame_owner != python::kAbsent && layout.frame_is_entry == python::kAbsent;
    code = fake.code("train", 3);
    frame = fake.frame(code, has_shims ? fake.shim(0, FakeInterpreter::kCStack) : 0);
    if (layout.frame_is_entry != python::kAbsent) fake.mark_entry(frame);
    thread = fake.thread(0x7000, frame);
    step = fake.code("step", 7);
    gone = fake.frame_object(fake.frame(step, 0));
    raised = fake.traceback(gone, 0, 34);
    handler = fake.traceback(fake.frame_object(frame), raised, 12);
    message = fake.string("loss is NaN");
    args = fake.tuple({message});
    error = fake.exception(args, handler);
    fake.set_handled(thread, error);
  }

  // Reads the state; there must be no problem.
  std::optional<Handled> read() const {
    const auto state = fake.read();
    REQUIRE(state.has_value());
    CHECK(state->problems.empty());
    CHECK_FALSE(state->partial);
    REQUIRE(state->threads.size() == 1);
    CHECK(state->threads[0].problems.empty());
    return state->threads[0].handles;
  }

  // Sets another traceback, in the exception and, up to 3.10, in the thread's own fields.
  void set_traceback(Address traceback) {
    fake.set(error + fake.layout().exception_traceback, traceback);
    fake.set_handled(thread, error);
  }

  bool has_qualname() const { return fake.layout().code_qualname != python::kAbsent; }
  Handled::Place place(const std::string& function, std::optional<int> line) const {
    return {function, "/x/" + function + ".py", has_qualname() ? std::optional(function) : std::nullopt, line};
  }

  FakeInterpreter fake;
  Address code = 0, step = 0, frame = 0, thread = 0, gone = 0, raised = 0, handler = 0, message = 0, args = 0,
          error = 0;
};

}  // namespace

TEST_CASE("an exception that a thread handles") {
  const Scene scene(GENERATE(6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
  const auto handled = scene.read();
  REQUIRE(handled.has_value());
  CHECK(handled->type == "RuntimeError");
  CHECK(handled->message == "loss is NaN");
  CHECK(handled->frame == scene.frame);
  CHECK(handled->handler == scene.place("train", 12));
  CHECK(handled->raised == scene.place("step", 34));
  CHECK(handled->traceback == std::vector{scene.place("train", 12), scene.place("step", 34)});
  CHECK_FALSE(handled->traceback_omitted.has_value());
}

TEST_CASE("the exceptions that led to it") {
  Scene scene(GENERATE(6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
  const Address behind = scene.fake.layout().exception_traceback + sizeof(Address);
  const auto context_of = [&](Address error) { return error + behind; };
  const auto cause_of = [&](Address error) { return error + behind + sizeof(Address); };
  const auto suppress = [&](Address error) { scene.fake.set<char>(error + behind + 2 * sizeof(Address), 1); };
  const Address first = scene.fake.exception(scene.args, 0), second = scene.fake.exception(scene.fake.tuple({}), 0);
  const Handled::Chained by_context{ExceptionLink::kContext, "RuntimeError", "loss is NaN"};
  const Handled::Chained by_cause{ExceptionLink::kCause, "RuntimeError", {}};
  using Chain = std::vector<Handled::Chained>;
  SECTION("none") { CHECK(scene.read()->chain.empty()); }
  SECTION("a context, and its cause") {
    scene.fake.set(context_of(scene.error), first);
    scene.fake.set(cause_of(first), second);
    CHECK(scene.read()->chain == Chain{by_context, by_cause});
  }
  SECTION("a cause comes before a context") {
    scene.fake.set(context_of(scene.error), first);
    scene.fake.set(cause_of(scene.error), second);
    suppress(scene.error);
    CHECK(scene.read()->chain == Chain{by_cause});
  }
  SECTION("a suppressed context") {
    scene.fake.set(context_of(scene.error), first);
    scene.fake.set(cause_of(first), second);
    suppress(scene.error);
    CHECK(scene.read()->chain.empty());
    CHECK(scene.read()->hidden == Chain{by_context, by_cause});
  }
  SECTION("a circle") {
    scene.fake.set(context_of(scene.error), first);
    scene.fake.set(context_of(first), scene.error);
    CHECK(scene.read()->chain == Chain{by_context});
  }
  SECTION("a very long one") {
    Address last = scene.error;
    for (int n = 0; n < 40; ++n) {
      const Address next = scene.fake.exception(scene.args, 0);
      scene.fake.set(context_of(last), next);
      last = next;
    }
    CHECK(scene.read()->chain == Chain(python::kMaxChain, by_context));
  }
  SECTION("where they were raised") {
    scene.fake.set(context_of(scene.error), first);
    scene.fake.set(first + scene.fake.layout().exception_traceback, scene.handler);
    CHECK(scene.read()->chain.at(0).raised == scene.place("step", 34));
    scene.fake.set(scene.raised + scene.fake.layout().traceback_next, scene.handler);
    CHECK_FALSE(scene.read()->chain.at(0).raised.has_value());
  }
  SECTION("no exception") {
    scene.fake.set(context_of(scene.error), GENERATE_COPY(kNowhere, first + 4, scene.fake.none()));
    CHECK(scene.read()->chain.empty());
  }
}

TEST_CASE("from 3.11 on, lines that the traceback leaves open follow from its instruction") {
  Scene scene(GENERATE(6, 10, 11, 12, 13, 14, 15, 16));
  scene.fake.set<std::int32_t>(scene.raised + scene.fake.layout().traceback_line, -1);
  const bool by_instruction = scene.fake.layout().minor >= 11;
  CHECK(scene.read()->raised == scene.place("step", by_instruction ? std::optional(7) : std::nullopt));
  scene.fake.set<std::int32_t>(scene.raised + scene.fake.layout().traceback_instruction, 100'000);
  CHECK(scene.read()->raised == scene.place("step", std::nullopt));
}

TEST_CASE("threads that handle nothing") {
  Scene scene(GENERATE(6, 7, 10, 11, 13, 14, 16));
  SECTION("no exception") { scene.fake.set_handled(scene.thread, 0); }
  SECTION("None") { scene.fake.set_handled(scene.thread, scene.fake.none()); }
  SECTION("no object") { scene.fake.set_handled(scene.thread, kNowhere); }
  SECTION("an odd address") { scene.fake.set_handled(scene.thread, scene.error + 4); }
  SECTION("an object that is no exception") { scene.fake.set_handled(scene.thread, scene.fake.integer(1)); }
  SECTION("no type") { scene.fake.set(scene.error + scene.fake.layout().object_type, kNowhere); }
  SECTION("a type that is not ready") {
    scene.fake.set(FakeInterpreter::kErrorType + scene.fake.layout().type_flags, std::uint64_t{1} << 30);
  }
  SECTION("no item") {
    if (scene.fake.layout().thread_exc_info == python::kAbsent) scene.fake.set_handled(scene.thread, 0);
    else
      scene.fake.set(scene.thread + scene.fake.layout().thread_exc_info,
                     GENERATE(Address{0}, kNowhere, Address{0x10004}, ~Address{7}));
  }
  CHECK_FALSE(scene.read().has_value());
}

TEST_CASE("a generator that handles no exception of its own is in that of its callers") {
  Scene scene(GENERATE(7, 10, 11, 12, 13, 15, 16));
  const auto& layout = scene.fake.layout();
  const Address outer = scene.fake.exc_item(scene.error), middle = scene.fake.exc_item(scene.fake.none(), outer),
                inner = scene.fake.exc_item(0, middle);
  scene.fake.set(scene.thread + layout.thread_exc_info, inner);
  CHECK(scene.read().has_value());
  SECTION("items in a circle") {
    scene.fake.set(middle + layout.exc_item_previous, inner);
    CHECK_FALSE(scene.read().has_value());
  }
  SECTION("an item whose value is no exception") {
    scene.fake.set(middle + layout.exc_item_value, scene.fake.integer(7));
    CHECK_FALSE(scene.read().has_value());
  }
  SECTION("the innermost counts") {
    scene.fake.set(inner + layout.exc_item_value, scene.fake.exception(scene.fake.tuple({}), 0));
    const auto handled = scene.read();
    REQUIRE(handled.has_value());
    CHECK_FALSE(handled->message.has_value());
  }
}

TEST_CASE("more items than are followed") {
  Scene scene(11);
  const auto handles = [&](std::size_t empty) {
    Address item = scene.fake.exc_item(scene.error);
    for (std::size_t i = 0; i < empty; ++i) item = scene.fake.exc_item(0, item);
    scene.fake.set(scene.thread + scene.fake.layout().thread_exc_info, item);
    return scene.read().has_value();
  };
  CHECK(handles(40));
  const Address loop = scene.fake.exc_item(0);
  scene.fake.set(loop + scene.fake.layout().exc_item_previous, loop);
  scene.fake.set(scene.thread + scene.fake.layout().thread_exc_info, loop);
  CHECK_FALSE(scene.read().has_value());
}

TEST_CASE("messages") {
  Scene scene(GENERATE(6, 9, 11, 12, 14, 16));
  const auto& layout = scene.fake.layout();
  const auto message_of = [&](Address args) {
    scene.fake.set(scene.error + layout.exception_args, args);
    const auto handled = scene.read();
    REQUIRE(handled.has_value());
    CHECK(handled->type == "RuntimeError");
    CHECK(handled->raised == scene.place("step", 34));
    return handled->message;
  };
  const auto of = [&](Address argument) { return message_of(scene.fake.tuple({argument})); };
  CHECK(of(scene.fake.string("")) == "");
  CHECK(of(scene.fake.string(std::string(200, 'x'))) == std::string(200, 'x'));
  CHECK(of(scene.fake.string(std::string(100'000, 'y'))) == std::string(200, 'y'));
  CHECK(of(scene.fake.string(U"\u00e9\x1b\n", 1)) == "\xc3\xa9\x1b\n");
  CHECK(of(scene.fake.string(U"\u5931\xd800", 2, false)) == "\xe5\xa4\xb1\xef\xbf\xbd");
  CHECK(of(scene.fake.string(std::u32string(300, U'\U0001f4a5'), 4))->size() == 800);
  CHECK(of(scene.fake.integer(1)) == "1");
  CHECK(of(scene.fake.none()) == "None");
  CHECK(of(scene.fake.integer({1}, 1, FakeInterpreter::kBoolType)) == "True");
  CHECK(of(scene.fake.tuple({scene.fake.integer(1)})) == "(1,)");
  CHECK_FALSE(of(scene.fake.dict({})).has_value());
  CHECK_FALSE(of(0).has_value());
  CHECK_FALSE(of(kNowhere).has_value());
  CHECK_FALSE(message_of(scene.fake.tuple({})).has_value());
  CHECK(message_of(scene.fake.tuple({scene.message, scene.fake.dict({})})) == "('loss is NaN', <dict>)");
  CHECK(message_of(scene.fake.tuple({scene.message, kNowhere})) == "('loss is NaN', <?>)");
  CHECK(message_of(scene.fake.tuple(std::vector<Address>(500, scene.fake.integer(7))))->size() == 200);
  const Address circle = scene.fake.tuple({0, scene.fake.integer(5)});
  scene.fake.set(circle + layout.tuple_items, circle);
  CHECK(message_of(circle).value_or("") == "((((((((<tuple>, 5), 5), 5), 5), 5), 5), 5), 5)");
  CHECK_FALSE(of(scene.error).has_value());  // itself
  CHECK_FALSE(message_of(0).has_value());
  CHECK_FALSE(message_of(kNowhere).has_value());
  CHECK_FALSE(message_of(scene.message).has_value());
  scene.fake.set(scene.message + layout.string_length, std::int64_t{-1});
  CHECK_FALSE(message_of(scene.args).has_value());
}

TEST_CASE("messages of an OSError and of a KeyError, by the class that the text is of") {
  Scene scene(GENERATE(6, 9, 11, 12, 14, 16));
  const auto& layout = scene.fake.layout();
  const Address words = sizeof(Address);
  const auto name_type = [&](const std::string& name) {
    const Address text = scene.fake.block(64);
    for (std::size_t i = 0; i <= name.size(); ++i) scene.fake.set(text + i, name.c_str()[i]);
    scene.fake.set(FakeInterpreter::kErrorType + layout.type_name, text);
  };
  const auto message = [&] {
    const auto handled = scene.read();
    REQUIRE(handled.has_value());
    return handled->message;
  };
  const Address error = scene.fake.block(256), fields = error + layout.exception_traceback + 4 * words;
  scene.fake.set(error + layout.object_type, FakeInterpreter::kErrorType);
  scene.fake.set(error + layout.exception_args, scene.args);
  scene.fake.set_handled(scene.thread, error);
  name_type("KeyError");
  CHECK(message() == "'loss is NaN'");
  name_type("OSError");
  CHECK(message() == "loss is NaN");
  scene.fake.set(fields, scene.fake.integer(2));
  CHECK(message() == "loss is NaN");
  scene.fake.set(fields + words, scene.fake.string("No such file"));
  CHECK(message() == "[Errno 2] No such file");
  scene.fake.set(fields + 2 * words, scene.fake.string("/x's"));
  CHECK(message() == "[Errno 2] No such file: \"/x's\"");
  scene.fake.set(fields + 3 * words, scene.fake.dict({}));
  CHECK(message() == "[Errno 2] No such file: \"/x's\" -> <dict>");
  // A class of the program's has this name.
  scene.fake.set<std::uint64_t>(FakeInterpreter::kErrorType + layout.type_flags,
                                std::uint64_t{1} << 12 | std::uint64_t{1} << 9 | std::uint64_t{1} << 30);
  CHECK(message() == "loss is NaN");
}

TEST_CASE("floats and texts as Python shows them") {
  CHECK(python::repr_of_float(0.1) == "0.1");
  CHECK(python::repr_of_float(-0.0) == "-0.0");
  CHECK(python::repr_of_float(1e16) == "1e+16");
  CHECK(python::repr_of_float(9999999999999998.0) == "9999999999999998.0");
  CHECK(python::repr_of_float(1e-5) == "1e-05");
  CHECK(python::repr_of_float(0.0001) == "0.0001");
  CHECK(python::repr_of_float(1.7976931348623157e308) == "1.7976931348623157e+308");
  CHECK(python::repr_of_text("") == "''");
  CHECK(python::repr_of_text("it's") == "\"it's\"");
  CHECK(python::repr_of_text("it's \"x\"") == "'it\\'s \"x\"'");
  CHECK(python::repr_of_text("a\n\x01\\\xc3\xa9\xe2\x80\xa8") == "'a\\n\\x01\\\\\xc3\xa9\\u2028'");
}

TEST_CASE("a type name that cannot be read") {
  Scene scene(GENERATE(6, 11, 14));
  scene.fake.set(FakeInterpreter::kErrorType + scene.fake.layout().type_name, kNowhere);
  const auto handled = scene.read();
  REQUIRE(handled.has_value());
  CHECK(handled->type.empty());
  CHECK(handled->message == "loss is NaN");
}

TEST_CASE("tracebacks that are damaged or missing") {
  Scene scene(GENERATE(6, 7, 10, 11, 12, 13, 14, 15, 16));
  const auto& layout = scene.fake.layout();
  bool has_handler = false;
  SECTION("none") { scene.set_traceback(0); }
  SECTION("None") { scene.set_traceback(scene.fake.none()); }
  SECTION("nowhere") { scene.set_traceback(kNowhere); }
  SECTION("odd") { scene.set_traceback(scene.handler + 1); }
  SECTION("another object") { scene.set_traceback(scene.args); }
  SECTION("whose next entry is no traceback") {
    scene.fake.set(scene.handler + layout.traceback_next, GENERATE(Address{kNowhere}, Address{1}));
    has_handler = true;
  }
  SECTION("whose next entry is another object") {
    scene.fake.set(scene.handler + layout.traceback_next, scene.args);
    has_handler = true;
  }
  SECTION("in a circle") {
    scene.fake.set(scene.raised + layout.traceback_next, GENERATE_COPY(Address{scene.handler}, Address{scene.raised}));
    has_handler = true;
  }
  SECTION("whose frames are no frames") {
    scene.fake.set(scene.handler + layout.traceback_frame, GENERATE_COPY(Address{0}, kNowhere, scene.args));
    scene.fake.set(scene.raised + layout.traceback_frame, scene.args + 1);
  }
  SECTION("whose frames have no code") {
    const Address wrong = GENERATE_COPY(Address{8}, kNowhere, scene.args);
    for (const Address entry : {scene.handler, scene.raised})
      scene.fake.set(entry + layout.traceback_frame, scene.fake.frame_object(scene.fake.frame(wrong, 0)));
  }
  const auto handled = scene.read();
  REQUIRE(handled.has_value());
  CHECK(handled->message == "loss is NaN");
  CHECK(handled->handler == (has_handler ? std::optional(scene.place("train", 12)) : std::nullopt));
  CHECK((handled->frame == scene.frame) == has_handler);
  CHECK_FALSE(handled->raised.has_value());
}

TEST_CASE("the last entry of a long traceback is where it was raised; for a too long one that is unknown") {
  Scene scene(GENERATE(9, 14));
  const bool too_long = GENERATE(false, true);
  Address at = scene.raised;
  for (std::size_t n = 2; n < python::kMaxTracebackEntries + too_long; ++n)
    at = scene.fake.traceback(scene.gone, at, 1);
  scene.fake.set(scene.handler + scene.fake.layout().traceback_next, at);
  const auto handled = scene.read();
  REQUIRE(handled.has_value());
  CHECK(handled->handler == scene.place("train", 12));
  CHECK(handled->raised == (too_long ? std::nullopt : std::optional(scene.place("step", 34))));
  // Of one that is too long the beginning.
  const std::size_t kept = too_long ? python::kMaxTracebackPlaces / 2 : python::kMaxTracebackPlaces;
  CHECK(handled->traceback.size() == kept);
  CHECK(handled->traceback.front() == scene.place("train", 12));
  REQUIRE(handled->traceback_omitted.has_value());
  CHECK(handled->traceback_omitted->at == python::kMaxTracebackPlaces / 2);
  CHECK(handled->traceback_omitted->count == python::kMaxTracebackEntries - kept);
}

TEST_CASE("the handler is the first entry whose frame is on the thread's stack") {
  Scene scene(GENERATE(6, 10, 11, 13, 14));
  SECTION("after the entry of another frame that handled it as well") {
    scene.set_traceback(scene.fake.traceback(scene.gone, scene.handler, 8));
    const auto handled = scene.read();
    CHECK(handled->frame == scene.frame);
    CHECK(handled->handler == scene.place("train", 12));
  }
  SECTION("otherwise the first entry") {
    scene.set_traceback(scene.raised);
    const auto handled = scene.read();
    CHECK(handled->frame == 0);
    CHECK(handled->handler == scene.place("step", 34));
    CHECK(handled->raised == scene.place("step", 34));
  }
}

TEST_CASE("many threads handle one exception, and unreadable code of it is not a problem of these threads") {
  Scene scene(GENERATE(8, 12, 15));
  const auto& layout = scene.fake.layout();
  const Address table = *scene.fake.target.read_value<Address>(scene.step + layout.code_line_table);
  scene.fake.set(table + layout.bytes_size, std::int64_t{-5});
  for (std::uint64_t i = 0; i < 50; ++i) scene.fake.set_handled(scene.fake.thread(0x8000 + i), scene.error);
  const auto state = scene.fake.read();
  REQUIRE(state.has_value());
  CHECK(state->problems.empty());
  CHECK_FALSE(state->partial);
  REQUIRE(state->threads.size() == 51);
  for (const python::ThreadState& thread : state->threads) {
    REQUIRE(thread.handles.has_value());
    CHECK(thread.handles->handler == scene.place("train", 12));
    CHECK(thread.handles->raised == scene.place("step", 34));
    CHECK((thread.handles->frame != 0) == (thread.pthread_id == 0x7000));
  }
}
