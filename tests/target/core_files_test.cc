// Which file is used for a module of a core: files of other machines, and replaced, missing and deleted ones.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "core_fixture.h"
#include "target/core_target.h"
#include "target/debian_packages.h"

namespace rankstacks::target {
namespace {

using namespace testing;
namespace fs = std::filesystem;

// A core of the fixture whose own files have been moved away, so that each test says where they are.
class MovedFixture {
 public:
  explicit MovedFixture(const FixtureCore& core) : core_(core) {
    std::string why;
    const BuiltFixture& built = *built_fixture(why);
    original_ = built.directory.path();
    fs::create_directories(away_ / "files");
    for (const char* name : {"fixture", "libfixture.so"}) fs::rename(original_ + "/" + name, away_ / "files/" + name);
  }
  ~MovedFixture() {
    for (const char* name : {"fixture", "libfixture.so"}) fs::rename(away_ / "files/" + name, original_ + "/" + name);
  }

  std::unique_ptr<CoreTarget> open(const CoreOptions& options = {}) {
    elf::ImageCache images;  // a new one, as a cache remembers files that were missing
    auto opened = CoreTarget::open(core_.path, options, images);
    if (!opened) FAIL(opened.error().message());
    return std::move(*opened);
  }
  std::string file(const std::string& name) const { return away_ / "files/" + name; }
  std::string original(const std::string& name) const { return original_ + "/" + name; }
  const TemporaryDirectory& directory() const { return away_; }

 private:
  const FixtureCore& core_;
  TemporaryDirectory away_;
  std::string original_;
};

const Module& module_named(const CoreTarget& core, const std::string& end) {
  for (const Module& m : core.modules().all()) {
    if (m.path.ends_with(end)) return m;
  }
  FAIL("no module " << end);
  std::abort();
}

bool reads_constants(const CoreTarget& core, const FixtureFacts& facts) {
  std::array<std::byte, 4> code{};
  return core.read_c_string(facts.addresses.at("library_constant"), 100) == "constant of the library" &&
         core.read_exact(facts.addresses.at("library_function"), code);
}

#define REQUIRE_CORE(name, how)  \
  std::string why;               \
  const FixtureCore* name = how; \
  if (name == nullptr) {         \
    WARN("skipped: " << why);    \
    return;                      \
  }

}  // namespace

TEST_CASE("files of a core that are missing") {
  REQUIRE_CORE(made, kernel_core("abort", why));
  MovedFixture moved(*made);
  const auto core = moved.open();
  REQUIRE(core->problems().size() == 1);
  const auto with_id = [&](const char* name) {
    const BuildId id = module_named(*core, std::string("/") + name).build_id;
    REQUIRE(id.size() == 20);
    return moved.original(name) + " (build-id " + elf::to_string(id) + ")";
  };
  CHECK(core->problems()[0].message ==
        "2 files of the process missing on this machine: " + with_id("fixture") + ", " + with_id("libfixture.so"));
  CHECK(core->problems()[0].hint ==
        "give them with --sysroot or --search, or open the core on the machine where it was taken");
  const Module& library = module_named(*core, "/libfixture.so");
  CHECK(library.image == nullptr);  // the kernel dumps only one page of a library: neither symbols nor unwind tables
  CHECK(library.why_no_image == "no such file on this machine");
  CHECK(library.build_id.size() == 20);
  CHECK(core->modules().find(made->facts.addresses.at("library_function")) == &library);
  CHECK_FALSE(reads_constants(*core, made->facts));
  CHECK(core->executable() == moved.original("fixture"));
  CHECK(core->environment().at("RANK") == "3");  // libc is available, and so is its `environ`
}

TEST_CASE("--search by base name, by build-id, and --exe") {
  REQUIRE_CORE(made, kernel_core("abort", why));
  MovedFixture moved(*made);
  {
    const auto core = moved.open(
        {.executable = {}, .sysroot = {}, .search = {moved.directory() / "nothing", moved.directory() / "files"}});
    CHECK(core->problems().empty());
    CHECK(reads_constants(*core, made->facts));
    CHECK(module_named(*core, "/libfixture.so").path == moved.original("libfixture.so"));  // as the target names it
  }
  {
    const auto core = moved.open({.executable = moved.file("fixture"), .sysroot = {}, .search = {}});
    REQUIRE(core->problems().size() == 1);
    CHECK(core->problems()[0].message ==
          "1 file of the process missing on this machine: " + moved.original("libfixture.so") + " (build-id " +
              elf::to_string(module_named(*core, "/libfixture.so").build_id) + ")");
    CHECK(module_named(*core, "/fixture").image != nullptr);
  }
  {
    const std::string id = elf::to_string(module_named(*moved.open(), "/libfixture.so").build_id);
    const std::string tree = moved.directory() / "tree";
    const std::string directory = tree + "/.build-id/" + id.substr(0, 2) + "/";
    fs::create_directories(directory);
    // A file with only debug information has the build-id, but no code: it is skipped in favour of the full file.
    if (run_command("objcopy --only-keep-debug " + moved.file("libfixture.so") + " " + tree + "/libfixture.so")) {
      const auto core = moved.open({.executable = {}, .sysroot = {}, .search = {tree}});
      CHECK(module_named(*core, "/libfixture.so").image == nullptr);
    }
    fs::copy_file(moved.file("libfixture.so"), directory + id.substr(2) + ".debug");
    const auto core = moved.open({.executable = {}, .sysroot = {}, .search = {tree}});
    CHECK(module_named(*core, "/libfixture.so").image != nullptr);
    CHECK(reads_constants(*core, made->facts));
  }
}

TEST_CASE("--search by the ends of the path") {
  REQUIRE_CORE(made, kernel_core("abort", why));
  MovedFixture moved(*made);
  // As in an environment that was moved: DIR has what was in the directory above the file's.
  const std::string last = fs::path(moved.original("x")).parent_path().filename();
  const std::string tree = moved.directory() / "environment";
  fs::create_directories(tree + "/" + last);
  for (const char* name : {"fixture", "libfixture.so"}) fs::copy_file(moved.file(name), tree + "/" + last + "/" + name);
  // Of another build: passed over.
  fs::copy_file(moved.file("fixture"), tree + "/libfixture.so");
  const auto core = moved.open({.executable = {}, .sysroot = {}, .search = {tree}});
  CHECK(core->problems().empty());
  CHECK(reads_constants(*core, made->facts));
  CHECK(module_named(*core, "/libfixture.so").image->path() == tree + "/" + last + "/libfixture.so");
  // As in the root of another machine.
  const std::string root = moved.directory() / "whole";
  fs::create_directories(root + moved.original(""));
  for (const char* name : {"fixture", "libfixture.so"}) fs::copy_file(moved.file(name), root + moved.original(name));
  CHECK(moved.open({.executable = {}, .sysroot = {}, .search = {root}})->problems().empty());
}

TEST_CASE("which package dpkg says a file is of") {
  std::ifstream list("/var/lib/dpkg/info/libc6:amd64.list");
  if (!list) {
    WARN("skipped: no dpkg with libc6:amd64 here");
    return;
  }
  std::string path;
  while (std::getline(list, path) && !path.ends_with("/libc.so.6")) continue;
  REQUIRE(!path.empty());
  const std::string plain = path.starts_with("/usr/") ? path.substr(4) : path;
  const auto packages = debian_packages_of({plain, "/usr" + plain, "/nowhere/libc.so.6", "", "/usr"}, "");
  CHECK(packages.at(plain) == "libc6:amd64");
  CHECK(packages.at("/usr" + plain) == "libc6:amd64");  // one of the two is a link
  CHECK_FALSE(packages.contains("/nowhere/libc.so.6"));
  CHECK(debian_packages_of({plain}, "/nowhere").at(plain) == "libc6:amd64");
}

TEST_CASE("links below --sysroot lead to files below it") {
  REQUIRE_CORE(made, kernel_core("abort", why));
  MovedFixture moved(*made);
  const std::string root = moved.directory() / "root";
  fs::create_directories(root + fs::path(moved.original("x")).parent_path().string());
  // Absolute, as in the image of a system: each file is below the root, or nowhere.
  for (const char* name : {"fixture", "libfixture.so"})
    fs::create_symlink(moved.file(name), root + moved.original(name));
  CHECK(moved.open({.executable = {}, .sysroot = root, .search = {}})->problems().size() == 1);
  fs::create_directories(root + fs::path(moved.file("x")).parent_path().string());
  for (const char* name : {"fixture", "libfixture.so"}) fs::copy_file(moved.file(name), root + moved.file(name));
  CHECK(moved.open({.executable = {}, .sysroot = root, .search = {}})->problems().empty());
}

TEST_CASE("--sysroot comes before the path itself") {
  REQUIRE_CORE(made, kernel_core("abort", why));
  MovedFixture moved(*made);
  const std::string root = moved.directory() / "root";
  fs::create_directories(root + fs::path(moved.original("x")).parent_path().string());
  for (const char* name : {"fixture", "libfixture.so"}) fs::copy_file(moved.file(name), root + moved.original(name));
  const auto core = moved.open({.executable = {}, .sysroot = root, .search = {}});
  CHECK(core->problems().empty());  // libc is not under the sysroot: its own path is tried next
  CHECK(reads_constants(*core, made->facts));
  CHECK(module_named(*core, "/libfixture.so").image->path() == root + moved.original("libfixture.so"));
  CHECK(module_named(*core, "/libc.so.6").image->path() == module_named(*core, "/libc.so.6").path);
}

TEST_CASE("a library replaced since the core was taken is refused") {
  REQUIRE_CORE(made, kernel_core("abort", why));
  MovedFixture moved(*made);
  write_file(moved.directory() / "other.c",
             "const char library_constant[] = \"another\"; int library_function(int x) { return x * 3; }\n");
  const std::string replaced = moved.original("libfixture.so");
  REQUIRE(run_command("cc -shared -fPIC -Wl,--build-id -o " + replaced + " " + moved.directory() / "other.c"));
  const std::string new_id = elf::to_string((*elf::Image::open(replaced, replaced))->build_id());
  const auto core = moved.open({.executable = moved.file("fixture"), .sysroot = {}, .search = {}});
  const Module& library = module_named(*core, "/libfixture.so");
  const std::string old_id = elf::to_string(library.build_id);
  CHECK(old_id != new_id);
  CHECK(library.image == nullptr);
  CHECK(library.why_no_image == "the core has build-id " + old_id + ", " + replaced + " has " + new_id);
  REQUIRE(core->problems().size() == 1);
  CHECK(core->problems()[0].message ==
        "module " + replaced + ": the core has build-id " + old_id + ", " + replaced + " has " + new_id);
  CHECK(core->problems()[0].hint == "give the files that were loaded with --sysroot or --search");
  CHECK_FALSE(reads_constants(*core, made->facts));

  // The next candidate is the right file: there is no problem.
  const auto found =
      moved.open({.executable = moved.file("fixture"), .sysroot = {}, .search = {moved.directory() / "files"}});
  CHECK(found->problems().empty());
  CHECK(reads_constants(*found, made->facts));

  // A wrong --exe is reported, though the search finds the right file.
  const auto wrong = moved.open({.executable = replaced, .sysroot = {}, .search = {moved.directory() / "files"}});
  REQUIRE(wrong->problems().size() == 1);
  CHECK(wrong->problems()[0].message.starts_with("module " + moved.original("fixture") + ": the core has build-id "));
  CHECK(module_named(*wrong, "/fixture").image != nullptr);
  const auto nothing =
      moved.open({.executable = moved.directory() / "nothing", .sysroot = {}, .search = {moved.directory() / "files"}});
  REQUIRE(nothing->problems().size() == 1);
  CHECK(nothing->problems()[0].message == "module " + moved.original("fixture") + ": " + moved.directory() / "nothing" +
                                              ": cannot open: No such file or directory");
  fs::remove(replaced);
}

TEST_CASE("gcore's core holds a missing library's symbols") {
  REQUIRE_CORE(made, gcore_core(why));
  MovedFixture moved(*made);
  const auto core = moved.open();
  const Module& library = module_named(*core, "/libfixture.so");
  REQUIRE(library.image != nullptr);  // its first mapping, with .dynsym, is in the core
  const auto symbol = library.image->find_symbol("library_function");
  REQUIRE(symbol);
  CHECK(library.to_address(symbol->value) == made->facts.addresses.at("library_function"));
  REQUIRE(core->problems().size() == 1);
  CHECK(core->problems()[0].message.starts_with("2 files of the process missing on this machine: "));
}

}  // namespace rankstacks::target
