// The unwind tables of real libraries: none of their entries may be rejected as invalid.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "elf/image.h"
#include "target/target.h"
#include "unwind/vetted_tables.h"

namespace rankstacks::unwind {
namespace {

namespace fs = std::filesystem;

// A file as if it were loaded at 0, without relocations.
class ImageTarget final : public target::Target {
 public:
  explicit ImageTarget(std::shared_ptr<const elf::Image> image) : image_(std::move(image)) {
    Address end = 0;
    for (const Elf64_Phdr& p : image_->segments()) {
      if (p.p_type == PT_LOAD) end = std::max(end, p.p_vaddr + p.p_memsz);
    }
    modules_ = target::ModuleMap({target::Module{image_->name(), {0, end}, 0, {}, image_, {}}});
  }
  const std::string& subject() const override { return image_->name(); }
  std::span<const target::ThreadInfo> threads() const override { return {}; }
  std::span<const target::Mapping> mappings() const override { return {}; }
  const target::ModuleMap& modules() const override { return modules_; }
  std::size_t read(Address address, std::span<std::byte> into) const noexcept override {
    const auto bytes = image_->at(address);
    const std::size_t n = std::min(bytes.size(), into.size());
    std::copy_n(bytes.begin(), n, into.begin());
    return n;
  }

 private:
  std::shared_ptr<const elf::Image> image_;
  target::ModuleMap modules_;
};

// The libraries of this program, those of CPython and PyTorch if installed, or those named in RANKSTACKS_LIBRARIES
// (separated by ':').
std::vector<std::string> libraries() {
  std::vector<std::string> found;
  if (const char* named = std::getenv("RANKSTACKS_LIBRARIES")) {
    std::istringstream paths(named);
    for (std::string path; std::getline(paths, path, ':');) found.push_back(path);
    return found;
  }
  for (const char* path : {"/proc/self/exe", "/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libm.so.6",
                           "/lib64/ld-linux-x86-64.so.2", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
                           "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0",
                           "/usr/bin/python3", "/usr/lib/x86_64-linux-gnu/libtorch_cpu.so.1.13",
                           "/usr/lib/x86_64-linux-gnu/libtorch_python.so.1.13"}) {
    if (fs::exists(path)) found.push_back(path);
    else WARN("skipped: there is no " << path);
  }
  return found;
}

struct Pair {
  std::int32_t function, fde;
};

TEST_CASE("every entry that the search tables of real libraries refer to is valid") {
  for (const std::string& path : libraries()) {
    INFO(path);
    const auto image = elf::Image::open(path, path);
    REQUIRE(image);
    const auto header = (*image)->eh_frame_hdr();
    if (!header) {
      WARN("skipped: " << path << " has no search table");
      continue;
    }
    const auto table = (*image)->at(*header);
    REQUIRE(table.size() > 12);
    std::uint32_t count;
    std::memcpy(&count, table.data() + 8, sizeof count);
    REQUIRE(table.size() - 12 >= std::uint64_t{count} * sizeof(Pair));
    const ImageTarget target(*image);
    VettedTables vetted(target);
    std::size_t unsound = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      Pair pair;
      std::memcpy(&pair, table.data() + 12 + i * sizeof pair, sizeof pair);
      const Address function = *header + static_cast<Address>(std::int64_t{pair.function});
      if (vetted.is_full()) vetted.forget();
      if (vetted.choose(function)) continue;
      INFO("the function at 0x" << std::hex << function << ", entry at 0x"
                                << *header + static_cast<Address>(std::int64_t{pair.fde}));
      CHECK(++unsound == 0);
      if (unsound == 10) break;  // enough to see the kind of defect
    }
    CHECK(count > 0);
    CHECK(unsound == 0);
  }
}

}  // namespace
}  // namespace rankstacks::unwind
