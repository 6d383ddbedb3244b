// Cores of a real program: what it printed about itself compared with what its core contains.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>

#include "core_fixture.h"
#include "target/core_target.h"

namespace rankstacks::target {
namespace {

using namespace testing;

#define SKIP_UNLESS(core)     \
  if ((core) == nullptr) {    \
    WARN("skipped: " << why); \
    return;                   \
  }

std::unique_ptr<CoreTarget> open(const std::string& path, elf::ImageCache& images, const CoreOptions& options = {}) {
  auto opened = CoreTarget::open(path, options, images);
  INFO(path);
  if (!opened) FAIL(opened.error().message());
  return std::move(*opened);
}

const Module* module_named(const CoreTarget& core, const std::string& end) {
  for (const Module& m : core.modules().all()) {
    if (m.path.ends_with(end)) return &m;
  }
  return nullptr;
}

void check_threads(const CoreTarget& core, const FixtureFacts& facts) {
  CHECK(core.pid() == facts.pid);
  REQUIRE(core.threads().size() == facts.threads.size());
  for (const FixtureThread& fact : facts.threads) {
    const auto threads = core.threads();
    const auto it =
        std::find_if(threads.begin(), threads.end(), [&](const ThreadInfo& t) { return t.tid == fact.tid; });
    REQUIRE(it != threads.end());
    REQUIRE(it->registers);
    CHECK(it->registers->known == (1u << kDwarfRegisters) - 1);
    CHECK(it->registers->fs_base == fact.thread_pointer);
    const auto mappings = core.mappings();
    const auto stack =
        std::find_if(mappings.begin(), mappings.end(), [&](const Mapping& m) { return m.range.contains(fact.local); });
    REQUIRE(stack != mappings.end());
    CHECK(stack->range.contains(it->registers->sp()));
    CHECK(stack->writable);
    CHECK((stack->path == "[stack]") == (fact.tid == facts.pid));
    // The pc is in code of a module.
    const Module* module = core.modules().find(it->registers->pc());
    REQUIRE(module != nullptr);
    CHECK(module->image != nullptr);
  }
}

void check_memory(const CoreTarget& core, const FixtureFacts& facts) {
  std::vector<std::byte> written(10000);
  REQUIRE(core.read_exact(facts.addresses.at("written"), written));
  for (std::size_t i = 0; i < written.size(); ++i) REQUIRE(written[i] == static_cast<std::byte>(i * 7));
  // Constants: not in the kernel's cores, so from the file.
  CHECK(core.read_c_string(facts.addresses.at("constant"), 100) == "constant of the program");
  CHECK(core.read_c_string(facts.addresses.at("library_constant"), 100) == "constant of the library");
  CHECK(core.read_c_string(facts.addresses.at("big") + (32 << 20), 100) == "in the middle of 64 MiB");
  CHECK(core.read_value<std::uint64_t>(facts.addresses.at("big")) == 0);
  CHECK_FALSE(core.read_value<char>(0x1230));
}

void check_modules(const CoreTarget& core, const FixtureFacts& facts) {
  const Module* library = module_named(core, "/libfixture.so");
  REQUIRE(library != nullptr);
  REQUIRE(library->image != nullptr);
  CHECK(library->why_no_image.empty());
  CHECK(library->build_id.size() == 20);
  CHECK(library->build_id == library->image->build_id());
  const auto symbol = library->image->find_symbol("library_function");
  REQUIRE(symbol);
  CHECK(library->to_address(symbol->value) == facts.addresses.at("library_function"));
  CHECK(core.modules().find(facts.addresses.at("library_function")) == library);
  const Module* program = module_named(core, "/fixture");
  REQUIRE(program != nullptr);
  CHECK(program->to_address(program->image->find_symbol("written")->value) == facts.addresses.at("written"));
  CHECK(core.executable() == program->path);
  CHECK(module_named(core, "/libc.so.6") != nullptr);
  CHECK(module_named(core, "/ld-linux-x86-64.so.2") != nullptr);
  const Module* vdso = module_named(core, "[vdso]");
  REQUIRE(vdso != nullptr);
  REQUIRE(vdso->image != nullptr);
  const auto clock = vdso->image->find_symbol("__vdso_clock_gettime");
  REQUIRE(clock);
  CHECK(core.modules().find(vdso->to_address(clock->value)) == vdso);
  CHECK(core.modules().all().size() == 5);

  // Code that is not in the core is read from the file, up to the last byte.
  const auto bytes = library->image->at(symbol->value).first(4);
  std::array<std::byte, 4> there{};
  REQUIRE(core.read_exact(facts.addresses.at("library_function"), there));
  CHECK(std::equal(bytes.begin(), bytes.end(), there.begin()));
}

void check_start(const CoreTarget& core) {
  std::vector<std::string> command{core.executable()};
  command.insert(command.end(), kFixtureArguments.begin(), kFixtureArguments.end());
  CHECK(core.command() == command);
  const auto& environment = core.environment();
  CHECK(environment.at("WORLD_SIZE") == "4");
  CHECK(environment.at("EMPTY").empty());
  CHECK(environment.at("EQUALS") == "a=b");
  CHECK(environment.at("RANK") == "3");  // set while it ran
  CHECK(environment.at("CHANGED") == "after");
  CHECK(environment.size() == 6);
}

void check_all(const CoreTarget& core, const FixtureFacts& facts) {
  for (const Problem& p : core.problems()) UNSCOPED_INFO("problem: " << p.message);
  CHECK(core.problems().empty());
  CHECK_FALSE(core.partial());
  check_threads(core, facts);
  check_memory(core, facts);
  check_modules(core, facts);
  check_start(core);
}

}  // namespace

TEST_CASE("gcore's core") {
  std::string why;
  const FixtureCore* made = gcore_core(why);
  SKIP_UNLESS(made);
  elf::ImageCache images;
  const auto core = open(made->path, images);
  check_all(*core, made->facts);
  CHECK_FALSE(core->signal());
  for (const ThreadInfo& thread : core->threads()) CHECK(thread.state == 0);
}

TEST_CASE("the kernel's core of an abort") {
  std::string why;
  const FixtureCore* made = kernel_core("abort", why);
  SKIP_UNLESS(made);
  elf::ImageCache images;
  const auto core = open(made->path, images);
  check_all(*core, made->facts);
  REQUIRE(core->signal());
  CHECK(core->signal()->number == SIGABRT);
  CHECK(core->signal()->name == "SIGABRT");
  CHECK(core->signal()->tid == made->facts.pid);
  CHECK(core->signal()->code == SI_TKILL);
  CHECK_FALSE(core->signal()->fault_address);
  CHECK(core->threads()[0].tid == made->facts.pid);
  CHECK(core->threads()[0].name == "fixture");
}

TEST_CASE("the kernel's core of a fault") {
  std::string why;
  const FixtureCore* made = kernel_core("fault", why);
  SKIP_UNLESS(made);
  elf::ImageCache images;
  const auto core = open(made->path, images);
  check_all(*core, made->facts);
  REQUIRE(core->signal());
  CHECK(core->signal()->name == "SIGSEGV");
  CHECK(core->signal()->code == SEGV_MAPERR);
  CHECK(core->signal()->fault_address == 0x1230);
  CHECK(core->threads()[0].registers->orig_rax == -1);
}

TEST_CASE("compressed cores read the same") {
  std::string why;
  const FixtureCore* made = kernel_core("abort", why);
  SKIP_UNLESS(made);
  elf::ImageCache images;
  const auto plain = open(made->path, images);
  TemporaryDirectory directory;
  const std::vector<std::pair<std::string, std::string>> tools{{"zstd", "zstd -q -c"},
                                                               {"pzstd", "pzstd -q -c"},
                                                               {"lz4", "lz4 -q -c"},
                                                               {"xz", "xz -0 -c"},
                                                               {"gzip", "gzip -1 -c"}};
  for (const auto& [tool, command] : tools) {
    if (!has_command(tool)) {
      WARN("skipped: " << tool << " is not installed");
      continue;
    }
    INFO(tool);
    const std::string path = directory / "core.without-suffix";  // recognised by its first bytes
    REQUIRE(run_command(command + " " + made->path + " >" + path));
    const auto core = open(path, images);
    check_all(*core, made->facts);
    REQUIRE(core->mappings().size() == plain->mappings().size());
    for (const Mapping& m : plain->mappings()) {
      std::vector<std::byte> one(std::min<std::uint64_t>(m.range.size(), 65 << 20)), other(one.size());
      const std::size_t n = plain->read(m.range.start, one);
      REQUIRE(core->read(m.range.start, other) == n);
      REQUIRE(one == other);
    }

    // Two compressed frames in sequence are one stream for each of these tools.
    const auto whole = read_file(made->path);
    write_file(directory / "first", std::span(whole).first(100'000));
    write_file(directory / "second", std::span(whole).subspan(100'000));
    REQUIRE(run_command("(" + command + " " + directory / "first" + "; " + command + " " + directory / "second" +
                        ") >" + path));
    check_memory(*open(path, images), made->facts);

    // Cut off: the data before the cut are available, and a problem is reported.
    REQUIRE(run_command(command + " " + made->path + " >" + path));
    auto compressed = read_file(path);
    compressed.resize(compressed.size() * 2 / 3);
    write_file(path, compressed);
    auto cut = CoreTarget::open(path, {}, images);
    REQUIRE(cut);
    CHECK((*cut)->partial());
    CHECK((*cut)->threads().size() == made->facts.threads.size());
    REQUIRE((*cut)->problems().size() >= 2);
    const std::string format = tool == "pzstd" ? "zstd" : tool;
    CHECK((*cut)->problems()[0].message == "the " + format + " data ends in the middle of a frame (at 0x" + [&] {
      std::array<char, 32> hex{};
      std::snprintf(hex.data(), hex.size(), "%zx", compressed.size());
      return std::string(hex.data());
    }() + ")");
    CHECK((*cut)->problems()[1].message.starts_with("the core is cut off: it ends at byte "));
  }
}

TEST_CASE("a core that is truncated anywhere opens, or an error says why not") {
  std::string why;
  const FixtureCore* made = kernel_core("abort", why);
  SKIP_UNLESS(made);
  elf::ImageCache images;
  TemporaryDirectory directory;
  const auto whole = read_file(made->path);
  for (const std::size_t part : {1u, 2u, 10u, 50u, 99u}) {
    const std::size_t size = whole.size() / 100 * part;
    write_file(directory / "core", std::span(whole).first(size));
    const auto core = open(directory / "core", images);
    CHECK(core->partial());
    CHECK(core->threads().size() == 3);
    CHECK(core->problems()[0].message.starts_with("the core is cut off: it ends at byte " + std::to_string(size) +
                                                  " of " + std::to_string(whole.size())));
  }
}

}  // namespace rankstacks::target
