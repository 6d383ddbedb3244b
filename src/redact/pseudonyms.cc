#include "redact/pseudonyms.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>

#include "base/file_descriptor.h"
#include "redact/secrets.h"
#include "report/json_text.h"

namespace rankstacks::redact {

std::string Pseudonyms::of(std::string_view kind, std::string_view original) { return of(kind, original, ""); }

std::string Pseudonyms::of(std::string_view kind, std::string_view original, std::string_view suffix) {
  const auto [it, is_new] = names_.try_emplace({std::string(kind), std::string(original)});
  if (is_new) {
    auto number = count_.find(kind);
    if (number == count_.end()) number = count_.emplace(kind, 0).first;
    it->second = fmt::format("{}-{}{}", kind, ++number->second, suffix);
    all_.emplace_back(it->second, without_secrets(original, original.starts_with('/') ? Text::kPath : Text::kWords));
  }
  return it->second;
}

std::string Pseudonyms::home_of(std::string_view user) {
  const std::string name = of("user", user);
  return name == "user-1" ? "~" : "~" + name;
}

Result<void> write_map(const std::string& path, const Pseudonyms& names) {
  report::JsonText json(4096);
  json.open('{', true);
  json.key("redact_map"), json.number(1);
  json.key("names");
  json.open('{', true);
  for (const auto& [name, original] : names.all()) json.foreign_key(name), json.string(original);
  json.close();
  json.close();
  const std::string text = json.take() + "\n";

  const auto failed = [&] {
    Error error{.code = ErrorCode::kUnreadable, .subject = path, .what = "cannot be written", .os_errno = errno};
    if (errno == EEXIST) error.code = ErrorCode::kUsage, error.hint = "remove it first, or name another file";
    return fail(std::move(error));
  };
  FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, S_IRUSR | S_IWUSR));
  if (!file.is_open()) return failed();
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t n = write(file.get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed();
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  if ((errno = file.close()) != 0) return failed();
  return {};
}

}  // namespace rankstacks::redact
