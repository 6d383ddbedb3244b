// The rules in force: those that a user has added come before the built-in ones.
//
// Additions are installed once, after the command line has been read and before any process is examined. From then on
// they do not change: the analyzers, and the capture when it compares its samples, stay pure functions of the snapshot.
#pragma once

#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "known/modules.h"
#include "known/places.h"
#include "known/rules.h"

namespace rankstacks::known {

struct KnownPrograms {
  // Of threads that are not their process's main thread; the first matching rule decides.
  std::vector<RoleRule> thread_roles;
  std::vector<RoleRule> child_roles;     // of main threads of child processes; the first matching rule decides
  std::vector<NameRule> thread_names;    // the first matching rule decides
  std::vector<IdleRule> idle;            // one matching rule is enough
  std::vector<ActivityRule> activities;  // the first matching rule decides
  std::vector<FileRule> files;           // the first matching rule decides
  std::vector<PlaceRule> places;         // one matching rule is enough
  std::vector<ModuleRule> modules;       // the first matching rule decides

  std::size_t size() const {
    return thread_roles.size() + child_roles.size() + thread_names.size() + idle.size() + activities.size() +
           files.size() + places.size() + modules.size();
  }
};

// The rules that users have added, with the texts that they refer to. It can be moved, but not copied.
struct AddedPrograms {
  AddedPrograms() = default;
  AddedPrograms(AddedPrograms&&) = default;
  AddedPrograms& operator=(AddedPrograms&&) = default;

  KnownPrograms rules;
  // A list, because its elements keep their addresses, even when they move to another list.
  std::list<std::string> texts;

  std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }
  // Appends the rules of `other`, so that they apply where none of these does.
  void append(AddedPrograms other);
};

const KnownPrograms& built_in_programs();
const KnownPrograms& added_programs();
const KnownPrograms& known_programs();  // both, the added ones first
std::span<const PlaceRule> known_places(Place place);

// Replaces the rules added before. During the call no other thread may use any rule, and afterwards no earlier result
// of the functions above is valid.
void install_added_programs(AddedPrograms added);

// Whether the file belongs to a library, not to the user: site-packages, dist-packages, the standard library, <frozen
// ...>, or as a rule says.
bool is_library_file(std::string_view file);

}  // namespace rankstacks::known
