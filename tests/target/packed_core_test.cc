// Packed cores: what is kept of them, and what is unpacked again when it is read.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "base/memory_limit.h"
#include "core_fixture.h"
#include "support/elf_writer.h"
#include "support/temporary_directory.h"
#include "target/core_file.h"
#include "target/core_target.h"
#include "target/packed_core.h"

namespace rankstacks::target {
namespace {

using namespace testing;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr Address kHeap = 0x555555000000, kTensors = 0x7f0000000000, kStacks = 0x7f8000000000;
constexpr Address kStackPointer = kStacks + 5 * kMiB;

Bytes floats(std::uint64_t size) {
  Bytes bytes(size);
  for (std::uint64_t at = 0; at < size; at += sizeof(float)) {
    const float value = 1.0F + static_cast<float>(at % 9973);
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }
  return bytes;
}

void put(Bytes& bytes, std::uint64_t at, Address value) { std::memcpy(bytes.data() + at, &value, sizeof value); }

// A heap of 1 MiB, 40 MiB of tensors with one page of objects in the middle, and two stacks in one mapping.
Bytes core_bytes() {
  CoreWriter writer;
  writer.add_note(NT_PRSTATUS, thread_note(101, 0, 0x401000, kStackPointer));
  writer.add_memory(kHeap, floats(kMiB), kMiB);
  Bytes tensors = floats(40 * kMiB);
  put(tensors, 20 * kMiB + 64, kHeap + 16);
  writer.add_memory(kTensors, std::move(tensors), 40 * kMiB);
  writer.add_memory(kStacks, floats(16 * kMiB), 16 * kMiB);
  return writer.write();
}

std::string zstd(std::span<const std::byte> bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 1));
  return packed;
}

std::string gzip(std::span<const std::byte> bytes) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

void add_number(std::string& to, std::uint32_t number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// Frames of `size` bytes each; with zstd's table of them at the end.
std::string frames(std::span<const std::byte> bytes, std::uint64_t size, bool table) {
  std::string packed, sizes;
  std::uint32_t number = 0;
  for (std::uint64_t at = 0; at < bytes.size(); at += size, ++number) {
    const auto piece = bytes.subspan(at, std::min<std::uint64_t>(size, bytes.size() - at));
    const std::string frame = zstd(piece);
    add_number(sizes, static_cast<std::uint32_t>(frame.size()));
    add_number(sizes, static_cast<std::uint32_t>(piece.size()));
    packed += frame;
  }
  if (!table) return packed;
  add_number(packed, 0x184D2A5E);
  add_number(packed, static_cast<std::uint32_t>(sizes.size()) + 9);
  packed += sizes;
  add_number(packed, number);
  packed += '\0';
  add_number(packed, 0x8F92EAB1);
  return packed;
}

struct Packed {
  TemporaryDirectory directory;
  std::string path = directory / "core.zst";

  explicit Packed(const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  std::unique_ptr<CoreFile> open() const {
    auto opened = CoreFile::open(path);
    if (!opened) FAIL(opened.error().message());
    return std::move(*opened);
  }
};

std::optional<Error> any(std::string_view, const std::string&) { return std::nullopt; }

// Bytes that the unpacked core takes in memory.
std::uint64_t taken(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string first(16, '\0');
  REQUIRE(pread(file.get(), first.data(), first.size(), 0) == 16);
  const auto opened = PackedCore::open(file.get(), compression_of(first), path, any, Deadline::never());
  REQUIRE(opened);
  struct stat status {};
  REQUIRE(fstat(opened->file.get(), &status) == 0);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

std::uint64_t read_float(const CoreFile& core, Address a) {
  float value = 0;
  REQUIRE(core.read_exact(a, std::as_writable_bytes(std::span(&value, 1))));
  return static_cast<std::uint64_t>(value);
}

void check_reads(const CoreFile& core) {
  CHECK(read_float(core, kHeap + 4096) == 1 + 4096);
  for (const std::uint64_t at : {0, 8192, 39, 17, 25}) {
    const std::uint64_t offset = at < 100 ? at * kMiB : at;
    CHECK(read_float(core, kTensors + offset) == 1 + offset % 9973);
  }
  CHECK(read_float(core, kStackPointer) == 1 + 5 * kMiB % 9973);
  CHECK(read_float(core, kStacks + 15 * kMiB) == 1 + 15 * kMiB % 9973);
  Address pointer = 0;
  CHECK(core.read_exact(kTensors + 20 * kMiB + 64, std::as_writable_bytes(std::span(&pointer, 1))));
  CHECK(pointer == kHeap + 16);
  CHECK_FALSE(core.shortage());
}

}  // namespace

TEST_CASE("tensors of a packed core are left out until they are read") {
  const Bytes bytes = core_bytes();
  for (const std::string& packed :
       {zstd(bytes), gzip(bytes), frames(bytes, 3 * kMiB, false), frames(bytes, kMiB, true)}) {
    const Packed core(packed);
    const std::uint64_t kept = taken(core.path);
    CHECK(kept >= 2 * kMiB);  // the heap, and of the stack what is in use
    CHECK(kept < 4 * kMiB);
    check_reads(*core.open());
  }
}

TEST_CASE("all of a packed core can be read, in any order") {
  const Bytes bytes = core_bytes();
  for (const std::string& packed : {zstd(bytes), frames(bytes, kMiB, true)}) {
    const Packed file(packed);
    const auto core = file.open();
    const Bytes tensors = floats(40 * kMiB);
    std::vector<std::byte> page(4096);
    for (std::uint64_t at = 40 * kMiB; at > 0; at -= 128 * page.size()) {
      const std::uint64_t offset = at - 128 * page.size();
      REQUIRE(core->read_exact(kTensors + offset, page));
      if (offset != 20 * kMiB) REQUIRE(std::memcmp(page.data(), tensors.data() + offset, page.size()) == 0);
    }
    CHECK_FALSE(core->shortage());
  }
}

TEST_CASE("a packed core that is replaced is short of what was not read before") {
  const Packed file(zstd(core_bytes()));
  const auto core = file.open();
  REQUIRE(unlink(file.path.c_str()) == 0);
  CHECK(read_float(*core, kHeap) == 1);
  std::vector<std::byte> page(4096);
  CHECK(core->read(kTensors + 2 * kMiB, page) == 0);
  REQUIRE(core->shortage());
  CHECK(core->shortage()->message ==
        "a part of the packed core that was read could not be unpacked: the file cannot be opened again (No such file "
        "or directory)");
}

TEST_CASE("where memory is short, a packed core is kept in a file") {
  const Bytes bytes = core_bytes();
  constexpr std::size_t kLimit = std::size_t{16} << 30;
  enforce_memory_limit(kLimit);
  const std::size_t share = share_of_memory(kLimit, MemoryUse::kCopies);
  for (const std::size_t left : {std::size_t{0}, std::size_t{1}, std::size_t{4}}) {
    REQUIRE(take_memory(MemoryUse::kCopies, share - left * kMiB));
    for (const std::string& packed : {zstd(bytes), frames(bytes, kMiB, true)}) {
      const Packed file(packed);
      check_reads(*file.open());
    }
    give_back_memory(MemoryUse::kCopies, share - left * kMiB);
    // All is given back.
    REQUIRE(take_memory(MemoryUse::kCopies, share));
    give_back_memory(MemoryUse::kCopies, share);
  }
  lift_memory_limit();
}

TEST_CASE("stacks of gcore's cores in frames with a table are found") {
  std::string why;
  const FixtureCore* real = gcore_core(why);
  if (real == nullptr) {
    WARN("skipped: " << why);
    return;
  }
  std::ifstream in(real->path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const Packed file(frames(std::as_bytes(std::span(bytes)), kMiB / 2, true));
  elf::ImageCache images;
  const auto plain = CoreTarget::open(real->path, {}, images), packed = CoreTarget::open(file.path, {}, images);
  REQUIRE(plain);
  REQUIRE(packed);
  CHECK((*packed)->lost_stacks().empty());
  for (const ThreadInfo& thread : (*plain)->threads()) {
    REQUIRE(thread.registers);
    std::vector<std::byte> one(4096), other(4096);
    const std::size_t n = (*plain)->read(thread.registers->sp(), one);
    CHECK((*packed)->read(thread.registers->sp(), other) == n);
    CHECK(one == other);
  }
}

// Segments and pages of all kinds, packed in all ways, and cut off at any place.
TEST_CASE("what is read of a packed core is what was in it, or nothing") {
  for (unsigned seed = 1; seed <= 24; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint64_t n) { return std::uniform_int_distribution<std::uint64_t>(0, n - 1)(random); };
    CoreWriter writer;
    writer.add_note(NT_PRSTATUS, thread_note(101, 0, 0x401000, kTensors + below(8 * kMiB)));
    writer.add_note(NT_AUXV, Bytes(8 * below(20)));  // so that segments begin at any place
    std::vector<std::pair<Address, Bytes>> segments;
    Address at = kTensors;
    for (std::uint64_t i = 0, n = 1 + below(3); i < n; ++i) {
      Bytes bytes(4096 * (1 + below(2 * kMiB / 1024)) + below(2) * below(4096));
      for (std::uint64_t page = 0; page < bytes.size();) {
        const std::uint64_t end = std::min<std::uint64_t>(bytes.size(), page + 4096 * (1 + below(300)));
        const std::uint64_t kind = below(4);
        for (; page < end; page += 4096)
          for (std::uint64_t word = page; kind != 0 && word + 8 <= std::min(page + 4096, end); word += 8)
            put(bytes, word, kind == 1 ? 0x3f8000003f800000 + word : kind == 2 ? kTensors + word : random());
        page = end;
      }
      segments.emplace_back(at, bytes);
      writer.add_memory(at, bytes, bytes.size());
      at += bytes.size() / 4096 * 4096 + 4096 * (1 + below(1000));
    }
    const Bytes whole = writer.write();
    const std::uint64_t frame = 1000 + below(3 * kMiB);
    std::string packed = std::array{zstd, gzip}[below(2)](whole);
    if (below(2) == 0) packed = frames(whole, frame, below(2) == 0);
    const bool cut = below(4) == 0;
    if (cut) packed.resize(packed.size() - 1 - below(packed.size() / 2));
    const Packed file(packed);
    const auto core = CoreFile::open(file.path);
    if (!core) {
      REQUIRE(cut);
      continue;
    }
    for (int i = 0; i < 200; ++i) {
      const auto& [start, bytes] = segments[below(segments.size())];
      const std::uint64_t offset = below(bytes.size());
      std::vector<std::byte> into(1 + below(20000));
      const std::size_t n = (*core)->read(start + offset, into);
      const std::uint64_t there = std::min<std::uint64_t>(into.size(), bytes.size() - offset);
      REQUIRE(std::memcmp(into.data(), bytes.data() + offset, std::min<std::uint64_t>(n, there)) == 0);
      if (!cut) REQUIRE(n >= there);
    }
    if (!cut) REQUIRE_FALSE((*core)->shortage());
  }
}

TEST_CASE("a table of frames that cannot be true is no table") {
  std::string packed = frames(core_bytes(), kMiB, true);
  packed[packed.size() - 9] = '\x7f';  // their number
  const Packed file(packed);
  check_reads(*file.open());
}

}  // namespace rankstacks::target
