#include "symbolizers/debug_file.h"

#include <fmt/format.h>
#include <lzma.h>
#include <zlib.h>
#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/text.h"
#include "elf/bytes.h"

namespace rankstacks::symbolizers {
namespace {

namespace fs = std::filesystem;

// A debug file of 65,536 functions unpacks to 5 MB; the dictionary of xz -9 is 64 MiB.
constexpr std::uint64_t kMaxUnpacked = std::uint64_t{256} << 20;
constexpr std::uint64_t kBestRatio = 32;  // symbols are compressed by a factor of 3 to 5
constexpr std::uint64_t kAlwaysAllowed = 16 << 20;
// The CRC covers all bytes of a file, and a sparse file of terabytes takes no space. Debug files this large (4 s to
// read from memory) have build-ids.
constexpr std::uint64_t kMaxForCrc = std::uint64_t{4} << 30;
constexpr std::size_t kCrcStep = 4 << 20;

constexpr std::uint64_t kMaxDictionary = std::uint64_t{128} << 20;

constexpr std::size_t kLongestName = 255;     // NAME_MAX
constexpr std::size_t kLongestPath = 4095;    // PATH_MAX
constexpr std::size_t kLongestBuildId = 256;  // as in notes

std::string_view c_string(std::span<const std::byte> bytes) {
  const auto* start = reinterpret_cast<const char*>(bytes.data());
  const auto* end = bytes.empty() ? nullptr : static_cast<const char*>(std::memchr(start, 0, bytes.size()));
  return end == nullptr ? std::string_view{} : std::string_view(start, static_cast<std::size_t>(end - start));
}

std::span<const std::byte> section_bytes(const elf::Image& image, std::string_view name) {
  const elf::Section* section = image.section(name);
  return section == nullptr ? std::span<const std::byte>{} : image.contents(*section);
}

// /proc/PID/map_files/... and a bare name do not show where the file is.
bool names_a_directory(const std::string& path) { return path.starts_with('/') && !contains(path, "/map_files/"); }

// The full names of a file: as opened, as the target calls it, and with links resolved (/lib is /usr/lib).
std::vector<std::string> names_of(const elf::Image& image) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& path) {
    if (names_a_directory(path) && std::find(names.begin(), names.end(), path) == names.end()) names.push_back(path);
  };
  add(image.path());
  add(image.name());
  std::error_code ignored;
  if (names_a_directory(image.path())) add(fs::canonical(image.path(), ignored).string());
  return names;
}

std::vector<std::string> directories_of_names(const std::vector<std::string>& names) {
  std::vector<std::string> directories;
  for (const std::string& name : names) {
    std::string directory = fs::path(name).parent_path().string();
    if (std::find(directories.begin(), directories.end(), directory) == directories.end())
      directories.push_back(std::move(directory));
  }
  return directories;
}

// `path` without "." and "..", if it is then below one of the directories.
std::optional<std::string> below(const std::vector<std::string>& directories, const std::string& path) {
  const std::string plain = fs::path(path).lexically_normal().string();
  for (const std::string& directory : directories) {
    std::string prefix = fs::path(directory).lexically_normal().string();
    if (!prefix.ends_with('/')) prefix += '/';
    if (plain.size() > prefix.size() && plain.starts_with(prefix)) return plain;
  }
  return std::nullopt;
}

std::vector<std::string> directories_of(const elf::Image& image) { return directories_of_names(names_of(image)); }

// The file does not exist, which is not an error of anybody.
bool is_absent(const Error& error) {
  return error.code == ErrorCode::kNotFound || error.os_errno == ENOTDIR || error.os_errno == ENAMETOOLONG;
}

// Whether a path stays below the directory that it is appended to.
bool stays_below(const fs::path& path) {
  return path.is_relative() && !path.empty() &&
         std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

}  // namespace

// The debug directories, first each of them under the sysroot, and before them what the user named.
std::vector<std::string> DebugFiles::roots() const {
  std::vector<std::string> all;
  for (const std::string& directory : options_.search) {
    all.push_back(directory);
    all.push_back(directory + "/usr/lib/debug");
  }
  for (const std::string& directory : options_.debug_directories) {
    if (!options_.sysroot.empty()) all.push_back(options_.sysroot + "/" + directory);
  }
  all.insert(all.end(), options_.debug_directories.begin(), options_.debug_directories.end());
  return all;
}

// What is below the sysroot is another system's: its links lead to its own files.
Result<std::shared_ptr<const elf::Image>> DebugFiles::open(const std::string& path) const {
  const std::string& root = options_.sysroot;
  if (!root.empty() && path.size() > root.size() && path.starts_with(root) && path[root.size()] == '/')
    return elf::Image::open_below(root, path.substr(root.size()), path);
  return elf::Image::open(path, path);
}

std::shared_ptr<const elf::Image> DebugFiles::open_if_there(const std::string& path) {
  auto opened = open(path);
  if (opened) return *opened;
  if (!is_absent(opened.error())) {
    problems_.push_back(opened.error().message());
  }
  return nullptr;
}

bool DebugFiles::accept_id(const elf::Image& found, const BuildId& wanted, const std::string& wanted_by,
                           const char* kind) {
  if (found.build_id() == wanted) return true;
  problems_.push_back(fmt::format("{}: refused as the {} of {}: its build-id is {}, {} is expected", found.name(), kind,
                                  wanted_by, elf::to_string(found.build_id()), elf::to_string(wanted)));
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

// std::nullopt, with a problem, if the file is too long for this or the time for the image is over.
std::optional<std::uint32_t> DebugFiles::crc_of(const elf::Image& file) {
  auto rest = file.bytes();
  if (rest.size() > kMaxForCrc) {
    problems_.push_back(
        fmt::format("{}: refused as a debug file: it has no build-id, and is too long ({} GiB) for its CRC to be taken",
                    file.name(), rest.size() >> 30));
    return std::nullopt;
  }
  uLong crc = 0;
  while (!rest.empty()) {
    if (until_.passed()) {
      problems_.push_back(
          fmt::format("{}: not used as a debug file: the time was over before its CRC was known", file.name()));
      return std::nullopt;
    }
    const auto step = rest.first(std::min(rest.size(), kCrcStep));
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(step.data()), step.size());
    rest = rest.subspan(step.size());
  }
  return static_cast<std::uint32_t>(crc);
}

std::shared_ptr<const elf::Image> DebugFiles::by_debuginfod(const BuildId& id, const std::string& wanted_by) {
  const auto path =
      options_.debuginfod ? options_.debuginfod->find(elf::Debuginfod::Kind::kDebugInfo, id) : std::nullopt;
  auto found = path ? open_if_there(*path) : nullptr;
  return found && accept_id(*found, id, wanted_by, "debug file") ? found : nullptr;
}

std::shared_ptr<const elf::Image> DebugFiles::separate_file(const elf::Image& image) {
  if (auto found = by_build_id(image.build_id(), image.name())) return found;
  if (auto found = by_link(image)) return found;
  return by_debuginfod(image.build_id(), image.name());
}

std::shared_ptr<const elf::Image> DebugFiles::by_link(const elf::Image& image) {
  // .gnu_debuglink: a file name, zeros up to a multiple of 4, the CRC of that file.
  const auto link = section_bytes(image, ".gnu_debuglink");
  const std::string name(c_string(link));
  const auto crc = elf::load<std::uint32_t>(link, (name.size() + 4) & ~std::uint64_t{3});
  // The link is a name in directories of our choice, not a path to any file that the target chooses.
  if (name.empty() || name.size() > kLongestName || !crc || contains(name, '/') || name == "." || name == "..")
    return nullptr;

  std::vector<std::string> candidates;
  for (const std::string& directory : directories_of(image)) {
    candidates.push_back(directory + "/" + name);
    candidates.push_back(directory + "/.debug/" + name);
    if (!options_.sysroot.empty()) {
      candidates.push_back(options_.sysroot + directory + "/" + name);
      candidates.push_back(options_.sysroot + directory + "/.debug/" + name);
    }
  }
  for (const std::string& root : roots()) {
    for (const std::string& directory : directories_of(image)) candidates.push_back(root + directory + "/" + name);
  }
  for (const std::string& root : options_.search) {
    for (const std::string& directory : directories_of(image))
      for (std::size_t at = directory.find('/', 1); at != std::string::npos; at = directory.find('/', at + 1))
        candidates.push_back(root + directory.substr(at) + "/" + name);
    candidates.push_back(root + "/" + name);
    candidates.push_back(root + "/.debug/" + name);
  }
  for (const std::string& candidate : candidates) {
    std::error_code ignored;
    if (!image.path().empty() && fs::equivalent(candidate, image.path(), ignored)) continue;
    auto found = open_if_there(candidate);
    if (!found) continue;
    // The CRC of 1 GB takes longer than the whole report, and equal build-ids are better evidence.
    if (!image.build_id().empty() && !found->build_id().empty()) {
      if (accept_id(*found, image.build_id(), image.name(), "debug file")) return found;
      continue;
    }
    const auto actual = crc_of(*found);
    if (!actual) continue;
    if (*actual == *crc) return found;
    problems_.push_back(fmt::format("{}: refused as the debug file of {}: its CRC is {:08x}, {:08x} is expected",
                                    candidate, image.name(), *actual, *crc));
  }
  return nullptr;
}

std::shared_ptr<const elf::Image> DebugFiles::alt_file(const elf::Image& image) {
  // .gnu_debugaltlink: a path, 0, the build-id of that file.
  const auto link = section_bytes(image, ".gnu_debugaltlink");
  const std::string_view stated = c_string(link);
  const std::size_t id_size = link.size() - std::min(link.size(), stated.size() + 1);
  if (stated.empty() || stated.size() > kLongestPath || id_size == 0 || id_size > kLongestBuildId) return nullptr;
  const std::string name(stated);
  const auto* id_start = reinterpret_cast<const std::uint8_t*>(link.data()) + name.size() + 1;
  const BuildId id(id_start, id_start + id_size);
  if (auto found = by_build_id(id, image.name())) return found;

  // A path that was passed to dwz. Like a debug link, it is followed only into directories of our choice: the debug
  // directories, and below the directory of the file itself. It is relative to that directory, wherever a link to the
  // file lies.
  const std::vector<std::string> directories = roots();
  std::vector<std::string> candidates;
  const auto add = [&](const std::vector<std::string>& trusted, const std::string& path) {
    if (auto plain = below(trusted, path);
        plain && std::find(candidates.begin(), candidates.end(), *plain) == candidates.end())
      candidates.push_back(std::move(*plain));
  };
  if (name.starts_with('/')) {
    if (!options_.sysroot.empty()) add(directories, options_.sysroot + name);
    add(directories, name);
  } else {
    for (const std::string& directory : directories_of(image)) {
      std::vector<std::string> allowed = directories;
      allowed.push_back(directory);
      add(allowed, directory + "/" + name);
    }
  }
  for (const std::string& candidate : candidates) {
    auto found = open_if_there(candidate);
    if (!found || !accept_id(*found, id, image.name(), "shared debug file")) continue;
    if (found->section(".gnu_debugaltlink") == nullptr) return found;
    problems_.push_back(fmt::format("{}: refused as the shared debug file of {}: it names another one itself",
                                    candidate, image.name()));
    return nullptr;
  }
  if (auto found = by_debuginfod(id, image.name()); found && found->section(".gnu_debugaltlink") == nullptr)
    return found;
  problems_.push_back(
      fmt::format("{}: no lines or inlined functions: its shared debug file {} (build-id {}) is {}", image.name(), name,
                  elf::to_string(id),
                  candidates.empty() ? "outside of the debug directories and of its own directory" : "not there"));
  return nullptr;
}

std::shared_ptr<const elf::Image> DebugFiles::mini_debug_info(const elf::Image& image) {
  auto packed = section_bytes(image, ".gnu_debugdata");
  if (packed.empty()) return nullptr;
  const auto refuse = [&](const std::string& why) {
    problems_.push_back(fmt::format("{}: .gnu_debugdata: {}", image.name(), why));
    return nullptr;
  };
  std::vector<std::byte> unchanging;
  if (image.others_may_change()) {
    if (packed.size() > kMaxUnpacked) return refuse(fmt::format("longer than {} MiB", kMaxUnpacked >> 20));
    unchanging.assign(packed.begin(), packed.end());
    packed = unchanging;
  }
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, kMaxDictionary, LZMA_CONCATENATED) != LZMA_OK) return refuse("cannot start xz");
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> guard(&stream, lzma_end);
  const std::uint64_t most =
      std::min(kMaxUnpacked, std::max<std::uint64_t>(packed.size() * kBestRatio, kAlwaysAllowed));
  std::vector<std::byte> bytes(std::min<std::uint64_t>(packed.size() * 4, most));
  stream.next_in = reinterpret_cast<const std::uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  while (true) {
    stream.next_out = reinterpret_cast<std::uint8_t*>(bytes.data()) + stream.total_out;
    stream.avail_out = bytes.size() - stream.total_out;
    const lzma_ret done = lzma_code(&stream, LZMA_FINISH);
    if (done == LZMA_STREAM_END) break;
    if (done != LZMA_OK)
      return refuse(fmt::format("not a whole xz stream (liblzma's error {})", static_cast<int>(done)));
    if (stream.avail_out > 0) continue;
    if (bytes.size() >= most) return refuse(fmt::format("unpacks to more than {} MiB", most >> 20));
    bytes.resize(std::min<std::uint64_t>(bytes.size() * 2, most));
  }
  bytes.resize(stream.total_out);
  auto unpacked = elf::Image::from_bytes(std::move(bytes), image.name() + " (.gnu_debugdata)");
  if (!unpacked) return refuse(unpacked.error().what);
  return *unpacked;
}

// The names of the two files are read only when there is a split unit, as that takes system calls.
SplitFiles::SplitFiles(DebugFiles& files, const elf::Image& image, const elf::Image& stripped)
    : files_(files), image_(image), stripped_(stripped) {}

std::shared_ptr<const SplitFile> SplitFiles::open(const std::string& path, bool must_be_owners, Refusals& refusals) {
  auto image = files_.open(path);
  if (!image) {
    if (!is_absent(image.error())) refusals.push_back(image.error().message());
    return nullptr;
  }
  if (must_be_owners && (*image)->owner() != image_.owner()) {
    refusals.push_back(
        fmt::format("{}: refused as split debug information of {}: the two have different owners, and this path is "
                    "only named in the file",
                    path, image_.name()));
    return nullptr;
  }
  auto split = SplitFile::open(std::move(*image));
  if (split) return *split;
  refusals.push_back(split.error().message());
  return nullptr;
}

void SplitFiles::find_package() {
  looked_for_package_ = true;
  names_ = names_of(stripped_);
  for (std::string& name : names_of(image_)) {
    if (std::find(names_.begin(), names_.end(), name) == names_.end()) names_.push_back(std::move(name));
  }
  directories_ = directories_of_names(names_);
  std::vector<std::string> candidates;
  for (const std::string& name : names_) {
    candidates.push_back(name + ".dwp");
    if (!files_.options_.sysroot.empty()) candidates.push_back(files_.options_.sysroot + name + ".dwp");
  }
  for (const std::string& root : files_.roots()) {
    for (const std::string& name : names_) candidates.push_back(root + name + ".dwp");
  }
  for (const std::string& candidate : candidates) {
    package_ = open(candidate, false, files_.problems_);
    if (package_) return;
  }
}

bool SplitFiles::find(const DwarfUnit::SplitName& unit, const std::function<bool(const SplitFile&)>& use) {
  if (!looked_for_package_) find_package();
  if (package_ && use(*package_)) return true;

  const fs::path named(unit.path);
  Refusals refusals;
  std::vector<std::string> tried;  // a directory of the file may also be the compiler's
  const auto take = [&](const std::string& path, bool must_be_owners) {
    if (std::find(tried.begin(), tried.end(), path) != tried.end()) return false;
    tried.push_back(path);
    if (current_path_ != path || !current_) {
      current_ = open(path, must_be_owners, refusals);
      current_path_ = path;
    }
    if (!current_) return false;
    if (use(*current_)) return true;
    refusals.push_back(fmt::format("{}: refused as split debug information of {}: it has no unit with the id {:016x}",
                                   path, image_.name(), unit.id));
    return false;
  };
  const std::string& sysroot = files_.options_.sysroot;
  const auto take_below = [&](const std::string& directory, const fs::path& name) {
    if (!stays_below(name)) return false;
    return (!sysroot.empty() && take(fs::path(sysroot + directory) / name, false)) ||
           take(fs::path(directory) / name, false);
  };
  for (const std::string& directory : directories_) {
    if (take_below(directory, named)) return true;
    if (named.has_parent_path() && take_below(directory, named.filename())) return true;
  }
  const fs::path full = named.empty() ? named : fs::path(unit.directory) / named;  // `named` alone if it is absolute
  if (full.is_absolute() && ((!sysroot.empty() && take(sysroot + full.string(), true)) || take(full, true)))
    return true;

  constexpr std::size_t kMaxReported = 4;  // a program can have thousands of units
  for (std::string& refusal : refusals) {
    if (reported_++ < kMaxReported) files_.problems_.push_back(std::move(refusal));
  }
  if (missing_++ == 0) first_missing_ = unit.path;
  return false;
}

void SplitFiles::report_missing() {
  if (missing_ == 0) return;
  files_.problems_.push_back(
      fmt::format("{}: no inlined functions of {} of its compilation units: their split debug information is not there "
                  "(neither {}.dwp nor {})",
                  image_.name(), missing_, fs::path(image_.name()).filename().string(), first_missing_));
}

}  // namespace rankstacks::symbolizers
