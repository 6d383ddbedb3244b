#include "doctor/coredump_settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

namespace rankstacks::doctor {
namespace {

using Storage = CoredumpSettings::Storage;

constexpr std::uint64_t kMega = 1 << 20, kGiga = 1 << 30;
// coredump.c: PROCESS_SIZE_MAX and EXTERNAL_SIZE_MAX were 2 GB up to 250 (systemd's issue 22076), on 64-bit machines.
constexpr int kFirstWithLargeCores = 251;
constexpr std::uint64_t kOldSize = 2 * kGiga, kSize = 32 * kGiga;
constexpr std::uint64_t kJournalSize = 767 * kMega;  // JOURNAL_SIZE_MAX: the journal takes no larger entry
// coredump-vacuum.c: a tenth and three twentieths of the file system, and never more than this.
constexpr std::uint64_t kMaxShare = 4 * kGiga, kLeastUse = kMega;
// Before, the main file was /etc/systemd/coredump.conf alone.
constexpr int kFirstWithMainFileElsewhere = 256;

constexpr const char* kPlaces[] = {"/etc", "/run", "/usr/local/lib", "/usr/lib"};  // the first one counts most

std::string_view trimmed(std::string_view text) {
  constexpr const char* kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::optional<int> version_of(const System& system, const std::string& root) {
  constexpr std::string_view kLibrary = "libsystemd-shared-";
  for (const char* directory : {"/usr/lib/systemd", "/lib/systemd", "/usr/lib/x86_64-linux-gnu/systemd"})
    for (const std::string& name : system.list(root + directory)) {
      int version = 0;
      if (!name.starts_with(kLibrary)) continue;
      const char* begin = name.data() + kLibrary.size();
      if (std::from_chars(begin, name.data() + name.size(), version).ptr != begin && version > 0) return version;
    }
  return std::nullopt;
}

std::optional<bool> parse_yes(std::string_view text) {
  for (const std::string_view yes : {"1", "yes", "y", "true", "t", "on"})
    if (text == yes) return true;
  for (const std::string_view no : {"0", "no", "n", "false", "f", "off"})
    if (text == no) return false;
  return std::nullopt;
}

// A value that systemd cannot read leaves the setting as it was.
void set(CoredumpSettings& settings, std::string_view key, std::string_view value) {
  const auto size = parse_coredump_size(value);
  if (key == "Storage") {
    if (value == "none") settings.storage = Storage::kNone;
    if (value == "external") settings.storage = Storage::kExternal;
    if (value == "journal") settings.storage = Storage::kJournal;
  } else if (key == "Compress") {
    settings.compress = parse_yes(value).value_or(settings.compress);
  } else if (key == "ProcessSizeMax") {
    settings.process_size_max = size.value_or(settings.process_size_max);
  } else if (key == "ExternalSizeMax") {
    // The only one that takes this word.
    settings.external_size_max =
        value == "infinity" ? CoredumpSettings::kInfinity : size.value_or(settings.external_size_max);
  } else if (key == "JournalSizeMax") {
    settings.journal_size_max = std::min(size.value_or(settings.journal_size_max), kJournalSize);
  } else if (key == "MaxUse") {
    if (size) settings.max_use = size;
  } else if (key == "KeepFree") {
    if (size) settings.keep_free = size;
  }
}

void read_file(CoredumpSettings& settings, const std::string& text) {
  bool ours = false;
  std::string line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view piece = trimmed(std::string_view(text).substr(at, end - at));
    at = end + 1;
    if (piece.starts_with('#') || piece.starts_with(';')) continue;  // also between continued lines
    line += piece;
    if (line.ends_with('\\')) {
      line.back() = ' ';
      continue;
    }
    const std::string_view whole = trimmed(line);
    const std::size_t equals = whole.find('=');
    if (whole.starts_with('[')) ours = whole == "[Coredump]";
    else if (ours && equals != std::string_view::npos)
      set(settings, trimmed(whole.substr(0, equals)), trimmed(whole.substr(equals + 1)));
    line.clear();
  }
}

}  // namespace

std::optional<std::uint64_t> parse_coredump_size(std::string_view text) {
  text = trimmed(text);
  if (text.empty()) return std::nullopt;
  constexpr std::string_view kSuffixes = "BKMGTPE";
  constexpr double kMaxBytes = 18446744073709549568.0;  // the largest double below 2^64
  double sum = 0;
  std::size_t above = kSuffixes.size();  // each part has a smaller suffix than the one before
  while (!text.empty()) {
    // Not "inf" or "nan", which from_chars takes.
    if (std::isdigit(static_cast<unsigned char>(text.front())) == 0) return std::nullopt;
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc() || number < 0) return std::nullopt;
    text = trimmed(text.substr(static_cast<std::size_t>(end - text.data())));
    std::size_t suffix = 0;
    if (!text.empty() && kSuffixes.find(text.front()) != std::string_view::npos) {
      suffix = kSuffixes.find(text.front());
      text.remove_prefix(1);
    } else if (!text.empty()) {
      return std::nullopt;
    }
    if (suffix >= above) return std::nullopt;
    above = suffix;
    sum += number * static_cast<double>(std::uint64_t{1} << (10 * suffix));
    if (sum > kMaxBytes) return std::nullopt;
    text = trimmed(text);
  }
  return static_cast<std::uint64_t>(sum);
}

std::uint64_t CoredumpSettings::taken() const {
  return std::max(process_size_max, storage == Storage::kNone ? 0 : kept());
}

std::string CoredumpSettings::taken_by() const {
  return storage != Storage::kNone && kept() >= process_size_max ? kept_by() : "ProcessSizeMax";
}

std::uint64_t CoredumpSettings::kept() const {
  switch (storage) {
    case Storage::kNone: return 0;
    case Storage::kExternal: return external_size_max;
    case Storage::kJournal: return journal_size_max;
  }
  return 0;
}

std::string CoredumpSettings::kept_by() const {
  return storage == Storage::kNone ? "Storage" : storage == Storage::kExternal ? "ExternalSizeMax" : "JournalSizeMax";
}

std::uint64_t CoredumpSettings::max_use_of(std::uint64_t file_system) const {
  return max_use.value_or(std::clamp(file_system / 10, kLeastUse, kMaxShare));
}

std::uint64_t CoredumpSettings::keep_free_of(std::uint64_t file_system) const {
  return keep_free.value_or(std::min(file_system / 20 * 3, kMaxShare));
}

CoredumpSettings read_coredump_settings(const System& system, const std::string& root) {
  CoredumpSettings settings;
  settings.version = version_of(system, root);
  settings.process_size_max = settings.external_size_max =
      settings.version && *settings.version < kFirstWithLargeCores ? kOldSize : kSize;
  settings.journal_size_max = kJournalSize;

  const auto read = [&](const std::string& path) {
    const auto text = system.read_file(root + path);
    if (!text) return false;
    settings.files.push_back(path);
    read_file(settings, *text);
    return true;
  };
  // One main file, then the files of the directories by name. Of files with one name, only that of the first directory
  // counts: an empty one (or a link to /dev/null) there hides the others.
  for (const char* place : kPlaces) {
    if (read(std::string(place) + "/systemd/coredump.conf")) break;
    if (settings.version && *settings.version < kFirstWithMainFileElsewhere) break;
  }
  std::map<std::string, std::string> by_name;
  for (const char* place : kPlaces) {
    const std::string directory = std::string(place) + "/systemd/coredump.conf.d";
    for (const std::string& name : system.list(root + directory))
      if (name.ends_with(".conf") && !name.starts_with('.')) by_name.emplace(name, directory + "/" + name);
  }
  for (const auto& [name, path] : by_name) read(path);
  return settings;
}

}  // namespace rankstacks::doctor
