// The rules that hold: those that a user has added, before the built-in ones.
//
// Additions are installed once, when the command line has been read and before anything is looked at. From then on nothing changes them: the
// analyzers, and the capture, which compares the samples that it takes, stay pure functions of the snapshot.
#pragma once

#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "known/modules.h"
#include "known/places.h"
#include "known/rules.h"

namespace rankstacks {

struct KnownPrograms {
  std::vector<RoleRule> thread_roles;      // of threads that are not their process's main thread; the first that holds
  std::vector<RoleRule> child_roles;       // of main threads of child processes; the first that holds
  std::vector<NameRule> thread_names;      // the first that holds
  std::vector<IdleRule> idle;              // any that holds
  std::vector<ActivityRule> activities;    // the first that holds
  std::vector<FileRule> files;             // the first that holds
  std::vector<PlaceRule> places;           // any that holds
  std::vector<ModuleRule> modules;         // the first that holds

  std::size_t size() const { return thread_roles.size() + child_roles.size() + thread_names.size() + idle.size() + activities.size() + files.size() + places.size() + modules.size(); }
};

// What users have added, with the texts that their rules refer to. It can be moved, not copied.
struct AddedPrograms {
  AddedPrograms() = default;
  AddedPrograms(AddedPrograms&&) = default;
  AddedPrograms& operator=(AddedPrograms&&) = default;

  KnownPrograms rules;
  std::list<std::string> texts;            // does not move what it holds, into another list neither

  std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }
  // Those of `other` hold where none of these does.
  void append(AddedPrograms other);
};

const KnownPrograms& built_in_programs();
const KnownPrograms& added_programs();
const KnownPrograms& known_programs();     // both, those added first
std::span<const PlaceRule> known_places(Place place);

// In place of what was added before. No other thread may use any rule meanwhile, and no result of the functions above lives on.
void install_added_programs(AddedPrograms added);

// Files of libraries rather than of the user: site-packages, dist-packages, the standard library, <frozen ...>, whatever a rule says.
bool is_library_file(std::string_view file);

}  // namespace rankstacks
