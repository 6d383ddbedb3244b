#include "small_core/interpreter_note.h"

#include <algorithm>

#include "python/layouts.h"
#include "small_core/note_bytes.h"

namespace rankstacks::small_core {
namespace {

constexpr std::size_t kLeastBytes = 36;     // of an interpreter whose texts are empty
constexpr std::uint32_t kMaxRuntimes = 64;  // find_python_runtime() finds no more

}  // namespace

std::vector<std::byte> write_interpreters(std::span<const python::RuntimeCandidate> candidates) {
  NoteWriter note;
  note.put(static_cast<std::uint32_t>(candidates.size()));
  for (const python::RuntimeCandidate& candidate : candidates) {
    note.put_text(candidate.module);
    note.put_text(candidate.how);
    note.put_text(candidate.version ? candidate.version->to_string() : "");
    note.put(candidate.runtime);
    note.put(candidate.tstate_current);
    note.put(candidate.hash_secret);
  }
  // Behind all of them, where a tool that does not know of it stops before.
  for (const python::RuntimeCandidate& candidate : candidates) note.put(candidate.faulthandler);
  return note.take();
}

std::vector<python::RuntimeCandidate> read_interpreters(std::span<const std::byte> body) {
  std::vector<python::RuntimeCandidate> candidates;
  NoteReader note(body);
  const std::uint32_t count = std::min(note.get_count(kLeastBytes), kMaxRuntimes);
  for (std::uint32_t i = 0; i < count; ++i) {
    python::RuntimeCandidate candidate;
    candidate.module = note.get_text();
    candidate.how = note.get_text();
    candidate.version = python::parse_version(note.get_text());
    candidate.runtime = note.get<Address>();
    candidate.tstate_current = note.get<Address>();
    candidate.hash_secret = note.get<Address>();
    if (!note.is_sound()) return candidates;
    candidates.push_back(std::move(candidate));
  }
  for (python::RuntimeCandidate& candidate : candidates)
    if (const auto address = note.get<Address>(); note.is_sound()) candidate.faulthandler = address;
  return candidates;
}

}  // namespace rankstacks::small_core
