#include "python/running.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>

namespace rankstacks::python {
namespace {

constexpr std::size_t kMaxScan = 256u << 20;  // bytes of writable data that are searched for the cookie

constexpr std::string_view kNotRunning = "no interpreter is running in it";

std::string name_of(const RuntimeCandidate& c) { return fmt::format("{} ({} at {:#x})", c.module, c.how, c.runtime); }

// Checks that the list of interpreters leads to an interpreter whose first thread state points back to it, which no
// other memory does. Returns an empty string if so, else what is wrong. The newest interpreter is listed first, and an
// interpreter that nothing runs in may have no thread: from 3.13 on an idle subinterpreter has none.
std::string one_hop(const target::Target& target, const Runtime& r) {
  auto interpreter = target.read_value<Address>(r.candidate.runtime + r.layout.runtime_interpreters_head);
  if (!interpreter) return "its list of interpreters cannot be read";
  if (*interpreter == 0) return std::string(kNotRunning);
  for (std::size_t n = 0; n < kMaxInterpreters && interpreter && *interpreter != 0; ++n) {
    const auto thread = target.read_value<Address>(*interpreter + r.layout.interp_threads_head);
    if (!thread) return fmt::format("its interpreter at {:#x} cannot be read", *interpreter);
    if (*thread != 0) {
      const auto back = target.read_value<Address>(*thread + r.layout.thread_interp);
      if (!back) return fmt::format("its thread state at {:#x} cannot be read", *thread);
      if (*back != *interpreter)
        return fmt::format("its thread state at {:#x} belongs to another interpreter than the one that lists it",
                           *thread);
      return {};
    }
    interpreter = target.read_value<Address>(*interpreter + r.layout.interp_next);
  }
  return "its interpreter has no threads";
}

// Determines version and layout of a candidate and checks it; the error says why it is rejected.
Result<Runtime> examine(const target::Target& target, const RuntimeCandidate& candidate,
                        std::span<const RuntimeCandidate> all) {
  const auto reject = [&](ErrorCode code, std::string why, std::string hint = {}) {
    return fail({.code = code,
                 .subject = target.subject(),
                 .what = fmt::format("{}: {}", name_of(candidate), why),
                 .hint = std::move(hint)});
  };
  constexpr int kFirstWithDebugOffsets = 13;
  std::array<std::byte, kDebugOffsetsHeader> head;
  if (!target.read_exact(candidate.runtime, head)) return reject(ErrorCode::kUnreadable, "its memory cannot be read");
  if (const auto header = decode_debug_offsets_header(head)) {
    if (candidate.version &&
        (candidate.version->minor != header->version.minor || candidate.version->micro != header->version.micro)) {
      return reject(ErrorCode::kMismatch, fmt::format("its file is of CPython {}, its memory of {}",
                                                      candidate.version->to_string(), header->version.to_string()));
    }
    const std::size_t size = debug_offsets_size(header->version);
    std::vector<std::byte> table(std::max(size, head.size()));
    if (!target.read_exact(candidate.runtime, table))
      return reject(ErrorCode::kUnreadable, "its debug offsets cannot be read");
    auto layout = decode_debug_offsets(table);
    if (!layout) return reject(layout.error().code, layout.error().what);
    Runtime r{candidate, header->version, *layout};
    if (auto wrong = one_hop(target, r); !wrong.empty())
      return reject(wrong == kNotRunning ? ErrorCode::kNotFound : ErrorCode::kMalformed, wrong);
    return r;
  }

  // An executable may hold a copy of libpython's _PyRuntime (a copy relocation) and no information about the version:
  // then the version of libpython is used.
  std::vector<Version> versions;
  if (candidate.version) {
    versions.push_back(*candidate.version);
  } else {
    for (const RuntimeCandidate& other : all) {
      if (other.version) versions.push_back(*other.version);
    }
  }
  if (versions.empty()) {
    return reject(ErrorCode::kUnsupported, "its version is not known",
                  "its file shows it: of a core, give it with --exe, --sysroot or --search; where a running program's "
                  "was deleted, root can read it");
  }
  std::string why;
  for (const Version& version : versions) {
    const auto layout = find_layout(version, false);
    if (version.minor >= kFirstWithDebugOffsets) {
      why = fmt::format("CPython {} begins with the cookie xdebugpy, and that is not there", version.to_string());
    } else if (!layout) {
      why = fmt::format("the structures of CPython {} are not known", version.to_string());
    } else {
      Runtime r{candidate, version, *layout};
      why = one_hop(target, r);
      if (why.empty()) return r;
    }
  }
  return reject(why == kNotRunning ? ErrorCode::kNotFound : ErrorCode::kMalformed, why);
}

// 3.13+, if no file identifies the interpreter: searches for the cookie in the writable data of modules that have no
// file, or a file without section headers.
std::vector<RuntimeCandidate> scan_for_cookie(const target::Target& target) {
  constexpr std::size_t kChunk = 1u << 20;
  std::vector<RuntimeCandidate> found;
  std::size_t scanned = 0;
  std::vector<std::byte> buffer;
  for (const target::Mapping& mapping : target.mappings()) {
    if (!mapping.writable || mapping.path.empty() || mapping.path[0] != '/') continue;
    const target::Module* module = target.modules().find(mapping.range.start);
    if (!module || (module->image && !module->image->sections().empty())) continue;
    for (Address at = mapping.range.start; at < mapping.range.end && scanned < kMaxScan; at += kChunk) {
      // Chunks overlap by the size of a header, so that no header is cut in two.
      const auto size =
          static_cast<std::size_t>(std::min<std::uint64_t>(mapping.range.end - at, kChunk + kDebugOffsetsHeader));
      buffer.resize(size);
      scanned += size;
      const Range range{at, at + size};
      target.prefetch(std::span(&range, 1));
      const std::size_t n = target.read(at, buffer);
      for (std::size_t i = 0; i < kChunk && i + kDebugOffsetsHeader <= n; i += sizeof(std::uint64_t)) {
        if (!decode_debug_offsets_header(std::span(buffer).subspan(i, kDebugOffsetsHeader))) continue;
        found.push_back({.module = mapping.path, .runtime = at + i, .how = "cookie in memory"});
      }
    }
  }
  return found;
}

Result<Runtime> choose(const target::Target& target, std::span<const RuntimeCandidate> candidates,
                       std::vector<Problem>& rejected) {
  std::optional<Runtime> chosen;
  ErrorCode code = ErrorCode::kNotFound;
  std::string hint;
  for (const RuntimeCandidate& candidate : candidates) {
    auto runtime = examine(target, candidate, candidates);
    if (!runtime) {
      rejected.push_back({"not the running interpreter: " + runtime.error().what, std::nullopt});
      if (code == ErrorCode::kNotFound) code = runtime.error().code;
      if (hint.empty()) hint = runtime.error().hint;
    } else if (!chosen) {
      chosen = std::move(*runtime);
    } else {
      rejected.push_back({fmt::format("a second interpreter is not shown: {}", name_of(candidate)), std::nullopt});
    }
  }
  if (chosen) return *chosen;
  std::string why;
  for (const Problem& p : rejected) why += (why.empty() ? "" : "; ") + p.message;
  if (candidates.empty()) why = "no Python interpreter is in it";
  return fail({.code = code, .subject = target.subject(), .what = why, .hint = hint});
}

}  // namespace

Result<Runtime> find_running(const target::Target& target, std::span<const RuntimeCandidate> candidates,
                             std::vector<Problem>& problems) {
  auto runtime = choose(target, candidates, problems);
  if (runtime) return runtime;
  const auto scanned = scan_for_cookie(target);
  if (scanned.empty()) return runtime;
  problems.clear();
  return choose(target, scanned, problems);
}

}  // namespace rankstacks::python
