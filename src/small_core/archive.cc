#include "small_core/archive.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "elf/bytes.h"

namespace rankstacks::small_core {
namespace {

// POSIX.1-1988, "ustar". Numbers are octal digits, ended by a 0 or a blank.
struct Header {
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[6], version[2],
      uname[32], gname[32], device_major[8], device_minor[8], prefix[155], padding[12];
};
static_assert(sizeof(Header) == kTarBlock);

constexpr std::string_view kMagic = "ustar";
constexpr char kRegular = '0', kOldRegular = '\0';

template <std::size_t N>
void put_octal(char (&field)[N], std::uint64_t value) {
  for (std::size_t i = N - 1; i-- > 0; value >>= 3) field[i] = static_cast<char>('0' + (value & 7));
}

template <std::size_t N>
std::optional<std::uint64_t> octal(const char (&field)[N]) {
  std::uint64_t value = 0;
  std::size_t i = 0;
  while (i < N && field[i] == ' ') ++i;
  const std::size_t first = i;
  for (; i < N && field[i] >= '0' && field[i] <= '7'; ++i) value = value << 3 | static_cast<unsigned>(field[i] - '0');
  const bool ends = i == N || field[i] == '\0' || field[i] == ' ';
  return i > first && ends ? std::optional(value) : std::nullopt;
}

// The sum of all bytes, those of the checksum taken for blanks.
std::uint64_t sum_of(Header header) {
  std::memset(header.checksum, ' ', sizeof header.checksum);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&header);
  return std::accumulate(bytes, bytes + sizeof header, std::uint64_t{0});
}

bool is_sound(const Header& header) {
  const auto stated = octal(header.checksum);
  return std::memcmp(header.magic, kMagic.data(), kMagic.size()) == 0 && stated && *stated == sum_of(header);
}

}  // namespace

std::vector<std::byte> tar_header(std::string_view name, std::uint64_t size, std::time_t time) {
  Header header{};
  name.copy(header.name, sizeof header.name);
  constexpr std::uint64_t kOwnerAlone = 0600;
  put_octal(header.mode, kOwnerAlone);
  put_octal(header.uid, 0);
  put_octal(header.gid, 0);
  put_octal(header.size, size);
  put_octal(header.mtime, static_cast<std::uint64_t>(std::max<std::time_t>(time, 0)));
  header.type = kRegular;
  kMagic.copy(header.magic, kMagic.size());
  header.version[0] = header.version[1] = '0';
  put_octal(header.checksum, sum_of(header));
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> tar_end() { return std::vector<std::byte>(2 * kTarBlock); }

std::size_t tar_padding(std::uint64_t size) { return (kTarBlock - size % kTarBlock) % kTarBlock; }

bool is_tar(std::span<const std::byte> first_bytes) {
  const auto header = elf::load<Header>(first_bytes, 0);
  return header && is_sound(*header);
}

Result<std::vector<TarMember>> read_tar(std::span<const std::byte> archive, const std::string& subject,
                                        std::size_t most) {
  const auto damaged = [&](std::string what, std::uint64_t where) {
    return fail({.code = ErrorCode::kMalformed,
                 .subject = subject,
                 .what = std::move(what),
                 .where = where,
                 .hint = "the archive is damaged or cut off; copy it again"});
  };
  std::vector<TarMember> members;
  for (std::uint64_t at = 0;;) {
    const auto header = elf::load<Header>(archive, at);
    if (!header) return damaged("an archive without its end", at);
    if (header->name[0] == '\0') return members;
    if (!is_sound(*header)) return damaged("not the header of an archive's file", at);
    const auto size = octal(header->size);
    const std::uint64_t body = at + kTarBlock;
    if (!size || *size > archive.size() - body) return damaged("a file of an archive reaches past its end", at);
    if (header->type == kRegular || header->type == kOldRegular) {
      if (members.size() == most)
        return fail({.code = ErrorCode::kLimit,
                     .subject = subject,
                     .what = fmt::format("more than {} files in an archive", most)});
      const std::string_view path(header->name, strnlen(header->name, sizeof header->name));
      std::string name(path.substr(path.rfind('/') + 1));
      if (!name.empty()) members.push_back({std::move(name), archive.subspan(body, *size)});
    }
    at = body + *size + tar_padding(*size);
  }
}

}  // namespace rankstacks::small_core
