// The four forms of PyTorch's Flight Recorder, made of the same libstdc++ types.
#pragma once

#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "flight_recorder/memory.h"

namespace rankstacks::testing {

template <class T, std::uint32_t N>
struct SmallVector {  // c10/util/SmallVector.h
  SmallVector() = default;
  SmallVector(const SmallVector& other) { *this = other; }
  SmallVector& operator=(const SmallVector& other) {
    clear();
    for (std::uint32_t i = 0; i < other.size; ++i) push_back(static_cast<T*>(other.begin)[i]);
    return *this;
  }
  ~SmallVector() { clear(); }
  void clear() {
    if (begin != within) delete[] static_cast<T*>(begin);
    begin = within, size = 0, capacity = N;
  }
  void push_back(T value) {
    if (size == capacity) {
      T* const more = new T[2 * capacity];
      std::copy_n(static_cast<T*>(begin), size, more);
      if (begin != within) delete[] static_cast<T*>(begin);
      begin = more, capacity *= 2;
    }
    static_cast<T*>(begin)[size++] = value;
  }

  void* begin = within;
  std::uint32_t size = 0, capacity = N;
  T within[N] = {};
};

struct Nothing {};
struct Epoch {
  std::size_t reset_epoch = 0;
};
struct Thread {
  std::thread::id thread_id = std::this_thread::get_id();
  std::string thread_name = "python3";
};
struct Epochs {
  std::size_t reset_epoch = 0;
  std::unordered_map<std::size_t, std::size_t> starts;
};

template <bool kHasEpoch, bool kHasThread, class Dimension>
struct Recorder {
  struct Entry {
    std::size_t id = 0;
    [[no_unique_address]] std::conditional_t<kHasEpoch, Epoch, Nothing> epoch;
    std::size_t pg_id = 0;
    std::tuple<std::string, std::string> pg_name;
    std::size_t collective_seq_id = 0, p2p_seq_id = 0, op_id = 0;
    std::string profiling_name;
    std::shared_ptr<int> traceback;
    void *start = nullptr, *end = nullptr;
    std::int64_t created = 1, timeout = 600'000;
    bool is_p2p = false;
    std::optional<float> duration;
    std::optional<std::int64_t> started, completed;
    SmallVector<Dimension, 4> input_dims;
    std::vector<std::int8_t> input_types;
    SmallVector<Dimension, 4> output_dims;
    std::vector<std::int8_t> output_types;
    SmallVector<std::int64_t, 8> sizes;
    [[no_unique_address]] std::conditional_t<kHasThread, Thread, Nothing> thread;
    bool retired = false;
  };
  struct State {
    bool enabled = true, capture_cpp_stack = false;
    std::mutex mutex;
    std::vector<Entry> entries;
    std::size_t most = 8, next = 0, id = 0;
    [[no_unique_address]] std::conditional_t<kHasEpoch, Epochs, Nothing> epochs;
    std::map<std::size_t, std::shared_ptr<int>> status;
    std::map<std::tuple<std::string, std::string>, std::vector<std::uint64_t>> ranks;
  };

  Recorder() : state(std::make_unique<State>()), instance(state.get()) {}

  Entry& call(std::size_t group, const std::string& name, std::size_t number, std::vector<std::int64_t> sizes = {}) {
    Entry entry;
    entry.id = state->id;
    entry.pg_id = group;
    entry.pg_name = group == 0 ? std::tuple("0", "default_pg")
                               : std::tuple("5", "a description that does not fit into the string itself");
    entry.collective_seq_id = number;
    entry.profiling_name = name;
    entry.input_dims.push_back(static_cast<Dimension>(sizes.size()));
    for (const std::int64_t size : sizes) entry.sizes.push_back(size);
    entry.input_types = {6};  // Float
    const std::size_t at = state->next;
    if (state->entries.size() < state->most) state->entries.push_back(entry);
    else state->entries[at] = entry;
    state->next = (at + 1) % state->most;
    ++state->id;
    return state->entries[at];
  }
  void end(Entry& entry) {
    entry.retired = true;
    entry.completed = 5;
  }
  flight_recorder::RecorderPlace place(bool of_nccl = true) const {
    return {reinterpret_cast<Address>(&instance), of_nccl};
  }

  std::unique_ptr<State> state;
  State* instance;
};

using Torch25 = Recorder<false, false, int>;
using Torch27 = Recorder<false, false, std::int64_t>;
using Torch29 = Recorder<false, true, std::int64_t>;
using Torch211 = Recorder<true, true, std::int64_t>;

// Of this process.
inline bool read_own(Address at, std::span<std::byte> into) {
  const iovec local{into.data(), into.size()}, remote{reinterpret_cast<void*>(at), into.size()};
  return into.empty() || process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(into.size());
}

}  // namespace rankstacks::testing
