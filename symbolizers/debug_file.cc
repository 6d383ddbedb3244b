#include "symbolizers/debug_file.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <lzma.h>
#include <zlib.h>

#include "elf/bytes.h"

namespace rankstacks {
namespace {

namespace fs = std::filesystem;

// A debug file of 65,536 functions unpacks to 5 MB; the dictionary of xz -9 is 64 MiB.
constexpr std::uint64_t kMostUnpacked = std::uint64_t{256} << 20;
constexpr std::uint64_t kBestRatio = 32;               // symbols pack 3 to 5 times
constexpr std::uint64_t kAlwaysAllowed = 16 << 20;
// A file's CRC is that of all its bytes, and a sparse file of terabytes takes no room. Debug files this large (4 s to read from memory) have build-ids.
constexpr std::uint64_t kMostForCrc = std::uint64_t{4} << 30;
constexpr std::size_t kCrcStep = 4 << 20;

constexpr std::uint64_t kMostDictionary = std::uint64_t{128} << 20;

std::string_view c_string(std::span<const std::byte> bytes) {
  const auto* start = reinterpret_cast<const char*>(bytes.data());
  const auto* end = bytes.empty() ? nullptr : static_cast<const char*>(std::memchr(start, 0, bytes.size()));
  return end == nullptr ? std::string_view{} : std::string_view(start, static_cast<std::size_t>(end - start));
}

std::span<const std::byte> section_bytes(const elf::Image& image, std::string_view name) {
  const elf::Section* section = image.section(name);
  return section == nullptr ? std::span<const std::byte>{} : image.contents(*section);
}

// /proc/PID/map_files/... and a bare name say nothing of where the file lies.
bool names_a_folder(const std::string& path) { return path.starts_with('/') && path.find("/map_files/") == std::string::npos; }

// The folders a file lies in, by every name it has: as opened, as the target calls it, and without links (/lib is /usr/lib).
std::vector<std::string> folders_of(const elf::Image& image) {
  std::vector<std::string> folders;
  const auto add = [&](const std::string& path) {
    if (!names_a_folder(path)) return;
    std::string folder = fs::path(path).parent_path().string();
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(std::move(folder));
  };
  add(image.path());
  add(image.name());
  std::error_code ignored;
  if (names_a_folder(image.path())) add(fs::canonical(image.path(), ignored).string());
  return folders;
}

}  // namespace

// The debug directories, each under the sysroot first.
std::vector<std::string> DebugFiles::roots() const {
  std::vector<std::string> all;
  for (const std::string& directory : options_.debug_directories) {
    if (!options_.sysroot.empty()) all.push_back(options_.sysroot + "/" + directory);
  }
  all.insert(all.end(), options_.debug_directories.begin(), options_.debug_directories.end());
  return all;
}

std::shared_ptr<const elf::Image> DebugFiles::open_if_there(const std::string& path) {
  auto opened = elf::Image::open(path, path);
  if (opened) return *opened;
  if (opened.error().code != ErrorCode::kNotFound && opened.error().os_errno != ENOTDIR && opened.error().os_errno != ENAMETOOLONG) {
    problems_.push_back(opened.error().message());
  }
  return nullptr;
}

bool DebugFiles::accept_id(const elf::Image& found, const BuildId& wanted, const std::string& wanted_by, const char* kind) {
  if (found.build_id() == wanted) return true;
  problems_.push_back(fmt::format("{}: refused as the {} of {}: its build-id is {}, {} is expected", found.name(), kind, wanted_by,
                                  elf::to_string(found.build_id()), elf::to_string(wanted)));
  return false;
}

std::shared_ptr<const elf::Image> DebugFiles::by_build_id(const BuildId& id, const std::string& wanted_by) {
  if (id.size() < 2) return nullptr;
  const std::string hex = elf::to_string(id);
  for (const std::string& root : roots()) {
    auto found = open_if_there(fmt::format("{}/.build-id/{}/{}.debug", root, hex.substr(0, 2), hex.substr(2)));
    if (found && accept_id(*found, id, wanted_by, "debug file")) return found;
  }
  return nullptr;
}

// Nothing: the file is too long for it, or the time for the image was over; that is said.
std::optional<std::uint32_t> DebugFiles::crc_of(const elf::Image& file) {
  auto rest = file.bytes();
  if (rest.size() > kMostForCrc) {
    problems_.push_back(fmt::format("{}: refused as a debug file: it has no build-id, and is too long ({} GiB) for its CRC to be taken", file.name(), rest.size() >> 30));
    return std::nullopt;
  }
  uLong crc = 0;
  while (!rest.empty()) {
    if (until_.passed()) {
      problems_.push_back(fmt::format("{}: not used as a debug file: the time was over before its CRC was known", file.name()));
      return std::nullopt;
    }
    const auto step = rest.first(std::min(rest.size(), kCrcStep));
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(step.data()), step.size());
    rest = rest.subspan(step.size());
  }
  return static_cast<std::uint32_t>(crc);
}

std::shared_ptr<const elf::Image> DebugFiles::separate_file(const elf::Image& image) {
  if (auto found = by_build_id(image.build_id(), image.name())) return found;

  // .gnu_debuglink: a file name, zeros up to a multiple of 4, the CRC of that file.
  const auto link = section_bytes(image, ".gnu_debuglink");
  const std::string name(c_string(link));
  const auto crc = elf::load<std::uint32_t>(link, (name.size() + 4) & ~std::uint64_t{3});
  // It is a name in folders of our choice: not a path to any file the target likes.
  if (name.empty() || !crc || name.find('/') != std::string::npos || name == "." || name == "..") return nullptr;

  std::vector<std::string> candidates;
  for (const std::string& folder : folders_of(image)) {
    candidates.push_back(folder + "/" + name);
    candidates.push_back(folder + "/.debug/" + name);
    if (!options_.sysroot.empty()) {
      candidates.push_back(options_.sysroot + folder + "/" + name);
      candidates.push_back(options_.sysroot + folder + "/.debug/" + name);
    }
  }
  for (const std::string& root : roots()) {
    for (const std::string& folder : folders_of(image)) candidates.push_back(root + folder + "/" + name);
  }
  for (const std::string& candidate : candidates) {
    std::error_code ignored;
    if (!image.path().empty() && fs::equivalent(candidate, image.path(), ignored)) continue;
    auto found = open_if_there(candidate);
    if (!found) continue;
    // The CRC of 1 GB takes longer than the whole report: equal build-ids say more.
    if (!image.build_id().empty() && !found->build_id().empty()) {
      if (accept_id(*found, image.build_id(), image.name(), "debug file")) return found;
      continue;
    }
    const auto actual = crc_of(*found);
    if (!actual) continue;
    if (*actual == *crc) return found;
    problems_.push_back(fmt::format("{}: refused as the debug file of {}: its CRC is {:08x}, {:08x} is expected", candidate, image.name(),
                                    *actual, *crc));
  }
  return nullptr;
}

std::shared_ptr<const elf::Image> DebugFiles::alt_file(const elf::Image& image) {
  // .gnu_debugaltlink: a path, 0, the build-id of that file.
  const auto link = section_bytes(image, ".gnu_debugaltlink");
  const std::string name(c_string(link));
  if (name.empty() || name.size() + 1 >= link.size()) return nullptr;
  const auto* id_start = reinterpret_cast<const std::uint8_t*>(link.data()) + name.size() + 1;
  const BuildId id(id_start, id_start + (link.size() - name.size() - 1));
  if (auto found = by_build_id(id, image.name())) return found;

  std::vector<std::string> candidates;
  if (name.starts_with('/')) {
    if (!options_.sysroot.empty()) candidates.push_back(options_.sysroot + name);
    candidates.push_back(name);
  } else {
    // Relative to the file, wherever a link to it lies.
    for (const std::string& folder : folders_of(image)) candidates.push_back(folder + "/" + name);
  }
  for (const std::string& candidate : candidates) {
    auto found = open_if_there(candidate);
    if (found && accept_id(*found, id, image.name(), "shared debug file")) return found;
  }
  problems_.push_back(fmt::format("{}: no lines or inlined functions: its shared debug file {} (build-id {}) is not there", image.name(),
                                  name, elf::to_string(id)));
  return nullptr;
}

std::shared_ptr<const elf::Image> DebugFiles::mini_debug_info(const elf::Image& image) {
  const auto packed = section_bytes(image, ".gnu_debugdata");
  if (packed.empty()) return nullptr;
  const auto refuse = [&](const std::string& why) {
    problems_.push_back(fmt::format("{}: .gnu_debugdata: {}", image.name(), why));
    return nullptr;
  };
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, kMostDictionary, LZMA_CONCATENATED) != LZMA_OK) return refuse("cannot start xz");
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> guard(&stream, lzma_end);
  const std::uint64_t most = std::min(kMostUnpacked, std::max<std::uint64_t>(packed.size() * kBestRatio, kAlwaysAllowed));
  std::vector<std::byte> bytes(std::min<std::uint64_t>(packed.size() * 4, most));
  stream.next_in = reinterpret_cast<const std::uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  while (true) {
    stream.next_out = reinterpret_cast<std::uint8_t*>(bytes.data()) + stream.total_out;
    stream.avail_out = bytes.size() - stream.total_out;
    const lzma_ret done = lzma_code(&stream, LZMA_FINISH);
    if (done == LZMA_STREAM_END) break;
    if (done != LZMA_OK) return refuse(fmt::format("not a whole xz stream (liblzma's error {})", static_cast<int>(done)));
    if (stream.avail_out > 0) continue;
    if (bytes.size() >= most) return refuse(fmt::format("unpacks to more than {} MiB", most >> 20));
    bytes.resize(std::min<std::uint64_t>(bytes.size() * 2, most));
  }
  bytes.resize(stream.total_out);
  auto unpacked = elf::Image::from_bytes(std::move(bytes), image.name() + " (.gnu_debugdata)");
  if (!unpacked) return refuse(unpacked.error().what);
  return *unpacked;
}

}  // namespace rankstacks
