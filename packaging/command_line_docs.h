// The man page and the shells' completions, generated from the description that also parses the command line and prints
// --help.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace rankstacks::packaging {

std::string man_page(const CLI::App& app, const std::string& version);

std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

}  // namespace rankstacks::packaging
