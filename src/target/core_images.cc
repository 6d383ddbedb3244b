#include "target/core_images.h"

#include "base/text.h"

#include <elf.h>
#include <fmt/format.h>
#include <algorithm>
#include <cstring>

namespace rankstacks::target {
namespace {

constexpr std::size_t kMaxNames = 20;
constexpr std::size_t kMaxRefusals = 100;  // one line each; a damaged core can name any number of files

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string build_id_path(const BuildId& id) {
  const std::string hex = elf::to_string(id);
  return ".build-id/" + hex.substr(0, 2) + "/" + hex.substr(2);
}

// Directories that are links into /usr where the process ran, and perhaps are not there in a tree of its files.
bool is_below_linked(const std::string& path) {
  return path.starts_with("/lib/") || path.starts_with("/lib64/") || path.starts_with("/bin/") ||
         path.starts_with("/sbin/");
}

// "/opt/env/lib/libx.so": itself, "/env/lib/libx.so", "/lib/libx.so", "/libx.so".
std::vector<std::string> ends_of(const std::string& path) {
  constexpr std::size_t kMaxEnds = 32;
  std::vector<std::string> ends;
  // The path is the core's, and must not lead out of the directory that it is appended to.
  const bool leads_out = contains(path + "/", "/../");
  if (is_below_linked(path) && !leads_out) ends.push_back("/usr" + path);
  for (std::size_t at = path.find('/'); at != std::string::npos && !leads_out && ends.size() < kMaxEnds;
       at = path.find('/', at + 1))
    ends.push_back(path.substr(at));
  const std::string last = "/" + base_name(path);
  if (last != "/" && last != "/.." && (ends.empty() || ends.back() != last)) ends.push_back(last);
  return ends;
}

// A separate debug file has all the headers but no code: it has SHT_NOBITS in place of the code.
bool holds_code(const elf::Image& image) {
  bool any = false;
  for (const elf::Section& section : image.sections()) {
    if ((section.header.sh_flags & SHF_EXECINSTR) == 0) continue;
    if (section.header.sh_type != SHT_NOBITS) return true;
    any = true;
  }
  return !any;
}

// Memory with a name (memfd_create(2)), in which no module was found: libffi keeps its trampolines there. A file of
// that name is nowhere to be had.
bool never_was_a_file(const CoreModuleIdentity& wanted) {
  return wanted.path.starts_with("/memfd:") && (!wanted.build_id || wanted.build_id->empty());
}

// What shows that the file is another than the process had; std::nullopt: nothing does.
std::optional<std::string> difference_of(const elf::Image& file, const std::string& path,
                                         const CoreModuleIdentity& wanted) {
  if (wanted.build_id && (!wanted.build_id->empty() || !file.build_id().empty())) {
    if (*wanted.build_id == file.build_id()) return std::nullopt;
    return fmt::format("the core has build-id {}, {} has {}", elf::to_string(*wanted.build_id), path,
                       elf::to_string(file.build_id()));
  }
  const std::size_t size = wanted.head.size();
  if (size == 0 || (file.bytes().size() >= size && std::memcmp(wanted.head.data(), file.bytes().data(), size) == 0))
    return std::nullopt;
  return fmt::format("{} is another file: its first {} bytes differ from those in the core, and there is no build-id",
                     path, size);
}

}  // namespace

std::vector<CoreImages::Candidate> CoreImages::candidates(const CoreModuleIdentity& wanted) const {
  std::vector<Candidate> all;
  if (wanted.main_program && !options_.executable.empty()) all.push_back({options_.executable, true});
  if (wanted.path.starts_with('/')) {
    if (!options_.sysroot.empty()) {
      const auto add = [&](const std::string& path) { all.push_back({options_.sysroot + path, false, path}); };
      add(wanted.path);
      if (is_below_linked(wanted.path)) add("/usr" + wanted.path);
    }
    // The path of a file that had been deleted when the core was written names another file now: only a build-id can
    // identify the right one.
    if (!wanted.deleted || (wanted.build_id && !wanted.build_id->empty())) all.push_back({wanted.path});
  }
  const bool has_id = wanted.build_id && wanted.build_id->size() > 1;
  for (const std::string& directory : options_.search) {
    for (std::string& end : ends_of(wanted.path)) all.push_back({directory + std::move(end)});
    if (!has_id) continue;
    all.push_back({directory + "/" + build_id_path(*wanted.build_id)});
    all.push_back({directory + "/" + build_id_path(*wanted.build_id) + ".debug"});
  }
  if (has_id) all.push_back({"/usr/lib/debug/" + build_id_path(*wanted.build_id)});
  return all;
}

Result<std::shared_ptr<const elf::Image>> CoreImages::open(const Candidate& candidate,
                                                           const CoreModuleIdentity& wanted) {
  return candidate.below_sysroot.empty() ? cache_.open(candidate.path, wanted.path)
                                         : cache_.open_below(options_.sysroot, candidate.below_sysroot, wanted.path);
}

FoundImage CoreImages::find(const CoreModuleIdentity& wanted) {
  std::vector<Problem> refused;
  std::string why;
  const char* hint =
      wanted.main_program
          ? "give the program that was running with --exe, or the files of that machine with --sysroot or --search"
          : "give the files that were loaded with --sysroot or --search";
  const auto refuse = [&](const Candidate& candidate, std::string reason) {
    if (why.empty()) why = reason;
    (candidate.asked_for ? refused_ : refused)
        .push_back({fmt::format("module {}: {}", wanted.path, reason), hint, ProblemCode::kFileMismatch, wanted.path});
  };
  std::vector<Candidate> all = candidates(wanted);
  bool asked = !options_.debuginfod || !wanted.build_id;
  for (std::size_t i = 0;; ++i) {
    if (i == all.size() && !asked) {
      asked = true;
      if (auto path = options_.debuginfod->find(elf::Debuginfod::Kind::kExecutable, *wanted.build_id))
        all.push_back({std::move(*path)});
    }
    if (i == all.size()) break;
    const Candidate& candidate = all[i];
    auto image = open(candidate, wanted);
    if (!image) {
      if (image.error().code == ErrorCode::kNotFound && !candidate.asked_for) continue;
      Error error = image.error();
      error.subject = candidate.path;
      refuse(candidate, error.message());
      continue;
    }
    if (auto difference = difference_of(**image, candidate.path, wanted)) {
      refuse(candidate, std::move(*difference));
      continue;
    }
    if (!holds_code(**image)) continue;  // the symbolizer finds debug files itself
    if (!wanted.build_id && wanted.head.empty()) unverified_.push_back(candidate.path);
    return {*image, {}};
  }
  if (why.empty()) {
    const bool has_id = wanted.build_id && !wanted.build_id->empty();
    if (!never_was_a_file(wanted))
      missing_.push_back({.path = wanted.path, .build_id = has_id ? elf::to_string(*wanted.build_id) : ""});
    why = "no such file on this machine";
  }
  refused_.insert(refused_.end(), refused.begin(), refused.end());
  return {nullptr, why};
}

std::vector<Problem> CoreImages::problems() const {
  std::vector<Problem> problems(
      refused_.begin(), refused_.begin() + static_cast<std::ptrdiff_t>(std::min(refused_.size(), kMaxRefusals)));
  if (refused_.size() > kMaxRefusals) {
    problems.push_back({fmt::format("{} more files refused likewise", refused_.size() - kMaxRefusals), std::nullopt,
                        ProblemCode::kFileMismatch});
  }
  if (!missing_.empty()) problems.push_back(missing_files_problem(missing_));
  if (!unverified_.empty()) {
    problems.push_back(
        {fmt::format("{} file{} could not be checked, as the core holds no build-id of {}: {}", unverified_.size(),
                     plural(unverified_.size()), unverified_.size() == 1 ? "it" : "them",
                     joined(unverified_, ", ", kMaxNames)),
         "frames may be wrong if they changed since; coredump_filter's bit 4 makes the kernel write the pages with "
         "build-ids",
         ProblemCode::kFileUnverified});
  }
  return problems;
}

}  // namespace rankstacks::target
