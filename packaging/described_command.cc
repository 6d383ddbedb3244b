#include "packaging/described_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace rankstacks::packaging {
namespace {

// "TEXT:{json,text}" is CLI11's type name for a value that must be one of these.
std::vector<std::string> choices_in(const std::string& type) {
  std::vector<std::string> choices;
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return choices;
  for (const std::string& choice : CLI::detail::split(type.substr(open + 1, close - open - 1), ','))
    choices.push_back(choice);
  return choices;
}

DescribedOption describe(const CLI::Option& option) {
  DescribedOption described;
  described.positional = !option.nonpositional();
  if (described.positional) {
    described.names.push_back(option.get_name(true));
  } else {
    for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  }
  described.takes_value = described.positional || option.get_items_expected_max() > 0;
  described.may_lack_value = described.takes_value && !described.positional && option.get_items_expected_min() == 0;
  described.required = option.get_required();
  described.repeats =
      option.get_items_expected_max() > 1 || option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  if (described.takes_value) {
    const std::string type = option.get_type_name();
    described.choices = choices_in(type);
    described.value = type.substr(0, type.find(':'));
    described.default_value = option.get_default_str();
  }
  described.text = option.get_description();
  return described;
}

// The actions of a command (`job attach`) become one argument of it, and their options the command's own: shells
// complete the words of the whole line.
void add_actions(DescribedCommand& command) {
  if (command.commands.empty()) return;
  DescribedOption action;
  action.names = {"ACTION"};
  action.positional = action.takes_value = action.repeats = true;
  action.value = "ACTION";
  for (const DescribedCommand& one : command.commands) {
    action.choices.push_back(one.name);
    action.text += (action.text.empty() ? "" : "; ") + one.name + ": " + one.text;
    for (const DescribedOption& option : one.options) {
      const bool is_known = option.positional || std::any_of(command.options.begin(), command.options.end(),
                                                             [&](const auto& o) { return o.names == option.names; });
      if (!is_known) command.options.push_back(option);
    }
  }
  command.options.push_back(std::move(action));
  command.commands.clear();
}

}  // namespace

DescribedCommand describe(const CLI::App& app) {
  DescribedCommand described{app.get_name(), app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) described.options.push_back(describe(*option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) described.commands.push_back(describe(*command));
  if (app.get_parent() != nullptr) add_actions(described);
  return described;
}

}  // namespace rankstacks::packaging
