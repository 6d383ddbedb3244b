// Compressed input of each format, which the first bytes select.
#include "input.h"
#include "target/decompress.h"
#include "target/packed_core.h"

using namespace rankstacks;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::ScratchFile file;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const target::Compression compression = target::compression_of(bytes);
  if (compression == target::Compression::kNone) return 0;
  file.hold(std::as_bytes(std::span(data, size)));
  const auto any = [](std::string_view, const std::string&) { return std::optional<Error>(); };
  const auto unpacked = target::unpack(file.descriptor(), compression, "fuzz", any);
  if (!unpacked) {
    fuzz::require(!unpacked.error().what.empty(), "an error says what is wrong");
    return 0;
  }
  fuzz::require(unpacked->size == static_cast<std::uint64_t>(lseek(unpacked->file.get(), 0, SEEK_END)),
                "the size is the file's");
  // The same as a core, of which parts are left out, and read afterwards.
  const auto opened = target::PackedCore::open(file.descriptor(), compression, file.path(), any, Deadline::never());
  fuzz::require(opened.has_value(), "what can be unpacked can be opened");
  if (opened->core) opened->core->fill(0, 0, static_cast<std::uint64_t>(lseek(opened->file.get(), 0, SEEK_END)));
  return 0;
}
