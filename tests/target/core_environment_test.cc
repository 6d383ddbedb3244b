// Command line and environment of a core: from the block at the top of the stack, and from libc's `environ`.
#include <catch2/catch.hpp>

#include "support/elf_writer.h"
#include "support/fake_target.h"
#include "target/environment_block.h"
#include "target/initial_block.h"

namespace rankstacks::target {
namespace {

using namespace testing;

constexpr Address kBlock = 0x1000;
constexpr Address kStack = 0x7fff'0000'0000;

// A target whose variable at 0x10 points to `strings`, which lie from 0x100000 on.
FakeTarget with_environment(const std::vector<std::string>& strings) {
  FakeTarget target;
  target.put_value(0x10, kBlock);
  Bytes block, text;
  for (const std::string& s : strings) {
    append_value(block, std::uint64_t{0x100000 + text.size()});
    append(text, std::string_view(s.c_str(), s.size() + 1));
  }
  append_value(block, std::uint64_t{0});
  target.put(kBlock, block);
  target.put(0x100000, text);
  return target;
}

using Environment = std::map<std::string, std::string>;

// A stack as the kernel lays it out. `wrong_argc` is added to argc.
struct Stack {
  std::vector<std::string> arguments{"python3", "", "a b"};
  std::vector<std::string> variables{"RANK=1", "EMPTY=", "odd"};
  std::uint64_t wrong_argc = 0;
  bool with_auxv = true;
  Address name = 0;

  AuxiliaryVector auxv() const { return {{AT_PAGESZ, 4096}, {AT_EXECFN, name}}; }

  Bytes write() {
    const std::size_t words = 1 + arguments.size() + 1 + variables.size() + 1 + 6;
    Bytes strings;
    std::vector<std::uint64_t> pointers;
    const Address strings_at = kStack + 64 + words * 8;
    const auto add = [&](const std::string& s) {
      pointers.push_back(strings_at + strings.size());
      append(strings, std::string_view(s.c_str(), s.size() + 1));
    };
    for (const auto& s : arguments) add(s);
    for (const auto& s : variables) add(s);
    name = strings_at + strings.size();
    append(strings, std::string_view("/usr/bin/python3\0\0\0\0\0\0\0\0", 25));
    Bytes stack(64);
    append_value(stack, std::uint64_t{arguments.size() + wrong_argc});
    for (std::size_t i = 0; i < arguments.size(); ++i) append_value(stack, pointers[i]);
    append_value(stack, std::uint64_t{0});
    for (std::size_t i = arguments.size(); i < pointers.size(); ++i) append_value(stack, pointers[i]);
    append_value(stack, std::uint64_t{0});
    if (with_auxv) append(stack, auxv_note(auxv()));
    else append(stack, Bytes(48, std::byte{0x77}));
    append(stack, strings);
    return stack;
  }
};

}  // namespace

TEST_CASE("the current environment") {
  CHECK(read_current_environment(with_environment({"RANK=2", "A=b=c", "EMPTY=", "nothing", "=x", "RANK=9"}), 0x10) ==
        Environment{{"RANK", "2"}, {"A", "b=c"}, {"EMPTY", ""}});
  CHECK(read_current_environment(with_environment({}), 0x10).empty());
  CHECK(read_current_environment(FakeTarget{}, 0x10).empty());
  FakeTarget null;
  null.put_value(0x10, Address{0});
  CHECK(read_current_environment(null, 0x10).empty());
}

TEST_CASE("an environment is bounded") {
  std::vector<std::string> many;
  for (int i = 0; i < 6000; ++i) many.push_back("V" + std::to_string(i) + "=x");
  CHECK(read_current_environment(with_environment(many), 0x10).size() == 4096);
  CHECK(read_current_environment(with_environment({"A=1", "LONG=" + std::string(40'000, 'x'), "B=2"}), 0x10) ==
        Environment{{"A", "1"}, {"B", "2"}});

  FakeTarget target = with_environment({"A=1"});
  Bytes wild;
  for (const std::uint64_t pointer : {std::uint64_t{0x100000}, std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{0}})
    append_value(wild, pointer);
  target.put(kBlock, wild);
  CHECK(read_current_environment(target, 0x10) == Environment{{"A", "1"}});
  target.put_value(0x10, ~std::uint64_t{0} - 4);
  CHECK(read_current_environment(target, 0x10).empty());

  // No NULL: the array ends where the memory does.
  FakeTarget endless = with_environment({"A=1"});
  endless.put_value(kBlock, std::uint64_t{0x100000});
  CHECK(read_current_environment(endless, 0x10) == Environment{{"A", "1"}});
}

TEST_CASE("the block at the top of the stack") {
  Stack stack;
  stack.write();  // the first call sets `name`, which the auxiliary vector contains
  const Bytes bytes = stack.write();
  const InitialBlock block = read_initial_block(bytes, kStack, stack.auxv());
  CHECK(block.command == std::vector<std::string>{"python3", "", "a b"});
  CHECK(block.environment == Environment{{"RANK", "1"}, {"EMPTY", ""}});
}

TEST_CASE("a block without arguments or variables") {
  Stack stack;
  stack.arguments.clear();
  stack.variables.clear();
  stack.write();
  const InitialBlock block = read_initial_block(stack.write(), kStack, stack.auxv());
  CHECK(block.command.empty());
  CHECK(block.environment.empty());
}

TEST_CASE("a damaged block gives those variables that are recognisable by themselves") {
  Stack stack;
  stack.variables = {"not one", "RANK=1", "WORLD_SIZE=2"};
  SECTION("argc is wrong") { stack.wrong_argc = 1; }
  SECTION("the auxiliary vector is not on the stack") { stack.with_auxv = false; }
  stack.write();
  const InitialBlock block = read_initial_block(stack.write(), kStack, stack.auxv());
  CHECK(block.command.empty());
  CHECK(block.environment == Environment{{"RANK", "1"}, {"WORLD_SIZE", "2"}});
}

TEST_CASE("a block in which nothing can be trusted") {
  Stack stack;
  stack.write();
  const Bytes bytes = stack.write();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    read_initial_block(std::span(bytes).first(size), kStack, stack.auxv());
  CHECK(read_initial_block({}, kStack, stack.auxv()).environment.empty());
  CHECK(read_initial_block(Bytes(4096), kStack, {}).environment.empty());
  CHECK(read_initial_block(Bytes(4096), kStack, {{AT_EXECFN, 12}}).environment.empty());
  // All pointers lead to the same long string: the total size of the strings that are kept is bounded.
  Stack same;
  same.variables.assign(2000, "A=" + std::string(10'000, 'x'));
  same.write();
  CHECK(read_initial_block(same.write(), kStack, same.auxv()).environment.size() == 1);
}

}  // namespace rankstacks::target
