#include <fmt/format.h>

#include "packaging/command_line_docs.h"
#include "packaging/described_command.h"

namespace rankstacks::packaging {
namespace {

enum class Values { kNone, kChoices, kFiles, kDirectories, kProcesses, kAny, kPerhaps };

Values values_of(const DescribedOption& option) {
  if (!option.takes_value) return Values::kNone;
  if (option.may_lack_value) return Values::kPerhaps;
  if (!option.choices.empty()) return Values::kChoices;
  if (option.positional || option.value == "FILE") return Values::kFiles;
  if (option.value == "DIR") return Values::kDirectories;
  return option.value == "PID" ? Values::kProcesses : Values::kAny;
}

std::string joined(const std::vector<std::string>& words, const char* separator = " ") {
  return fmt::format("{}", fmt::join(words, separator));
}

std::vector<std::string> names_of(const DescribedCommand& command) {
  std::vector<std::string> names;
  for (const DescribedOption& option : command.options)
    if (!option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

bool takes_files(const DescribedCommand& command) {
  for (const DescribedOption& option : command.options)
    if (option.positional && values_of(option) == Values::kFiles) return true;
  return false;
}

std::string with_escapes(const std::string& text, const std::string& special, const std::string& escape) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += ' ';
      continue;
    }
    if (special.find(c) != std::string::npos) out += escape;
    out += c;
  }
  return out;
}

// A quote cannot be escaped inside of '...' in a shell: the quotes are closed around it.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// fish supports escapes inside of its quotes.
std::string fish_quoted(const std::string& text) { return "'" + with_escapes(text, "'\\", "\\") + "'"; }

}  // namespace

std::string bash_completion(const CLI::App& app) {
  const DescribedCommand tool = describe(app);
  std::vector<std::string> commands, first_words, with_files;
  std::string values, words;
  for (const DescribedCommand& command : tool.commands) {
    commands.push_back(command.name);
    if (takes_files(command)) with_files.push_back(command.name);
    words += fmt::format("    {}) words={} ;;\n", command.name, quoted(joined(names_of(command))));
    for (const DescribedOption& option : command.options) {
      if (option.positional || !option.takes_value || option.may_lack_value) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) patterns.push_back(command.name + ":" + name);
      std::string action;
      switch (values_of(option)) {
        case Values::kChoices:
          action =
              fmt::format("mapfile -t COMPREPLY < <(compgen -W {} -- \"$current\")", quoted(joined(option.choices)));
          break;
        case Values::kDirectories: action = "compopt -o dirnames"; break;
        case Values::kFiles: action = "compopt -o default"; break;
        case Values::kProcesses:
          action = "mapfile -t COMPREPLY < <(cd /proc && compgen -G '[0-9]*' | compgen -W \"$(cat)\" -- \"$current\")";
          break;
        default: action = ":"; break;
      }
      values += fmt::format("    {}) {}; return ;;\n", joined(patterns, "|"), action);
    }
  }
  first_words = commands;
  for (const std::string& name : names_of(tool)) first_words.push_back(name);
  std::string files;
  if (!with_files.empty())
    files = fmt::format("  case $command in\n    {}) [[ $current == -* ]] || compopt -o default ;;\n  esac\n",
                        joined(with_files, "|"));
  return fmt::format(R"(# Completion for bash. Written from the description that {0} --help prints. Do not edit.
_{0}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command= words= word
  COMPREPLY=()
  # bash takes --option=value apart at the equals sign
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]] && ((COMP_CWORD > 2)); then
    previous=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in
      {1}) command=$word; break ;;
    esac
  done
  case $command:$previous in
{2}  esac
  case $command in
    '') words={3} ;;
{4}  esac
{5}  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -F _{0} {0}
)",
                     tool.name, joined(commands, "|"), values, quoted(joined(first_words)), words, files);
}

std::string zsh_completion(const CLI::App& app) {
  const DescribedCommand tool = describe(app);
  const auto plain = [](const std::string& text) { return with_escapes(text, "[]:\\", "\\"); };
  const auto specification = [&](const DescribedOption& option, const std::string& indent) {
    std::string value;
    switch (values_of(option)) {
      case Values::kNone: break;
      case Values::kChoices: value = ":" + option.names.back().substr(2) + ":(" + joined(option.choices) + ")"; break;
      case Values::kFiles: value = ":" + (option.positional ? option.names.front() : option.value) + ":_files"; break;
      case Values::kDirectories: value = ":" + option.value + ":_files -/"; break;
      case Values::kProcesses: value = ":" + option.value + ":_pids"; break;
      case Values::kAny: value = ":" + option.value + ": "; break;
      case Values::kPerhaps: value = "::" + option.names.back().substr(2) + ": "; break;
    }
    if (option.positional) return indent + quoted("*" + value) + " \\\n";
    const std::string text = "[" + plain(option.text) + "]" + value;
    // An option that can be repeated has a star; otherwise each of its names excludes the others.
    std::string out;
    for (const std::string& name : option.names) {
      const std::string before = option.repeats ? "*" : "(" + joined(option.names) + ")";
      out += indent + quoted(before + name + text) + " \\\n";
    }
    return out;
  };
  std::string top, commands, arguments;
  for (const DescribedOption& option : tool.options) top += specification(option, "    ");
  for (const DescribedCommand& command : tool.commands) {
    commands += "        " + quoted(plain(command.name) + ":" + with_escapes(command.text, "\\", "\\")) + "\n";
    arguments += fmt::format("        {}) _arguments \\\n", command.name);
    for (const DescribedOption& option : command.options) arguments += specification(option, "          ");
    arguments += "          ;;\n";
  }
  return fmt::format(R"(#compdef {0}
# Completion for zsh. Written from the description that {0} --help prints. Do not edit.
_{0}() {{
  local curcontext=$curcontext context state line
  typeset -A opt_args
  _arguments -C \
{1}    '1: :->command' '*:: :->arguments'
  case $state in
    command)
      local -a commands
      commands=(
{2}      )
      _describe command commands ;;
    arguments)
      case $line[1] in
{3}      esac ;;
  esac
}}
_{0} "$@"
)",
                     tool.name, top, commands, arguments);
}

std::string fish_completion(const CLI::App& app) {
  const DescribedCommand tool = describe(app);
  std::string out = fmt::format(
      "# Completion for fish. Written from the description that {0} --help prints. Do not edit.\n", tool.name);
  const auto line = [&](const std::string& condition, const DescribedOption& option) {
    std::string names;
    for (const std::string& name : option.names)
      names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    std::string value;
    switch (values_of(option)) {
      case Values::kNone:
      case Values::kPerhaps: value = " -f"; break;
      case Values::kChoices: value = " -x -a " + fish_quoted(joined(option.choices)); break;
      case Values::kFiles: value = " -r -F"; break;
      case Values::kDirectories: value = " -x -a '(__fish_complete_directories)'"; break;
      case Values::kProcesses: value = " -x -a '(__fish_complete_pids)'"; break;
      case Values::kAny: value = " -x"; break;
    }
    out += fmt::format("complete -c {} -n {}{}{} -d {}\n", tool.name, fish_quoted(condition), names, value,
                       fish_quoted(option.text));
  };
  for (const DescribedOption& option : tool.options) line("__fish_use_subcommand", option);
  for (const DescribedCommand& command : tool.commands) {
    const std::string seen = "__fish_seen_subcommand_from " + command.name;
    out += fmt::format("complete -c {} -f -n '__fish_use_subcommand' -a {} -d {}\n", tool.name, command.name,
                       fish_quoted(command.text));
    if (!takes_files(command)) out += fmt::format("complete -c {} -f -n {}\n", tool.name, fish_quoted(seen));
    for (const DescribedOption& option : command.options)
      if (!option.positional) line(seen, option);
  }
  return out;
}

}  // namespace rankstacks::packaging
