// The exceptions of this process's own threads, read like those of any target; and modified versions of the code and
// the structures that lead to them.
#include <catch2/catch.hpp>

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/uio.h>
#include <unistd.h>
#include <array>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "support/fake_target.h"
#include "target/cxx_exceptions.h"

// Laid out like PyTorch's exceptions (c10/util/Exception.h): the message comes first.
namespace c10 {
class Error : public std::exception {
 public:
  explicit Error(std::string text) : message_(std::move(text)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
  std::string rest_ = "what a reader must not take for the message";
};
class DistError : public Error {
  using Error::Error;
};
class DistBackendError : public DistError {
 public:
  using DistError::DistError;
};
}  // namespace c10

using namespace rankstacks;
using namespace rankstacks::target;
using rankstacks::testing::FakeTarget;

namespace {

// This process, whose only thread is the calling one.
class OwnProcess : public FakeTarget {
 public:
  OwnProcess() {
    Registers registers;
    __asm__("mov %%fs:0, %0" : "=r"(registers.fs_base));
    threads_.push_back({});
    threads_.front().tid = gettid();
    threads_.front().registers = registers;
    std::vector<Module> modules;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* into) {
          Module module;
          const std::string name = info->dlpi_name;
          module.path = name.empty() ? "/proc/self/exe" : name;
          module.bias = info->dlpi_addr;
          module.range = {~Address{0}, 0};
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
            module.range.start = std::min<Address>(module.range.start, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
            module.range.end = std::max<Address>(
                module.range.end, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
          }
          if (auto image = elf::Image::open(module.path, module.path)) module.image = *image;
          static_cast<std::vector<Module>*>(into)->push_back(std::move(module));
          return 0;
        },
        &modules);
    modules_ = ModuleMap(std::move(modules));
  }

  std::size_t read(Address address, std::span<std::byte> into) const noexcept override {
    const iovec local{into.data(), into.size()}, remote{reinterpret_cast<void*>(address), into.size()};
    const ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    return n < 0 ? 0 : static_cast<std::size_t>(n);
  }
};

std::optional<HeldException> held_here() {
  const OwnProcess process;
  const CxxRuntime runtime = find_cxx_runtime(process.modules());
  REQUIRE(!runtime.storage.empty());
  const auto held = read_held_exceptions(process, runtime).handled;
  REQUIRE(held.size() == 1);
  return held.front();
}

template <class Exception>
std::optional<HeldException> held_after_throw(const Exception& exception) {
  try {
    throw exception;
  } catch (...) {
    return held_here();
  }
}

struct Tagged : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Tag {
  virtual ~Tag() = default;
  long number = 7;
};
struct TwoBases : Tag, std::logic_error {
  TwoBases() : std::logic_error("from the second base") {}
};
struct OwnText : std::exception {
  const char* what() const noexcept override { return "made when it is asked for"; }
};

std::vector<std::byte> code(std::initializer_list<int> bytes) {
  std::vector<std::byte> made;
  for (const int b : bytes) made.push_back(static_cast<std::byte>(b));
  return made;
}

}  // namespace

TEST_CASE("the exception that a thread handles") {
  CHECK(!held_here());
  SECTION("the standard library's") {
    const auto held = held_after_throw(std::runtime_error("connection reset by peer"));
    REQUIRE(held);
    CHECK(held->type == "St13runtime_error");
    CHECK(held->what == "connection reset by peer");
    CHECK(held_after_throw(std::out_of_range("index 7"))->what == "index 7");
    CHECK(held_after_throw(std::system_error(std::make_error_code(std::errc::timed_out), "store"))->what ==
          "store: Connection timed out");
  }
  SECTION("derived from it, directly or together with another base") {
    const auto held = held_after_throw(Tagged("with a type of its own"));
    REQUIRE(held);
    CHECK(held->type.find("Tagged") != std::string::npos);
    CHECK(held->what == "with a type of its own");
    CHECK(held_after_throw(TwoBases())->what == "from the second base");
  }
  SECTION("PyTorch's, whose message may be stored in the object") {
    const auto held = held_after_throw(c10::DistBackendError("short"));
    REQUIRE(held);
    CHECK(held->type == "N3c1016DistBackendErrorE");
    CHECK(held->what == "short");
    const std::string text =
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE)";
    CHECK(held_after_throw(c10::Error(text))->what == text);
  }
  SECTION("rethrown by exception_ptr, as the watchdog does, while another one is handled") {
    try {
      throw std::logic_error("the first");
    } catch (...) {
      const auto again = std::make_exception_ptr(c10::DistBackendError("the second, from far away in memory"));
      try {
        std::rethrow_exception(again);
      } catch (...) {
        CHECK(held_here()->what == "the second, from far away in memory");
      }
      CHECK(held_here()->what == "the first");
    }
  }
  SECTION("an exception whose text is not in memory is reported with its type only") {
    const auto held = held_after_throw(OwnText());
    REQUIRE(held);
    CHECK(held->type.find("OwnText") != std::string::npos);
    CHECK(!held->what);
  }
  SECTION("of types that are no classes") {
    CHECK(held_after_throw(42) == HeldException{"i", "42"});
    CHECK(held_after_throw(-7L) == HeldException{"l", "-7"});
    CHECK(held_after_throw(2.5) == HeldException{"d", "2.5"});
    CHECK(held_after_throw(static_cast<const char*>("no such shard")) == HeldException{"PKc", "no such shard"});
    enum class Fault { kLost };
    const auto held = held_after_throw(Fault::kLost);
    REQUIRE(held);
    CHECK(held->type.find("Fault") != std::string::npos);
    CHECK(!held->what);
    CHECK(!held_after_throw(static_cast<const void*>(nullptr))->what);
  }
  SECTION("a string") {
    CHECK(held_after_throw(std::string("short"))->what == "short");
    CHECK(held_after_throw(std::string("one that is too long to be stored in the object"))->what ==
          "one that is too long to be stored in the object");
  }
  SECTION("one that has another one within") {
    try {
      try {
        throw std::logic_error("within");
      } catch (...) {
        std::throw_with_nested(std::runtime_error("around it"));
      }
    } catch (...) {
      CHECK(held_here()->what == "around it");
    }
  }
  SECTION("on another thread, whose TLS block the loader allocated later") {
    std::optional<HeldException> held;
    std::thread([&] { held = held_after_throw(std::runtime_error("of a thread")); }).join();
    REQUIRE(held);
    CHECK(held->what == "of a thread");
  }
  SECTION("while another exception propagates, it is not known which one would be the reason of an end") {
    struct Reader {
      std::optional<HeldException>& into;
      ~Reader() { into = held_here(); }
    };
    std::optional<HeldException> held;
    try {
      throw std::logic_error("handled");
    } catch (...) {
      CHECK(held_here()->alone);
      try {
        const Reader reader{held};
        throw std::runtime_error("on its way");
      } catch (...) {}
    }
    REQUIRE(held);
    CHECK(held->what == "handled");
    CHECK_FALSE(held->alone);
  }
}

namespace {

// libstdc++'s structures: fs_base is 0x1000; the globals are at fs_base - 0x100, the stack at 0x20000.
struct Unwinding {
  static constexpr Address kFs = 0x1000, kGlobals = kFs - 0x100, kStack = 0x20000, kHandler = kStack + 0x800;
  static constexpr Address kHeader = 0x300010, kUnwindHeader = kHeader + 80;
  FakeTarget fake;
  CxxRuntime runtime{{{.offset = -0x100}}, {0x5000}, {0x6000}, {0x7000}, {}};
  std::array<std::uint64_t, 2> owners{1, 0};
  std::array<std::uint64_t, 14> header{};
  std::uint64_t uncaught = 1;
  std::array<std::uint64_t, 0x1000 / 8> stack{};

  Unwinding() {
    ThreadInfo thread;
    thread.registers = Registers{};
    thread.registers->fs_base = kFs;
    thread.registers->set(kRsp, kStack);
    fake.threads_ = {thread};
    header[0] = 0x4000;
    header[10] = 0x474e5543432b2b00;
    header[13] = kHandler;
    stack[9] = kUnwindHeader;
    fake.put_value<std::array<std::uint64_t, 2>>(0x4000, {0x5000, 0x9000});
    fake.put(0x9000, code({'S', 't', '1', '3', 'r', 'u', 'n', 't', 'i', 'm', 'e', '_', 'e', 'r', 'r', 'o', 'r', 0}));
    fake.put_value<std::array<std::uint64_t, 4>>(0x8000, {5, 5, 0, 0x006f6c6c6568});  // "hello"
  }
  void put(Address at, const std::array<std::uint64_t, 14>& bytes) {
    fake.put_value(at - 16, owners);
    fake.put_value(at, bytes);
    fake.put_value<std::array<std::uint64_t, 2>>(at + 112, {0, 0x8018});
  }
  std::optional<HeldException> raised() {
    fake.put_value<std::array<std::uint64_t, 2>>(kGlobals, {0, uncaught});
    put(kHeader, header);
    fake.put_value(kStack, stack);
    const HeldExceptions held = read_held_exceptions(fake, runtime);
    CHECK(!held.handled.front());
    return held.raised.front();
  }
};

}  // namespace

TEST_CASE("an exception that is on its way is found on the stack") {
  Unwinding unwinding;
  const HeldException hello{"St13runtime_error", "hello"};
  CHECK(unwinding.raised() == hello);
  CHECK(unwinding.raised()->handler_sp == Unwinding::kHandler);
  SECTION("in a register") {
    unwinding.stack[9] = 0;
    CHECK(!unwinding.raised());
    unwinding.fake.threads_[0].registers->set(kRbx, Unwinding::kUnwindHeader);
    CHECK(unwinding.raised() == hello);
  }
  SECTION("only of a thread that counts one") {
    unwinding.uncaught = 0;
    CHECK(!unwinding.raised());
  }
  SECTION("none that is handled, that has ended, or whose handler has been left") {
    unwinding.header[5] = 1;  // handlerCount
    CHECK(!unwinding.raised());
    unwinding.header[5] = 0xffffffff;  // -1: thrown again
    CHECK(unwinding.raised());
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{0x7f12345678}}) {
      unwinding.owners[0] = count;
      CHECK(!unwinding.raised());
    }
    unwinding.owners[0] = 2;
    CHECK(unwinding.raised());
    unwinding.header[13] = Unwinding::kStack - 16;
    CHECK(!unwinding.raised());
  }
  SECTION("the innermost of two; if the thread counts fewer, it is not known which they are") {
    auto other = unwinding.header;
    other[13] = Unwinding::kHandler - 0x100;
    constexpr Address kOther = Unwinding::kHeader + 0x1000;
    unwinding.put(kOther, other);
    unwinding.stack[20] = kOther + 80;
    CHECK(!unwinding.raised());
    unwinding.uncaught = 2;
    CHECK(unwinding.raised()->handler_sp == Unwinding::kHandler - 0x100);
  }
}

TEST_CASE("texts") {
  CHECK(held_after_throw(std::runtime_error(""))->what == "");
  CHECK(held_after_throw(std::runtime_error("two\nlines\tand Grüße"))->what == "two\nlines\tand Grüße");
  CHECK(!held_after_throw(std::runtime_error("\x1b[31mred"))->what);
  CHECK(!held_after_throw(std::runtime_error("no \xff UTF-8"))->what);
  SECTION("long ones are cut off between characters") {
    const std::string text = std::string(kMaxExceptionText - 1, 'x') + "ü and more";
    CHECK(held_after_throw(std::runtime_error(text))->what == std::string(kMaxExceptionText - 1, 'x'));
  }
}

TEST_CASE("a thread whose structures lead nowhere holds nothing") {
  const OwnProcess process;
  const CxxRuntime runtime = find_cxx_runtime(process.modules());
  FakeTarget fake;
  ThreadInfo thread;
  thread.registers = Registers{};
  for (const Address fs_base : {Address{0}, Address{0x1000}, ~Address{0}, ~Address{0} - 8}) {
    thread.registers->fs_base = fs_base;
    fake.threads_ = {thread};
    CHECK(read_held_exceptions(fake, runtime).handled == std::vector<std::optional<HeldException>>(1));
  }
  SECTION("lists that lead to themselves, and absurd sizes") {
    // fs_base is 0x1000; the globals are at fs_base - 0x100, as with local exec; the exception at 0x3000 states its
    // class, and its type is at 0x4000.
    CxxRuntime literal{{{.offset = -0x100}}, {0x5000}, {0x6000}, {0x7000}};
    thread.registers->fs_base = 0x1000;
    fake.threads_ = {thread};
    fake.put_value<std::array<std::uint64_t, 2>>(0xf00, {0x3000, 0});
    std::array<std::uint64_t, 14> header{};
    header[0] = 0x4000;
    header[10] = 0x474e5543432b2b00;
    fake.put_value(0x3000, header);
    fake.put_value<std::array<std::uint64_t, 4>>(0x3070, {0, 0x8018, 0, 0});
    fake.put_value<std::array<std::uint64_t, 3>>(0x4000, {0x6000, 0x9000, 0x4000});  // its base is itself
    fake.put(0x9000, code({'3', 'a', 'b', 'c', 0}));
    const auto held = read_held_exceptions(fake, literal).handled;
    REQUIRE(held.front());
    CHECK(held.front()->type == "3abc");
    CHECK(!held.front()->what);
    fake.put(0x9000, code({'S', 't', '1', '3', 'r', 'u', 'n', 't', 'i', 'm', 'e', '_', 'e', 'r', 'r', 'o', 'r', 0}));
    fake.put_value<std::array<std::uint64_t, 3>>(
        0x8000, {~std::uint64_t{0}, ~std::uint64_t{0}, 0});  // a text of 2^64 - 1 characters
    CHECK(!read_held_exceptions(fake, literal).handled.front()->what);
    fake.put_value<std::array<std::uint64_t, 3>>(0x8000, {9, 5, 0});  // longer than its capacity
    CHECK(!read_held_exceptions(fake, literal).handled.front()->what);
    fake.put_value<std::array<std::uint64_t, 4>>(0x8000, {5, 5, 0, 0x006f6c6c6568});  // "hello"
    CHECK(read_held_exceptions(fake, literal).handled.front()->what == "hello");
    SECTION("a type_info whose vtable is not one of libstdc++'s") {
      literal.single_bases.clear();
      CHECK(!read_held_exceptions(fake, literal).handled.front());
    }
    SECTION("another language's exception") {
      header[10] = 0x4f5a3443432b2b00;
      fake.put_value(0x3000, header);
      CHECK(!read_held_exceptions(fake, literal).handled.front());
    }
  }
}

// libc++abi's structures, as a thread of LLVM 14 has them: fs_base is 0x1000, the key 37 in a block of 32 values each.
TEST_CASE("an exception of libc++abi") {
  constexpr Address kFs = 0x1000, kKey = 0x800, kBlock = 0x2000, kGlobals = 0x2800, kHeader = 0x3000,
                    kObject = kHeader + 128, kType = 0x4000;
  constexpr std::uint64_t kMark = 0x434c4e47432b2b00;
  FakeTarget fake;
  ThreadInfo thread;
  thread.registers = Registers{};
  thread.registers->fs_base = kFs;
  fake.threads_ = {thread};
  CxxRuntime runtime{{{.key = kKey}}, {0x5000}, {0x6000}, {0x7000}, ThreadSpecifics{0x510, 32, 32}};
  fake.put_value<std::uint32_t>(kKey, 37);
  fake.put_value<Address>(kFs + 0x510 + 8, kBlock);
  fake.put_value<std::array<std::uint64_t, 2>>(kBlock + 5 * 16, {3, kGlobals});
  fake.put_value<std::array<std::uint64_t, 2>>(kGlobals, {kHeader, 0});
  // reserve, referenceCount, exceptionType, ..., unwindHeader { exception_class, ... }
  std::array<std::uint64_t, 16> header{};
  header[1] = 1;
  header[2] = kType;
  header[12] = kMark;
  fake.put_value(kHeader, header);
  fake.put_value<std::array<std::uint64_t, 2>>(kType, {0x5000, 0x9000});
  const auto put_name = [&](const std::string& name) {
    std::vector<std::byte> bytes;
    for (const char c : name) bytes.push_back(static_cast<std::byte>(c));
    bytes.push_back(std::byte{0});
    fake.put(0x9000, bytes);
  };
  put_name("St13runtime_error");
  fake.put_value<std::array<std::uint64_t, 2>>(kObject, {0, 0x8018});
  fake.put_value<std::array<std::uint64_t, 4>>(0x8000, {5, 5, 0, 0x006f6c6c6568});  // "hello"
  const auto held = [&] { return read_held_exceptions(fake, runtime).handled.front(); };
  REQUIRE(held());
  CHECK(*held() == HeldException{"St13runtime_error", "hello"});

  SECTION("in a thread-local variable") {
    runtime.storage = {{.offset = -0x100}};
    fake.put_value<std::array<std::uint64_t, 2>>(kFs - 0x100, {kHeader, 0});
    CHECK(held()->what == "hello");
    SECTION("while the thread holds one of another library as well: it is not known which one is the reason") {
      runtime.storage.push_back({.key = kKey});
      CHECK(held()->what == "hello");  // the same exception
      header[2] = kType + 0x100;
      fake.put_value<std::array<std::uint64_t, 2>>(kType + 0x100, {0x5000, 0x9100});
      fake.put(0x9100, code({'3', 'a', 'b', 'c', 0}));
      fake.put_value(0x3800, header);
      fake.put_value<std::array<std::uint64_t, 2>>(kGlobals, {0x3800, 0});
      REQUIRE(held());
      CHECK_FALSE(held()->alone);
    }
  }
  SECTION("rethrown by exception_ptr") {
    std::array<std::uint64_t, 16> dependent{};
    dependent[1] = kObject;
    dependent[2] = kType;
    dependent[12] = kMark + 1;
    fake.put_value(0x3800, dependent);
    fake.put_value<std::array<std::uint64_t, 2>>(kGlobals, {0x3800, 0});
    CHECK(held()->what == "hello");
  }
  SECTION("PyTorch's, with both forms of libc++'s std::string") {
    put_name("N3c105ErrorE");
    fake.put_value<std::array<std::uint64_t, 4>>(kObject, {0, 0x6f6c6c65680a, 0, 0});  // 2 * 5, "hello"
    CHECK(held()->what == "hello");
    fake.put_value<std::array<std::uint64_t, 4>>(kObject, {0, 0x6f6c6c65680c, 0, 0});  // longer than what is there
    CHECK(!held()->what);
    fake.put_value<std::array<std::uint64_t, 4>>(kObject, {0, 16 | 1, 5, 0x8018});
    CHECK(held()->what == "hello");
    fake.put_value<std::array<std::uint64_t, 4>>(kObject, {0, 16 | 1, 16, 0x8018});  // no room for the 0
    CHECK(!held()->what);
    // libstdc++'s form is not one of libc++'s.
    fake.put_value<std::array<std::uint64_t, 4>>(kObject, {0, kObject + 24, 5, 0x006f6c6c6568});
    CHECK(!held()->what);
  }
  SECTION("with the header of older versions, which have no `reserve`") {
    // referenceCount, exceptionType, exceptionDestructor, ..., and padding before the unwinder's part
    header[1] = kType;
    header[2] = 0xa000;
    fake.put_value(kHeader, header);
    fake.put(0xa000, std::vector<std::byte>(64, std::byte{0x90}));
    CHECK(!held());
  }
  SECTION("of GCC's, in libc++abi's list") {
    header[12] = 0x474e5543432b2b00;
    fake.put_value(kHeader, header);
    CHECK(!held());
  }
  SECTION("one in flight") {
    fake.put_value<std::array<std::uint64_t, 2>>(kGlobals, {kHeader, 1});
    REQUIRE(held());
    CHECK_FALSE(held()->alone);
  }
  SECTION("a key that is not in use, has no block, or is none") {
    fake.put_value<std::array<std::uint64_t, 2>>(kBlock + 5 * 16, {4, kGlobals});
    CHECK(!held());
    fake.put_value<Address>(kFs + 0x510 + 8, 0);
    CHECK(!held());
    fake.put_value<std::uint32_t>(kKey, 32 * 32);
    CHECK(!held());
    runtime.specifics.reset();
    CHECK(!held());
  }
}

TEST_CASE("code that asks for a key's value") {
  constexpr Address kAt = 0x400000;
  // As Debian's libc++abi of LLVM 14 has it.
  const std::vector<std::byte> whole = code({0x50, 0x48, 0x8d, 0x3d, 0x1c, 0x28, 0x01, 0x00, 0x48, 0x8d, 0x35, 0x31,
                                             0x00, 0x00, 0x00, 0xe8, 0x1c, 0xa8, 0xfe, 0xff, 0x85, 0xc0, 0x75, 0x0c,
                                             0x8b, 0x3d, 0x02, 0x28, 0x01, 0x00, 0x58, 0xe9, 0x1c, 0xa8, 0xfe, 0xff});
  CHECK(decode_exception_key(whole, kAt) == kAt + 0x1e + 0x12802);
  SECTION("with a call at its end") {
    std::vector<std::byte> calls(whole.begin(), whole.begin() + 0x1e);
    const auto end = code({0xff, 0x15, 0x00, 0x10, 0x00, 0x00, 0x5a, 0xc3});
    calls.insert(calls.end(), end.begin(), end.end());
    CHECK(decode_exception_key(calls, kAt) == kAt + 0x1e + 0x12802);
  }
  SECTION("other code is not interpreted") {
    for (std::size_t length = 0; length < whole.size(); ++length)
      CHECK(!decode_exception_key(std::span(whole).first(length), kAt));
    CHECK(!decode_exception_storage(whole, kAt));
    CHECK(!decode_exception_key(code({0x8b, 0x3d, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0}), kAt));  // without pthread_once
    CHECK(!decode_exception_key(std::vector<std::byte>(64, std::byte{0x50}), kAt));
  }
}

TEST_CASE("code that returns a thread-local variable's address") {
  constexpr Address kAt = 0x400000;
  SECTION("local dynamic, as Debian's libstdc++ has it") {
    const auto storage = decode_exception_storage(
        code({0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08, 0x48, 0x8d, 0x3d, 0x71, 0xad, 0x16, 0x00, 0xe8,
              0x3c, 0x2c, 0xff, 0xff, 0x48, 0x83, 0xc4, 0x08, 0x48, 0x05, 0x10, 0x00, 0x00, 0x00, 0xc3}),
        kAt);
    REQUIRE(storage);
    CHECK(storage->module_slot == kAt + 15 + 0x16ad71);
    CHECK(storage->offset == 0x10);
    CHECK(!storage->offset_slot);
  }
  SECTION("general dynamic, with the padding that linkers need") {
    const auto storage =
        decode_exception_storage(code({0x55, 0x48, 0x89, 0xe5, 0x66, 0x48, 0x8d, 0x3d, 0x00, 0x01, 0x00,
                                       0x00, 0x66, 0x66, 0x48, 0xe8, 0x00, 0x00, 0x00, 0x00, 0x5d, 0xc3}),
                                 kAt);
    REQUIRE(storage);
    CHECK(storage->module_slot == kAt + 12 + 0x100);
    CHECK(storage->offset == 0);
  }
  SECTION("initial exec, in both orders") {
    for (const auto& bytes :
         {code({0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x48, 0x03, 0x05, 0x20, 0, 0, 0, 0xc3}),
          code({0x48, 0x8b, 0x05, 0x29, 0, 0, 0, 0x64, 0x48, 0x03, 0x04, 0x25, 0, 0, 0, 0, 0xc3})}) {
      const auto storage = decode_exception_storage(bytes, kAt);
      REQUIRE(storage);
      CHECK(storage->offset_slot == kAt + 0x30);
      CHECK(!storage->module_slot);
    }
  }
  SECTION("local exec") {
    const auto storage = decode_exception_storage(
        code({0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x48, 0x8d, 0x80, 0xe0, 0xff, 0xff, 0xff, 0xc3}), kAt);
    REQUIRE(storage);
    CHECK(storage->offset == -32);
    CHECK((!storage->module_slot && !storage->offset_slot));
  }
  SECTION("other code is not interpreted") {
    CHECK(!decode_exception_storage({}, kAt));
    CHECK(!decode_exception_storage(code({0xc3}), kAt));
    CHECK(!decode_exception_storage(code({0x31, 0xc0, 0xc3}), kAt));
    CHECK(!decode_exception_storage(code({0x48, 0x8d, 0x3d, 0x00, 0x01}), kAt));                       // cut off
    CHECK(!decode_exception_storage(code({0x64, 0x48, 0x8b, 0x04, 0x25, 0x10, 0, 0, 0, 0xc3}), kAt));  // %fs:16
    CHECK(!decode_exception_storage(
        code({0x48, 0x8d, 0x05, 0, 1, 0, 0, 0xff, 0x10, 0x64, 0x48, 0x03, 0x04, 0x25, 0, 0, 0, 0, 0xc3}),
        kAt));  // a descriptor
    CHECK(!decode_exception_storage(std::vector<std::byte>(64, std::byte{0x66}), kAt));
  }
}
