#include "known/known_programs.h"

#include <array>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include "base/text.h"

namespace rankstacks::known {
namespace {

template <class T, class Range>
void append_to(std::vector<T>& rules, const Range& more) {
  rules.insert(rules.end(), std::begin(more), std::end(more));
}

void append_to(KnownPrograms& rules, const KnownPrograms& more) {
  append_to(rules.thread_roles, more.thread_roles);
  append_to(rules.child_roles, more.child_roles);
  append_to(rules.thread_names, more.thread_names);
  append_to(rules.idle, more.idle);
  append_to(rules.activities, more.activities);
  append_to(rules.files, more.files);
  append_to(rules.places, more.places);
  append_to(rules.modules, more.modules);
}

KnownPrograms make_built_in() {
  KnownPrograms rules;
  append_to(rules.thread_roles, built_in_thread_roles());
  append_to(rules.child_roles, built_in_child_roles());
  append_to(rules.thread_names, built_in_thread_names());
  append_to(rules.idle, built_in_idle());
  append_to(rules.activities, built_in_waits());
  append_to(rules.activities, built_in_activities());
  append_to(rules.files, built_in_files());
  append_to(rules.places, built_in_places());
  append_to(rules.modules, built_in_modules());
  return rules;
}

struct Installed {
  AddedPrograms added;
  KnownPrograms all;
  std::array<std::vector<PlaceRule>, kPlaces> places;  // of `all`, by place: looked up for each frame of each thread

  explicit Installed(AddedPrograms with) : added(std::move(with)), all(added.rules) {
    append_to(all, built_in_programs());
    for (const PlaceRule& rule : all.places) places[static_cast<std::size_t>(rule.place)].push_back(rule);
  }
};

// Never destroyed: a thread that was given up may still use it while the process ends.
Installed& installed() {
  static Installed& programs = *new Installed({});
  return programs;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// .../lib/python3.11/threading.py, .../lib64/python3.9/..., and zipped libraries .../lib/python311.zip/...
bool is_of_standard_library(std::string_view file) {
  for (std::size_t at = file.find("/lib"); at != std::string_view::npos; at = file.find("/lib", at + 1)) {
    std::string_view rest = file.substr(at + 4);
    if (rest.starts_with("64")) rest.remove_prefix(2);
    constexpr std::string_view kPython = "/python";
    if (rest.starts_with(kPython) && rest.size() > kPython.size() && is_digit(rest[kPython.size()])) return true;
  }
  return false;
}

bool find_library_file(std::string_view file) {
  for (const FileRule& rule : installed().all.files)
    if (rule.match == FileMatch::kSuffix ? file.ends_with(rule.file) : contains(file, rule.file)) return rule.library;
  return file.starts_with('<') || is_of_standard_library(file);
}

// The answers for the last files: a job has millions of frames in few files.
class LibraryFiles {
 public:
  bool contain(std::string_view file) {
    constexpr std::size_t kLongest = 4096;  // longer names, which are none of files, are not kept
    if (file.size() > kLongest) return find_library_file(file);
    const std::lock_guard lock(mutex_);
    Known& known = last_[std::hash<std::string_view>()(file) % last_.size()];
    if (!known.is_set || known.file != file) known = {std::string(file), find_library_file(file), true};
    return known.library;
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    last_ = {};
  }

 private:
  struct Known {
    std::string file;
    bool library = false, is_set = false;
  };

  std::mutex mutex_;
  std::array<Known, 256> last_;
};

// Never destroyed, as installed().
LibraryFiles& library_files() {
  static LibraryFiles& files = *new LibraryFiles;
  return files;
}

}  // namespace

void AddedPrograms::append(AddedPrograms other) {
  append_to(rules, other.rules);
  texts.splice(texts.end(), other.texts);
}

const KnownPrograms& built_in_programs() {
  static const KnownPrograms& programs = *new KnownPrograms(make_built_in());
  return programs;
}

const KnownPrograms& added_programs() { return installed().added.rules; }
const KnownPrograms& known_programs() { return installed().all; }
std::span<const PlaceRule> known_places(Place place) { return installed().places[static_cast<std::size_t>(place)]; }

void install_added_programs(AddedPrograms added) {
  installed() = Installed(std::move(added));
  library_files().forget();
}

bool is_library_file(std::string_view file) { return library_files().contain(file); }

}  // namespace rankstacks::known
