// A target made of literal bytes, for tests of unwinders, Python readers and everything above Target.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>

#include "target/target.h"

namespace rankstacks::testing {

class FakeTarget : public target::Target {
 public:
  const std::string& subject() const override { return subject_; }
  std::span<const target::ThreadInfo> threads() const override { return threads_; }
  std::span<const target::Mapping> mappings() const override { return mappings_; }
  const target::ModuleMap& modules() const override { return modules_; }

  std::size_t read(Address address, std::span<std::byte> into) const noexcept override {
    std::size_t done = 0;
    while (done < into.size()) {
      auto it = memory_.upper_bound(address + done);
      if (it == memory_.begin()) break;
      --it;
      const std::uint64_t skip = address + done - it->first;
      if (skip >= it->second.size()) break;
      const std::size_t n = std::min<std::size_t>(into.size() - done, it->second.size() - skip);
      std::memcpy(into.data() + done, it->second.data() + skip, n);
      done += n;
    }
    return done;
  }

  void put(Address address, std::vector<std::byte> bytes) { memory_[address] = std::move(bytes); }
  template <class T>
  void put_value(Address address, const T& value) {
    std::vector<std::byte> bytes(sizeof(T));
    std::memcpy(bytes.data(), &value, sizeof(T));
    put(address, std::move(bytes));
  }

  std::string subject_ = "fake";
  std::vector<target::ThreadInfo> threads_;
  std::vector<target::Mapping> mappings_;
  target::ModuleMap modules_;

 private:
  std::map<Address, std::vector<std::byte>> memory_;  // blocks do not overlap
};

}  // namespace rankstacks::testing
