// Where debug information is searched for, which files are refused, and what is reported then.
#include "symbolizers/debug_file.h"
#include "symbolizers/workshop.h"

namespace rankstacks::symbolizers {
namespace {

using testing::address_of;
using testing::alone;
using testing::Lines;
using testing::resolve_one;
using testing::Workshop;

constexpr const char* kSource = R"(static int __attribute__((noinline)) hidden(int x) {
  return x * 7;
}
int visible(int x) {
  return hidden(x) + 1;
}
)";

struct Built {
  Vaddr hidden = 0;  // an address in each
  Vaddr visible = 0;
  std::string id;
};

// lib.so stripped, and lib.debug in the same directory; `id` in hex.
Built build(const Workshop& shop, const std::string& flags = "-Wl,--build-id") {
  shop.write("lib.cc", kSource);
  shop.run("g++ -O1 -g -shared -fPIC lib.cc -o full.so " + flags);
  const auto full = shop.open("full.so");
  Built built{address_of(*full, "_ZL6hiddeni") + 1, address_of(*full, "_Z7visiblei") + 1,
              elf::to_string(full->build_id())};
  shop.run("objcopy --only-keep-debug full.so lib.debug && strip -o lib.so full.so");
  return built;
}

SymbolizerOptions with_directory(const std::string& directory) {
  SymbolizerOptions options;
  options.debug_directories = {directory};
  return options;
}

std::vector<std::string> problems_of(const SymbolizerOptions& options, const elf::Image& image, Vaddr address) {
  return Symbolizer(options).resolve(image, std::span(&address, 1)).problems;
}

// one.so and two.so, whose common parts dwz (with these options) has moved into one file.
void share_parts(const Workshop& shop, const std::string& options) {
  // Enough common parts for dwz to share them.
  std::string common = "struct Base { virtual int f(int); int a, b, c; };\n";
  for (int i = 0; i < 60; ++i) {
    const std::string name = "S" + std::to_string(i);
    common += "struct " + name + " { int first, second; struct " + name + "* next; };\n";
  }
  common +=
      "static inline __attribute__((always_inline)) int shared_inline(int x) {\n  volatile int y = x;\n  return y * "
      "3;\n}\n";
  shop.write("common.h", common);
  std::string uses;
  for (int i = 0; i < 60; ++i) uses += "S" + std::to_string(i) + " s" + std::to_string(i) + ";\n";
  shop.write("one.cc", "#include \"common.h\"\n" + uses + "int one(int x) { return shared_inline(x) + 1; }\n");
  shop.write("two.cc", "#include \"common.h\"\n" + uses + "int two(int x) { return shared_inline(x) + 2; }\n");
  shop.run("for n in one two; do g++ -O1 -g -gdwarf-4 -shared -fPIC -Wl,--build-id $n.cc -o $n.so; done; dwz " +
           options + " one.so two.so");
}

const Lines kHidden{"hidden(int) lib.cc:2"};

}  // namespace

TEST_CASE("without a debug file only exported functions have names") {
  const Workshop shop;
  const Built built = build(shop);
  const auto image = shop.open("lib.so");
  CHECK(resolve_one(alone(), *image, built.visible) == Lines{"visible(int)"});
  CHECK(resolve_one(alone(), *image, built.hidden) == Lines{"?"});
}

TEST_CASE("a debug file is found by build-id, under the sysroot too") {
  const Workshop shop;
  const Built built = build(shop);
  const std::string place = "/.build-id/" + built.id.substr(0, 2);
  shop.run("mkdir -p dbg" + place + " && mv lib.debug dbg" + place + "/" + built.id.substr(2) + ".debug");
  const auto image = shop.open("lib.so");
  CHECK(resolve_one(with_directory(shop.path("dbg")), *image, built.hidden) == kHidden);
  SymbolizerOptions in_sysroot = with_directory("/dbg");
  CHECK(resolve_one(in_sysroot, *image, built.hidden) == Lines{"?"});
  in_sysroot.sysroot = shop.path("");
  CHECK(resolve_one(in_sysroot, *image, built.hidden) == kHidden);
}

TEST_CASE("a debug file at the path of another build-id is refused; the message has both ids") {
  const Workshop shop;
  const Built built = build(shop);
  const std::string place = "dbg/.build-id/" + built.id.substr(0, 2) + "/";
  const std::string file = place + built.id.substr(2) + ".debug";
  shop.run("mkdir -p " + place + " && g++ -O2 -g -shared -fPIC -Wl,--build-id=0xabcdef0123 lib.cc -o " + file);
  const auto image = shop.open("lib.so");
  CHECK(resolve_one(with_directory(shop.path("dbg")), *image, built.hidden) == Lines{"?"});
  CHECK(problems_of(with_directory(shop.path("dbg")), *image, built.hidden) ==
        Lines{shop.path(file) + ": refused as the debug file of " + shop.path("lib.so") +
              ": its build-id is abcdef0123, " + built.id + " is expected"});
}

TEST_CASE(
    "a debug file is found by .gnu_debuglink in the directory of the file, in .debug and in the debug directory") {
  for (const std::string place : {"", ".debug/", "dbg"}) {
    const Workshop shop;
    INFO(place);
    const Built built = build(shop);
    shop.run("objcopy --add-gnu-debuglink=lib.debug lib.so");
    const std::string directory = place == "dbg" ? "dbg" + shop.path("") : place;
    if (!directory.empty()) shop.run("mkdir -p " + directory + " && mv lib.debug " + directory);
    const auto image = shop.open("lib.so");
    CHECK(resolve_one(with_directory(shop.path("dbg")), *image, built.hidden) == kHidden);
    CHECK(problems_of(with_directory(shop.path("dbg")), *image, built.hidden).empty());
  }
}

TEST_CASE("a debug file is found below a directory of the user's") {
  for (const std::string place :
       {"build-id tree", "Debian", "linked, Debian", "linked, end of the path", "linked, by name", "linked, .debug"}) {
    const Workshop shop;
    INFO(place);
    const Built built = build(shop);
    const bool linked = place.starts_with("linked");
    if (linked) shop.run("objcopy --add-gnu-debuglink=lib.debug lib.so");
    const std::string own = shop.path("");
    std::string directory = "given";
    if (place == "Debian") directory += "/usr/lib/debug";
    if (!linked) directory += "/.build-id/" + built.id.substr(0, 2);
    if (place == "linked, Debian") directory += "/usr/lib/debug" + own;
    if (place == "linked, end of the path") directory += own.substr(own.find('/', 1));
    if (place == "linked, .debug") directory += "/.debug";
    shop.run("mkdir -p " + directory + " && mv lib.debug " + directory + "/" +
             (linked ? "lib.debug" : built.id.substr(2) + ".debug"));
    SymbolizerOptions options = alone();
    const auto image = shop.open("lib.so");
    CHECK(resolve_one(options, *image, built.hidden) == Lines{"?"});
    options.search = {shop.path("given")};
    CHECK(resolve_one(options, *image, built.hidden) == kHidden);
    CHECK(problems_of(options, *image, built.hidden).empty());
  }
}

TEST_CASE("without build-ids the CRC of a linked debug file must be right") {
  const Workshop shop;
  const Built built = build(shop, "-Wl,--build-id=none");
  shop.run("objcopy --add-gnu-debuglink=lib.debug lib.so");
  const auto image = shop.open("lib.so");
  CHECK(resolve_one(alone(), *image, built.hidden) == kHidden);
  shop.run("printf x >> lib.debug");
  CHECK(resolve_one(alone(), *image, built.hidden) == Lines{"?"});
  const auto problems = problems_of(alone(), *image, built.hidden);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].starts_with(shop.path("lib.debug") + ": refused as the debug file of " + shop.path("lib.so") +
                                ": its CRC is "));
  CHECK(problems[0].ends_with(" is expected"));
}

TEST_CASE("a linked debug file of another build is refused; the message has both ids") {
  const Workshop shop;
  const Built built = build(shop);
  shop.run(
      "objcopy --add-gnu-debuglink=lib.debug lib.so && g++ -g -shared -fPIC -Wl,--build-id=0x99 lib.cc -o lib.debug");
  const auto image = shop.open("lib.so");
  CHECK(resolve_one(alone(), *image, built.hidden) == Lines{"?"});
  const std::string refused = shop.path("lib.debug") + ": refused as the debug file of " + shop.path("lib.so");
  CHECK(problems_of(alone(), *image, built.hidden) ==
        Lines{refused + ": its build-id is 99, " + built.id + " is expected"});
}

TEST_CASE("a debug link is a file name, not a path, and a FIFO there does not block") {
  const Workshop shop;
  const Built built = build(shop);
  shop.run(
      "mkfifo pipe && printf 'sub/../lib.debug\\0\\0\\0\\0\\0\\0\\0\\0' > link && "
      "objcopy --add-section .gnu_debuglink=link lib.so path.so");
  CHECK(resolve_one(alone(), *shop.open("path.so"), built.hidden) == Lines{"?"});
  shop.run("printf 'pipe\\0\\0\\0\\0\\0\\0\\0\\0' > link && objcopy --add-section .gnu_debuglink=link lib.so pipe.so");
  CHECK(problems_of(alone(), *shop.open("pipe.so"), built.hidden) ==
        Lines{shop.path("pipe") + ": a pipe, not a regular file"});
}

TEST_CASE(".gnu_debugdata adds the functions that .dynsym lacks") {
  const Workshop shop;
  const Built built = build(shop);
  // As Fedora's find-debuginfo makes it: only symbols of functions, without those of .dynsym.
  shop.run(
      "objcopy -S --remove-section .gnu_debuglink --remove-section .comment --keep-symbol=_ZL6hiddeni lib.debug mini "
      "&& xz -k mini && "
      "objcopy --add-section .gnu_debugdata=mini.xz lib.so mini.so");
  const auto image = shop.open("mini.so");
  CHECK(resolve_one(alone(), *image, built.hidden) == Lines{"hidden(int)"});
  CHECK(resolve_one(alone(), *image, built.visible) == Lines{"visible(int)"});

  shop.run(
      "head -c 100 mini.xz > cut.xz && objcopy --add-section .gnu_debugdata=cut.xz lib.so cut.so && "
      "echo this is not what xz writes > text && objcopy --add-section .gnu_debugdata=text lib.so text.so");
  CHECK(problems_of(alone(), *shop.open("cut.so"), built.hidden) ==
        Lines{shop.path("cut.so") + ": .gnu_debugdata: not a whole xz stream (liblzma's error 10)"});
  CHECK(problems_of(alone(), *shop.open("text.so"), built.hidden) ==
        Lines{shop.path("text.so") + ": .gnu_debugdata: not a whole xz stream (liblzma's error 7)"});
  CHECK(resolve_one(alone(), *shop.open("cut.so"), built.visible) == Lines{"visible(int)"});
}

TEST_CASE(".gnu_debugdata that unpacks to more than any symbol table is refused") {
  const Workshop shop;
  const Built built = build(shop);
  shop.run(
      "head -c 400000000 /dev/zero | xz -0 > bomb.xz && objcopy --add-section .gnu_debugdata=bomb.xz lib.so bomb.so");
  CHECK(problems_of(alone(), *shop.open("bomb.so"), built.hidden) ==
        Lines{shop.path("bomb.so") + ": .gnu_debugdata: unpacks to more than 16 MiB"});
}

TEST_CASE("an image that was deleted from disk gets its debug file by build-id") {
  const Workshop shop;
  const Built built = build(shop);
  const std::string place = "dbg/.build-id/" + built.id.substr(0, 2);
  shop.run("mkdir -p " + place + " && mv lib.debug " + place + "/" + built.id.substr(2) + ".debug");
  const auto file = shop.open("lib.so");
  const auto read = [&](Vaddr v, std::span<std::byte> into) {
    const auto there = file->at(v);
    if (there.size() < into.size()) return false;
    std::copy_n(there.begin(), into.size(), into.begin());
    return true;
  };
  auto memory = elf::Image::from_memory(read, 0, "lib.so (deleted)");
  REQUIRE(memory);
  CHECK(resolve_one(with_directory(shop.path("dbg")), **memory, built.hidden) == kHidden);
}

TEST_CASE("parts that dwz shared between files are found; if they are missing, a problem says so") {
  if (!Workshop::has_tool("dwz")) return;
  const Workshop shop;
  share_parts(shop, "-m common.dwz");
  const auto image = shop.open("one.so");
  REQUIRE(image->section(".gnu_debugaltlink") != nullptr);
  const Vaddr inlined = address_of(*image, "_Z3onei") + 4;
  const auto lines = resolve_one(alone(), *image, inlined);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "shared_inline common.h:64 <inlined>");  // the name is in the shared file
  CHECK(lines[1] == "one(int) one.cc:62");

  shop.run("mv common.dwz away.dwz");
  CHECK(resolve_one(alone(), *image, inlined) == Lines{"one(int)"});
  const auto problems = problems_of(alone(), *image, inlined);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].starts_with(shop.path("one.so") +
                                ": no lines or inlined functions: its shared debug file common.dwz (build-id "));
  shop.run("cp two.so common.dwz");
  CHECK(problems_of(alone(), *image, inlined)
            .at(0)
            .starts_with(shop.path("common.dwz") + ": refused as the shared debug file of " + shop.path("one.so") +
                         ": its build-id is "));
}

TEST_CASE("the path of shared parts is accepted in debug directories and below the file's own directory only") {
  if (!Workshop::has_tool("dwz")) return;
  const Workshop shop;
  // As Debian's dh_dwz writes it: an absolute path below the debug directory. The image is in a directory of its own.
  shop.run("mkdir -p debug/.dwz own/.dwz elsewhere");
  share_parts(shop, "-m debug/.dwz/common.debug -M " + shop.path("debug/.dwz/common.debug"));
  shop.run("mv one.so own/one.so");
  const Vaddr inlined = address_of(*shop.open("own/one.so"), "_Z3onei") + 4;
  const Lines both{"shared_inline common.h:64 <inlined>", "one(int) one.cc:62"};
  CHECK(resolve_one(with_directory(shop.path("debug")), *shop.open("own/one.so"), inlined) == both);
  CHECK(resolve_one(with_directory(shop.path("debug") + "/"), *shop.open("own/one.so"), inlined) == both);

  // The same file, at places that the image may not choose.
  shop.run(
      "objcopy --dump-section .gnu_debugaltlink=link own/one.so && tail -c 20 link > id && cp debug/.dwz/common.debug "
      "elsewhere/common.debug");
  const auto linked = [&](const std::string& path) {
    shop.run(
        "printf '" + path +
        "\\0' > link && cat id >> link && objcopy --update-section .gnu_debugaltlink=link own/one.so own/linked.so");
    return shop.open("own/linked.so");
  };
  for (const std::string& path :
       {shop.path("elsewhere/common.debug"), shop.path("debug/../elsewhere/common.debug"),
        shop.path("debugger/common.debug"), std::string("../elsewhere/common.debug"), std::string("/proc/kmsg")}) {
    CAPTURE(path);
    const auto image = linked(path);
    CHECK(resolve_one(with_directory(shop.path("debug")), *image, inlined) == Lines{"one(int)"});
    const auto problems = problems_of(with_directory(shop.path("debug")), *image, inlined);
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].starts_with(shop.path("own/linked.so") +
                                  ": no lines or inlined functions: its shared debug file " + path + " (build-id "));
    CHECK(problems[0].ends_with(") is outside of the debug directories and of its own directory"));
  }
  // Relative, as `dwz -r` writes it and as in Fedora's files.
  CHECK(resolve_one(with_directory(shop.path("debug")), *linked("../debug/.dwz/common.debug"), inlined) == both);
  shop.run("cp debug/.dwz/common.debug own/.dwz/common.debug");
  CHECK(resolve_one(alone(), *linked(".dwz/common.debug"), inlined) == both);
  // In an allowed place, only a regular file is opened, and a file of another build is refused.
  shop.run("mkfifo own/.dwz/pipe && cp own/one.so own/.dwz/other");
  CHECK(problems_of(alone(), *linked(".dwz/pipe"), inlined).at(0) ==
        shop.path("own/.dwz/pipe") + ": a pipe, not a regular file");
  shop.run("objcopy --add-section .gnu_debugaltlink=link own/.dwz/common.debug own/.dwz/chain");
  CHECK(problems_of(alone(), *linked(".dwz/chain"), inlined) ==
        Lines{shop.path("own/.dwz/chain") + ": refused as the shared debug file of " + shop.path("own/linked.so") +
              ": it names another one itself"});
  CHECK(problems_of(alone(), *linked(".dwz/other"), inlined)
            .at(0)
            .starts_with(shop.path("own/.dwz/other") + ": refused as the shared debug file of "));
}

}  // namespace rankstacks::symbolizers
