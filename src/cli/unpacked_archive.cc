#include "cli/unpacked_archive.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file_descriptor.h"
#include "base/mapped_file.h"
#include "base/regular_file.h"
#include "small_core/archive.h"
#include "target/decompress.h"

namespace rankstacks::cli {
namespace {

constexpr std::size_t kMaxMembers = 4096;  // captures of one machine

Error failed(const std::string& subject, const char* what) {
  return {.code = errno == EACCES ? ErrorCode::kPermission : ErrorCode::kUnreadable,
          .subject = subject,
          .what = what,
          .os_errno = errno};
}

std::optional<Error> any_first_bytes(std::string_view, const std::string&) { return std::nullopt; }

// The archive's own bytes: those of the file, or of what it unpacks to.
Result<FileDescriptor> open_plain(const std::string& path, const Deadline& deadline) {
  auto file = open_regular_file(path);
  if (!file)
    return fail(
        {.code = ErrorCode::kUnreadable, .subject = path, .what = "cannot open", .os_errno = file.error().os_errno});
  std::array<char, small_core::kTarBlock> first{};
  const ssize_t n = pread(file->descriptor.get(), first.data(), first.size(), 0);
  if (n < 0) return fail(failed(path, "cannot read"));
  const auto compression = target::compression_of({first.data(), static_cast<std::size_t>(n)});
  if (compression == target::Compression::kNone) return std::move(file->descriptor);
  auto unpacked = target::unpack(file->descriptor.get(), compression, path, any_first_bytes, deadline);
  if (!unpacked) return fail(unpacked.error());
  return std::move(unpacked->file);
}

std::optional<Error> write_member(const std::string& path, std::span<const std::byte> bytes) {
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.is_open()) return failed(path, "cannot be written");
  while (!bytes.empty()) {
    const ssize_t n = write(file.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(path, "cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return std::nullopt;
}

}  // namespace

UnpackedArchive::UnpackedArchive(UnpackedArchive&& other) noexcept
    : directory_(std::exchange(other.directory_, "")), members_(std::exchange(other.members_, {})) {}

UnpackedArchive::~UnpackedArchive() {
  for (const Member& member : members_) unlink(member.path.c_str());
  if (!directory_.empty()) rmdir(directory_.c_str());
}

Result<UnpackedArchive> UnpackedArchive::open(const std::string& path, const Deadline& deadline) {
  const auto file = open_plain(path, deadline);
  if (!file) return fail(file.error());
  struct stat status {};
  if (fstat(file->get(), &status) != 0) return fail(failed(path, "cannot stat the open file"));
  if (status.st_size == 0)
    return fail({.code = ErrorCode::kMalformed, .subject = path, .what = "the archive is empty"});
  const auto mapped = MappedFile::map(file->get(), static_cast<std::size_t>(status.st_size));
  if (!mapped) return fail(failed(path, "cannot map"));
  const auto files = small_core::read_tar(mapped->bytes(), path, kMaxMembers);
  if (!files) return fail(files.error());
  if (files->empty())
    return fail(
        {.code = ErrorCode::kMalformed, .subject = path, .what = "an archive without files: nothing to look at"});
  const char* temporary = std::getenv("TMPDIR");
  std::string directory =
      fmt::format("{}/rankstacks-XXXXXX", temporary != nullptr && *temporary != 0 ? temporary : "/tmp");
  if (mkdtemp(directory.data()) == nullptr) return fail(failed(directory, "cannot be made"));
  UnpackedArchive archive;
  archive.directory_ = directory;
  for (std::size_t i = 0; i < files->size(); ++i) {
    const small_core::TarMember& member = (*files)[i];
    // Names in an archive may repeat, and be any bytes.
    archive.members_.push_back({fmt::format("{}/{}", directory, i), path + "/" + member.name});
    if (auto error = write_member(archive.members_.back().path, member.bytes)) return fail(std::move(*error));
  }
  return archive;
}

}  // namespace rankstacks::cli
