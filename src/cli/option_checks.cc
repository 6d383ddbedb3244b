#include "cli/option_checks.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include "base/memory_limit.h"
#include "base/unattended.h"
#include "report/sanitize.h"

namespace rankstacks::cli {

CLI::Validator a_number() {
  return {[](std::string& word) {
            double value = 0;
            return CLI::detail::lexical_cast(word, value) && value == value
                       ? std::string()
                       : fmt::format("expected a number, found {}", report::in_quotes(word));
          },
          ""};
}

CLI::Validator is_there(bool directory) {
  return {[directory](std::string& path) {
            constexpr std::chrono::seconds kLongestWait{10};  // --timeout may come later on the command line
            struct FileStatus {
              int error = 0;
              mode_t mode = 0;
            };
            const std::string name = path.empty() ? "\"\"" : report::sanitize(path);
            const auto status = unattended<FileStatus>(
                [path] {
                  struct stat st {};
                  return stat(path.c_str(), &st) != 0 ? FileStatus{errno, 0} : FileStatus{0, st.st_mode};
                },
                kLongestWait);
            if (!status) return fmt::format("{}: its file system does not answer", name);
            if (status->error != 0) return fmt::format("{}: {}", name, std::strerror(status->error));
            return (S_ISDIR(status->mode) != 0) == directory
                       ? std::string()
                       : fmt::format("{}: {}", name, directory ? "not a directory" : "a directory, not a file");
          },
          ""};
}

CLI::Validator exists() {
  return {[](std::string& path) { return is_there(true)(path).empty() ? std::string() : is_there(false)(path); }, ""};
}

CLI::Validator a_size() {
  return {[](std::string& word) {
            constexpr std::size_t kLeast = 128u << 20;
            const auto bytes = parse_size(word);
            if (!bytes) return fmt::format("expected a size as 512M or 2G, found \"{}\"", report::sanitize(word));
            return *bytes >= kLeast ? std::string()
                                    : fmt::format("expected at least 128M, found \"{}\"", report::sanitize(word));
          },
          ""};
}

CLI::Validator not_empty() {
  return {[](std::string& path) {
            return path.empty() ? std::string("expected a file's name, found none") : std::string();
          },
          ""};
}

std::chrono::steady_clock::duration of_seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace rankstacks::cli
