// Writes the seeds of the harness recorder_memory: DIRECTORY/recorder_memory/*.
//
//     recorder_memory_seeds DIRECTORY
//
// Recorders of all four forms are made in this process's memory. What the reader reads of them is laid out from kBase
// on, one piece after the other, and the pointers in it are changed accordingly.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "flight_recorder/literal_recorder.h"
#include "flight_recorder/memory.h"
#include "recorder_image.h"
#include "support/temporary_directory.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

// Pieces of memory, by their address.
using Pieces = std::map<Address, std::vector<std::byte>>;

// `recorder`: all of it, as its parts are found by their distance from its beginning.
Pieces pieces_read(const flight_recorder::RecorderPlace& place, std::span<const std::byte> recorder) {
  Pieces pieces;
  pieces[reinterpret_cast<Address>(recorder.data())].assign(recorder.begin(), recorder.end());
  const auto record = flight_recorder::read_recorder(
      [&](Address at, std::span<std::byte> into) {
        if (into.empty()) return true;
        if (!read_own(at, into)) return false;
        if (auto& piece = pieces[at]; piece.size() < into.size()) piece.assign(into.begin(), into.end());
        return true;
      },
      place);
  if (!record) throw std::runtime_error("the recorder is not read");
  // Those that overlap, or lie one behind the other, are one.
  Pieces joined;
  for (auto& [at, bytes] : pieces) {
    if (!joined.empty()) {
      auto& [before, kept] = *joined.rbegin();
      if (at <= before + kept.size()) {
        const std::size_t common = before + kept.size() - at;
        if (common < bytes.size())
          kept.insert(kept.end(), bytes.begin() + static_cast<std::ptrdiff_t>(common), bytes.end());
        continue;
      }
    }
    joined.emplace(at, std::move(bytes));
  }
  return joined;
}

std::vector<std::byte> image_of(const flight_recorder::RecorderPlace& place, std::span<const std::byte> recorder) {
  const Pieces pieces = pieces_read(place, recorder);
  std::map<Address, Address> new_places;
  Address end = fuzz::kBase;
  const auto put = [&](Address at) {
    new_places[at] = end;
    end += (pieces.at(at).size() + 15) / 8 * 8;  // at least 8 bytes between them
  };
  put(place.instance);
  put(reinterpret_cast<Address>(recorder.data()));
  for (const auto& [at, bytes] : pieces)
    if (!new_places.contains(at)) put(at);
  // Pointers elsewhere, to what is not read, become null: seeds do not depend on where this process has its memory.
  const auto is_pointer = [](Address value) {
    std::byte byte;
    return value >= Address{1} << 32 && read_own(value, {&byte, 1});  // else a number, or a text
  };
  std::vector<std::byte> image(end - fuzz::kBase);
  for (const auto& [at, bytes] : pieces) {
    std::byte* const into = image.data() + (new_places[at] - fuzz::kBase);
    std::copy(bytes.begin(), bytes.end(), into);
    for (std::size_t i = 0; i + sizeof(Address) <= bytes.size(); i += sizeof(Address)) {
      Address value;
      std::memcpy(&value, bytes.data() + i, sizeof value);
      const auto of = pieces.upper_bound(value);
      const bool is_in_one = of != pieces.begin() && value - std::prev(of)->first <= std::prev(of)->second.size();
      if (!is_in_one && !is_pointer(value)) continue;
      const Address moved = is_in_one ? new_places[std::prev(of)->first] + (value - std::prev(of)->first) : 0;
      std::memcpy(into + i, &moved, sizeof moved);
    }
  }
  return image;
}

// A seed that is not read would reach little.
void check_same(const std::vector<std::byte>& image, const flight_recorder::RecorderPlace& place) {
  const auto read_image = [&](Address at, std::span<std::byte> into) {
    if (into.empty()) return true;
    if (at < fuzz::kBase || at - fuzz::kBase + into.size() > image.size()) return false;
    std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(at - fuzz::kBase), into.size(), into.begin());
    return true;
  };
  const auto made = flight_recorder::read_recorder(read_own, place),
             written = flight_recorder::read_recorder(read_image, {fuzz::kBase, place.of_nccl});
  if (!made || !written || made->groups != written->groups) throw std::runtime_error("the seed is not read as it was");
}

class Seeds {
 public:
  explicit Seeds(std::string directory) : directory_(std::move(directory)) {
    std::filesystem::create_directories(directory_);
  }
  template <class Recorder>
  void write(const std::string& name, const Recorder& recorder, const fuzz::Way& way = {}) const {
    const flight_recorder::RecorderPlace place = recorder.place(way.of_gloo == 0);
    const auto image = image_of(place, std::as_bytes(std::span(recorder.state.get(), 1)));
    check_same(image, place);
    std::string seed(reinterpret_cast<const char*>(&way), sizeof way);
    seed.append(reinterpret_cast<const char*>(image.data()), image.size());
    write_file(directory_ + "/" + name, seed);
  }

 private:
  std::string directory_;
};

// Two groups, one of which has a text outside of its string, and an operation with more sizes than fit into its vector.
template <class Recorder>
Recorder two_groups() {
  Recorder recorder;
  recorder.state->ranks[{"0", "default_pg"}] = {0, 1, 2, 3};
  recorder.state->ranks[{"5", "a description that does not fit into the string itself"}] = {1, 3};
  recorder.state->ranks[{"6", ""}] = {};
  for (std::size_t n = 1; n <= 3; ++n) recorder.end(recorder.call(0, "nccl:all_reduce", n, {10}));
  recorder.end(recorder.call(1, "nccl:_all_gather_base", 1, {4, 2}));
  auto& scatter = recorder.call(0, "nccl:_reduce_scatter_base", 4, {2, 3, 4, 5, 6, 7, 8, 9, 10});
  scatter.output_types = {15, 6};
  scatter.started = 4;
  recorder.call(1, "nccl:broadcast", 2, {7});
  return recorder;
}

template <class Recorder>
Recorder full_ring() {
  Recorder recorder;
  for (std::size_t n = 1; n <= 21; ++n) {
    auto& entry = recorder.call(0, "nccl:all_reduce", n, {10});
    entry.created = static_cast<std::int64_t>(n) * 1'000'000'000;
    if (n <= 19) recorder.end(entry);
  }
  return recorder;
}

template <class Recorder>
Recorder batches() {
  Recorder recorder;
  for (std::size_t batch = 1; batch <= 2; ++batch)
    for (const char* name : {"nccl:send 0->1", "nccl:recv 0<-1", "nccl:coalesced"}) {
      auto& entry = recorder.call(0, name, 0, {3});
      entry.is_p2p = true;
      entry.p2p_seq_id = batch;
      if (batch == 1 && std::string_view(name) == "nccl:coalesced") recorder.end(entry);
    }
  return recorder;
}

template <class Recorder>
Recorder of_gloo() {
  Recorder recorder;
  recorder.call(0, "gloo:all_reduce", 1, {10}).retired = true;
  recorder.call(0, "gloo:all_reduce", 2, {10});
  return recorder;
}

// The entries before a reset have other numbers.
Torch211 after_reset() {
  Torch211 recorder;
  for (std::size_t n = 1; n <= 6; ++n) recorder.end(recorder.call(0, "nccl:all_reduce", n, {10}));
  recorder.state->id = 0;
  for (std::size_t n = 1; n <= 3; ++n) recorder.call(0, "nccl:broadcast", n, {4}).epoch.reset_epoch = 1;
  return recorder;
}

template <class Recorder>
void write_all(const Seeds& seeds, const std::string& version) {
  seeds.write("groups-" + version, two_groups<Recorder>());
  seeds.write("ring-" + version, full_ring<Recorder>());
  seeds.write("batches-" + version, batches<Recorder>());
  seeds.write("gloo-" + version, of_gloo<Recorder>(), {.of_gloo = 1});
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: recorder_memory_seeds DIRECTORY\n");
    return 2;
  }
  const Seeds seeds(std::string(arguments[1]) + "/recorder_memory");
  write_all<Torch25>(seeds, "2.5");
  write_all<Torch27>(seeds, "2.7");
  write_all<Torch29>(seeds, "2.9");
  write_all<Torch211>(seeds, "2.11");
  seeds.write("reset", after_reset());
  seeds.write("repeats", two_groups<Torch211>(), {.repeats = 1});
  // An operation more, between the two reads of the header: word 13 is its count of operations.
  seeds.write("changes", two_groups<Torch211>(), {.changes_before = 8, .changed_word = 13, .value = 7});
  return 0;
}
