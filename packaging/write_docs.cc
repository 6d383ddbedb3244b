// Writes the man page and the completions into a directory, under the file names and directories that man and the
// shells expect.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "cli/options.h"
#include "packaging/command_line_docs.h"

namespace {

bool write(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) std::cerr << "rankstacks_docs: " << path.string() << " cannot be written\n";
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: rankstacks_docs DIRECTORY\n";
    return 2;
  }
  const std::filesystem::path share = std::filesystem::path(argv[1]) / "share";
  bool written = true;
  rankstacks::cli::describe_command_line([&](const CLI::App& app) {
    written =
        write(share / "man/man1/rankstacks.1", rankstacks::packaging::man_page(app, RANKSTACKS_VERSION)) && written;
    written =
        write(share / "bash-completion/completions/rankstacks", rankstacks::packaging::bash_completion(app)) && written;
    written = write(share / "zsh/site-functions/_rankstacks", rankstacks::packaging::zsh_completion(app)) && written;
    written = write(share / "fish/vendor_completions.d/rankstacks.fish", rankstacks::packaging::fish_completion(app)) &&
              written;
  });
  return written ? 0 : 1;
}
