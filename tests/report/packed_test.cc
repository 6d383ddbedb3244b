#include "report/packed.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "report/report_file.h"
#include "support/temporary_directory.h"

using namespace rankstacks;
using namespace rankstacks::report;

namespace {

constexpr std::size_t kLimit = 1 << 20;

std::string packed(std::string_view text, Packing packing) { return *pack(text, packing, "x"); }
std::string error_of(std::string bytes, std::size_t limit = kLimit) {
  const auto text = unpack(std::move(bytes), limit, "x");
  return text ? "it was read" : text.error().message();
}

}  // namespace

TEST_CASE("a packed report is unpacked, whatever its size") {
  for (const Packing packing : {Packing::kGzip, Packing::kZstd}) {
    for (const std::size_t size : {0u, 1u, 4095u, 1048576u}) {
      std::string text(size, 'x');
      for (std::size_t i = 0; i < size; i += 7) text[i] = static_cast<char>('a' + i % 26);
      const std::string bytes = packed(text, packing);
      CHECK(packing_of_bytes(bytes) == packing);
      const auto again = unpack(bytes, kLimit, "x");
      REQUIRE(again);
      CHECK((*again == text));
    }
    CHECK(*unpack(packed("one ", packing) + packed("two", packing), kLimit, "x") == "one two");
  }
  CHECK(*unpack("{\"schema\": 1}", kLimit, "x") == "{\"schema\": 1}");
  CHECK(*unpack("", kLimit, "x").map([](const std::string& s) { return s + "."; }) == ".");
  CHECK(*unpack(packed("one", Packing::kGzip) + std::string(512, '\0'), kLimit, "x") == "one");
}

TEST_CASE("what unpacks to more than a report has is refused") {
  for (const Packing packing : {Packing::kGzip, Packing::kZstd}) {
    const std::string bomb = packed(std::string(64 << 20, '\0'), packing);
    CHECK(bomb.size() < 100'000);
    CHECK(error_of(bomb) == "x: too large: unpacks to more than 1048576 bytes, the most that a saved report has");
    CHECK(error_of(packed(std::string(kLimit, 'x'), packing)) == "it was read");
    CHECK(error_of(packed(std::string(kLimit + 1, 'x'), packing)).starts_with("x: too large"));
  }
}

TEST_CASE("damaged and cut data is said to be") {
  for (const Packing packing : {Packing::kGzip, Packing::kZstd}) {
    const std::string name = packing == Packing::kGzip ? "gzip" : "zstd";
    std::string text;
    for (int i = 0; i < 5000; ++i) text += std::to_string(i * i);
    const std::string bytes = packed(text, packing);
    for (std::size_t size = 4; size < bytes.size(); size += 1 + bytes.size() / 50)
      CHECK(error_of(bytes.substr(0, size)) == "x: the " + name + " data is damaged: it ends too early");
    for (std::size_t at = 4; at < bytes.size(); at += 1 + bytes.size() / 50) {
      std::string bad = bytes;
      bad[at] = static_cast<char>(~bad[at]);
      (void)error_of(bad);  // anything but a crash: zstd's frames carry no checksum here
    }
  }
  CHECK(error_of(packed("one", Packing::kGzip) + "rest") == "x: the gzip data is damaged: incorrect header check");
  CHECK(error_of("\x1f\x8b\x08") == "x: the gzip data is damaged: it ends too early");
}

TEST_CASE("a report's file is unpacked by its content") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "named.json";
  std::ofstream(path, std::ios::binary) << packed("{}", Packing::kZstd);
  CHECK(read_report_file(path) == std::string("{}"));
  CHECK(packing_of_name("a.json.gz") == Packing::kGzip);
  CHECK(packing_of_name("a.json.zst") == Packing::kZstd);
  CHECK(packing_of_name("a.json") == Packing::kNone);
}
