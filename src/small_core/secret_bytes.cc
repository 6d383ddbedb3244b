#include "small_core/secret_bytes.h"

#include <elf.h>
#include <algorithm>
#include <bitset>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace rankstacks::small_core {
namespace {

constexpr std::byte kInstead{'x'};

// A secret that is cut: its first bytes at the end of `bytes` (NT_PRPSINFO has 79 characters of the command line; the
// next page was not kept), or its last bytes at the beginning.
void overwrite_ends(std::span<std::byte> bytes, std::string_view secret) {
  for (std::size_t n = std::min(secret.size() - 1, bytes.size()); n >= kShortestSecret; --n) {
    if (std::memcmp(bytes.data() + bytes.size() - n, secret.data(), n) == 0)
      std::fill(bytes.end() - static_cast<std::ptrdiff_t>(n), bytes.end(), kInstead);
    if (std::memcmp(bytes.data(), secret.data() + secret.size() - n, n) == 0)
      std::fill(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n), kInstead);
  }
}

// All secrets in one pass over the bytes, however many there are.
class Secrets {
 public:
  // The longest first.
  explicit Secrets(const std::vector<std::string>& secrets) {
    for (const std::string_view secret : secrets) add(secret);
    for (const std::string_view secret : secrets) add_lines(secret);
    for (const std::string_view secret : secrets) add_tail(secret);
  }

  void overwrite(std::span<std::byte> bytes) const {
    if (all_.empty()) return;
    for (std::size_t at = 0; at + kShortestSecret <= bytes.size();) at += overwrite_at(bytes, at);
    for (const std::string_view secret : all_) overwrite_ends(bytes, secret);
  }

  // The texts in notes end with a 0, behind which secrets that are cut do not go on.
  void overwrite_in_notes(std::span<std::byte> notes) const {
    overwrite(notes);
    for (std::size_t at = 0; at < notes.size();) {
      const auto end = std::find(notes.begin() + static_cast<std::ptrdiff_t>(at), notes.end(), std::byte{0});
      const auto length = static_cast<std::size_t>(end - notes.begin()) - at;
      if (length >= kShortestSecret)
        for (const std::string_view secret : all_) overwrite_ends(notes.subspan(at, length), secret);
      at += length + 1;
    }
  }

  // A copy of text goes through the vector registers, which keep 16 bytes and more of it until they are used again. No
  // unwinder asks for them, so any piece of a secret can go.
  void overwrite_in_registers(std::span<std::byte> notes) const {
    constexpr std::size_t kAlign = 4;
    const auto padded = [](std::size_t size) { return (size + kAlign - 1) / kAlign * kAlign; };
    for (std::size_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
      Elf64_Nhdr header;
      std::memcpy(&header, notes.data() + at, sizeof header);
      const std::size_t body = at + sizeof header + padded(header.n_namesz);
      if (body > notes.size() || header.n_descsz > notes.size() - body) return;
      if (header.n_type == NT_FPREGSET || header.n_type == NT_X86_XSTATE)
        overwrite_pieces(notes.subspan(body, header.n_descsz));
      at = body + padded(header.n_descsz);
    }
  }

 private:
  static constexpr std::size_t kSlots = 1 << 16, kLongestInRegisters = 4096;

  struct Sought {
    std::string_view text, before;  // what is before it in the secret
  };

  void look_for(const Sought& sought) {
    const std::uint64_t start = start_of(sought.text.data());
    by_start_[start].push_back(sought);
    starts_.set(slot(start));
  }

  void add(std::string_view secret) {
    if (secret.size() < kShortestSecret || all_.size() == kMaxSecrets) return;
    all_.push_back(secret);
    look_for({secret, {}});
    const std::size_t end = std::min(secret.size(), kLongestInRegisters);
    for (std::size_t i = 0; i + sizeof(std::uint64_t) <= end; ++i) pieces_.insert(word_at(secret.data() + i));
  }

  // The allocator writes up to four words to the beginning of memory that is freed: of a secret there the rest stays.
  void add_tail(std::string_view secret) {
    constexpr std::size_t kMaxOverwritten = 4 * sizeof(void*), kShortestTail = 16;
    if (secret.size() <= kShortestTail) return;
    const std::size_t cut = std::min(secret.size() - kShortestTail, kMaxOverwritten);
    look_for({secret.substr(cut), secret.substr(0, cut)});
  }

  // A private key has several lines, whose ends are "\n" in JSON, in a Python literal, or in both.
  void add_lines(std::string_view secret) {
    constexpr std::size_t kShortestLine = 16;
    if (secret.find_first_of("\n\\") == std::string_view::npos) return;
    while (!secret.empty()) {
      const std::size_t end = secret.find_first_of("\n\r\\");
      const std::string_view line = secret.substr(0, end);
      if (line.size() >= kShortestLine && !line.starts_with("-----")) add(line);
      if (end == std::string_view::npos) return;
      const bool escaped = secret[end] == '\\';
      secret.remove_prefix(end + 1);
      if (escaped && secret.starts_with('n')) secret.remove_prefix(1);
    }
  }

  static std::uint64_t word_at(const void* at) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    return word;
  }

  void overwrite_pieces(std::span<std::byte> bytes) const {
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes.size(); ++at) {
      if (!pieces_.contains(word_at(bytes.data() + at))) continue;
      std::size_t end = at + sizeof(std::uint64_t);
      while (end < bytes.size() && pieces_.contains(word_at(bytes.data() + end - sizeof(std::uint64_t) + 1))) ++end;
      std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.begin() + static_cast<std::ptrdiff_t>(end),
                kInstead);
    }
  }

  static std::uint64_t start_of(const void* at) {
    std::uint64_t start = 0;
    std::memcpy(&start, at, kShortestSecret);
    return start;
  }
  static std::size_t slot(std::uint64_t start) { return (start * 0x9e3779b97f4a7c15u) >> 48; }

  // The number of bytes that are done.
  std::size_t overwrite_at(std::span<std::byte> all, std::size_t at) const {
    const std::span<std::byte> bytes = all.subspan(at);
    const std::uint64_t start = start_of(bytes.data());
    if (!starts_.test(slot(start))) return 1;
    const auto found = by_start_.find(start);
    if (found == by_start_.end()) return 1;
    for (const auto& [text, before] : found->second) {
      if (text.size() > bytes.size() || std::memcmp(bytes.data(), text.data(), text.size()) != 0) continue;
      std::fill_n(bytes.begin(), text.size(), kInstead);
      for (std::size_t n = 1; n <= std::min(at, before.size()); ++n) {
        if (all[at - n] != static_cast<std::byte>(before[before.size() - n])) break;
        all[at - n] = kInstead;
      }
      return text.size();
    }
    return 1;
  }

  std::vector<std::string_view> all_;
  std::unordered_map<std::uint64_t, std::vector<Sought>> by_start_;
  std::bitset<kSlots> starts_;
  std::unordered_set<std::uint64_t> pieces_;
};

}  // namespace

void overwrite_secrets(KeptProcess& process, const std::vector<std::string>& secrets) {
  const Secrets all(secrets);
  for (Piece& piece : process.pieces) all.overwrite(piece.bytes);
  all.overwrite_in_notes(process.notes);
  all.overwrite_in_registers(process.notes);
  for (auto* note : {&process.symbols, &process.interpreters, &process.files}) all.overwrite(*note);
}

}  // namespace rankstacks::small_core
