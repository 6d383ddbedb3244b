// The small formats that are parsed byte by byte, each separately: line tables, mangled names (C++'s, Rust's), notes,
// answers of NCCL's RAS, C++ exceptions, command lines, lists of file locks, fdinfo, sock_diag's answers, address
// tables, texts that hold versions and limits, instructions, control groups, TF_CONFIG. The first byte selects the
// format.
#include "capture/parallel_layout.h"
#include "capture/tcp_ends.h"
#include "capture/tensorflow_cluster.h"
#include "elf/notes.h"
#include "input.h"
#include "nccl/job_status.h"
#include "nccl/ras_answer.h"
#include "python/line_table.h"
#include "report/sanitize.h"
#include "support/fake_target.h"
#include "symbolizers/line_program.h"
#include "symbolizers/symbolizer.h"
#include "target/cxx_exceptions.h"
#include "target/descriptor_info.h"
#include "target/file_locks.h"
#include "target/oom_kills.h"
#include "target/unix_peers.h"
#include "target/x86_instruction.h"
#include "versions/process_facts.h"
#include "versions/version_texts.h"

using namespace rankstacks;

namespace {

void run_line_program(std::span<const std::byte> line) {
  const symbolizers::LineSections sections{line, std::as_bytes(std::span("dir\0file.c")),
                                           std::as_bytes(std::span("dir\0file.c"))};
  const auto program = symbolizers::LineProgram::parse(sections, 0, "/src");
  if (!program) return;
  const std::vector<Vaddr> addresses{0, 1, 0x1000, 0x1139, 0x40'1000, 0x7fff'ffff, ~Vaddr{0} - 1};
  DeadlineCheck deadline(Deadline::never());
  const auto rows = program->find(addresses, deadline);
  fuzz::require(rows.size() == addresses.size(), "an answer for each address");
  for (const auto& row : rows) {
    if (row) program->path(row->file);
  }
}

void read_python_lines(std::span<const std::byte> bytes) {
  const python::LineTable table(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  for (const std::int64_t instruction : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{40}, std::int64_t{1} << 40}) {
    for (const int first : {1, 2147483647, -2147483647 - 1}) {
      python::line_in_lnotab(table, first, instruction);
      python::line_in_ranges(table, first, instruction);
      python::line_in_locations(table, first, instruction);
    }
  }
}

void read_ras_answer(std::string_view text) {
  auto status = nccl::parse_ras_answer(text, "ras");
  if (!status) {
    fuzz::require(!status.error().what.empty(), "an error says what is wrong");
    return;
  }
  NcclStatus same = *status;
  nccl::compare_counts(same, *status);
  nccl::keep_own_communicators(*status, {{{"node-a", 4711}, 544}}, {"192.0.2.2"});
  for (const NcclCommunicator& communicator : status->communicators)
    fuzz::require(!communicator.hash.empty(), "each has its hash");
}

void read_instruction(std::span<const std::byte> bytes, std::string_view text) {
  const std::span code(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  if (const auto instruction = target::decode_instruction(code)) {
    fuzz::require(instruction->length <= std::min(bytes.size(), target::kLongestInstruction), "it lies in its bytes");
    fuzz::require(instruction->text.empty() || instruction->length > 0, "what has a text has a length");
    for (const target::MemoryOperand& operand : instruction->memory) operand.address({}, 0x1000);
  }
  target::parse_oom_kills(text);
  for (const std::string& file : target::oom_count_files(text))
    fuzz::require(file.starts_with("/sys/fs/cgroup/") && file.find("/../") == std::string::npos, "below the mount");
}

// The memory of a thread, with its list of exceptions, their types and their texts.
void read_exceptions(std::span<const std::byte> bytes) {
  target::decode_exception_storage(bytes, 0x1000);
  target::decode_exception_key(bytes, 0x1000);
  testing::FakeTarget target;
  constexpr Address kAt = 0x1000;
  target.put(kAt, {bytes.begin(), bytes.end()});
  target.threads_.push_back({});
  target.threads_.front().registers = target::Registers{};
  target.threads_.front().registers->fs_base = kAt;
  const target::CxxRuntime runtime{{{{}, {}, 0, {}}, {kAt, {}, 16, {}}, {{}, kAt + 8, 0, {}}, {{}, {}, 0, kAt + 8}},
                                   {kAt + 32},
                                   {kAt + 40},
                                   {kAt + 48},
                                   target::ThreadSpecifics{.offset = 16, .blocks = 4, .values_per_block = 32}};
  target.threads_.front().registers->set(target::kRsp, kAt);
  const target::HeldExceptions both = target::read_held_exceptions(target, runtime);
  for (const auto& held : {both.handled.front(), both.raised.front()}) {
    if (!held) continue;
    fuzz::require(!held->type.empty() && held->type.find('\0') == std::string::npos, "a type has a name");
    fuzz::require(
        !held->what || (held->what->size() <= target::kMaxExceptionText && held->what->find('\0') == std::string::npos),
        "a text has its bounds");
  }
}

void read_rust_name(const std::string& name) {
  constexpr std::size_t kMaxText = 64 << 10;
  const std::string text = symbolizers::demangle(name);
  fuzz::require(!text.empty(), "there is always a name");
  fuzz::require(text.size() <= kMaxText + name.size(), "a demangled name has its bounds");
}

void read_command_line(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  for (const int world : {1, 2, 8, 24, 10'000'000})
    for (const int rank : {0, 1, world - 1}) {
      const auto coordinates = capture::coordinates_of(words, {}, rank, world);
      if (!coordinates) continue;
      fuzz::require(!coordinates->axes.empty(), "coordinates have an axis");
      for (const auto& [axis, place] : coordinates->axes)
        fuzz::require(place >= 0 && place < world, "a place is one of the world's");
    }
}

void read_locks(std::string_view text) {
  const auto all = target::parse_file_locks(text);
  for (const target::FileLock& lock : all) {
    fuzz::require(!lock.file.empty(), "a lock is of a file");
    for (const auto& inode : {std::optional<std::uint64_t>{}, std::optional<std::uint64_t>{1}})
      for (const target::FileLock& held :
           target::locks_in_the_way(all, target::awaited_locks(all, lock.kind, lock.pid, inode)))
        fuzz::require(!held.waits, "who waits holds nothing");
  }
  target::parse_descriptor_info(text);
}

void read_sockets(std::span<const std::byte> bytes, std::string_view text) {
  target::parse_unix_diag(bytes, 1);
  const capture::TcpEnds ends(nccl::parse_tcp_sockets(text), capture::OwnAddresses(text, text));
  for (const nccl::TcpSocket& socket : nccl::parse_tcp_sockets(text))
    fuzz::require(ends.of(socket.inode).inode == 0 || !ends.of(socket.inode).other_host, "an end is here or elsewhere");
}

void read_versions(std::span<const std::byte> bytes, std::string_view text) {
  const std::string name(text.substr(0, text.find('\n')));
  for (const std::string& version :
       {versions::version_at(text), versions::version_of_file_name(name, true), versions::version_of_metadata(text),
        versions::assigned_text(text, "cuda"), versions::version_after(text, "version "),
        versions::glibc_version(text, "("), versions::version_alone(text, ""), versions::version_alone(text, "v"),
        versions::driver_version(text), versions::kernel_of_notes(bytes)})
    fuzz::require(version.size() <= versions::kLongestVersion && version.find('\0') == std::string::npos &&
                      version.find('\x1b') == std::string::npos,
                  "a version has its bounds");
  versions::is_package(versions::package_of_metadata_name(name), "torch");
  versions::site_directory(name);
  fuzz::require(versions::distribution_of(text).size() <= 200, "a distribution has its bounds");
  versions::parse_limits(text);
  const auto numbers = versions::parse_number_list(text);
  fuzz::require(versions::parse_number_list(versions::format_number_list(numbers)) == numbers, "a list is read back");
  for (const versions::CgroupPlace& place : versions::cgroup_places(text))
    fuzz::require(place.directory.find("/../") == std::string::npos, "no control group is outside of the mount");
}

void read_tf_config(std::string_view text) {
  if (const auto task = capture::task_of_tf_config(text))
    fuzz::require(task->rank >= 0 && task->rank < task->world_size, "a task is one of the cluster's");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  switch (input.take<std::uint8_t>() % 14) {
    case 0: run_line_program(input.rest()); break;
    case 1: read_python_lines(input.rest()); break;
    case 2: symbolizers::demangle("_Z" + std::string(input.text())); break;
    case 3: elf::build_id_of_notes(input.rest(), size % 2 == 0 ? 4 : 8); break;
    case 4:
      fuzz::require(
          report::sanitize(report::sanitize(std::string(input.text()))) == report::sanitize(std::string(input.text())),
          "clean text stays as it is");
      break;
    case 5: read_ras_answer(input.text()); break;
    case 6: read_exceptions(input.rest()); break;
    case 7: read_command_line(input.text()); break;
    case 8: read_rust_name("_R" + std::string(input.text())); break;
    case 9: read_locks(input.text()); break;
    case 10: read_versions(input.rest(), input.text()); break;
    case 11: read_sockets(input.rest(), input.text()); break;
    case 12: read_instruction(input.rest(), input.text()); break;
    default: read_tf_config(input.text()); break;
  }
  return 0;
}
