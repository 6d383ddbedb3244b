// A value that few objects have, or that many have alike: each has a pointer alone. It is copied with its object, like
// std::optional, but copies share the value until one of them is changed. A report of a large job has millions of
// threads, which are at few places.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace rankstacks {

// As with std::optional, different objects may be used in different threads at once, and one object may not. A
// reference to the value that is not const holds until its object is copied.
template <class T>
class Boxed {
 public:
  Boxed() = default;
  Boxed(std::nullopt_t) {}
  Boxed(T value) : box_(new Box{{1}, std::move(value)}) {}
  Boxed(std::optional<T> value) : box_(value ? new Box{{1}, *std::move(value)} : nullptr) {}
  Boxed(const Boxed& other) noexcept : box_(other.box_) {
    if (box_ != nullptr) box_->holders.fetch_add(1, std::memory_order_relaxed);
  }
  Boxed(Boxed&& other) noexcept : box_(std::exchange(other.box_, nullptr)) {}
  Boxed& operator=(Boxed other) noexcept {
    std::swap(box_, other.box_);
    return *this;
  }
  ~Boxed() { reset(); }

  bool has_value() const noexcept { return box_ != nullptr; }
  explicit operator bool() const noexcept { return has_value(); }
  // There is a value. Where the object is not const, it becomes the only one that has it.
  T& operator*() { return own(); }
  const T& operator*() const noexcept { return box_->value; }
  T* operator->() { return &own(); }
  const T* operator->() const noexcept { return &box_->value; }

  void reset() noexcept {
    Box* const box = std::exchange(box_, nullptr);
    if (box != nullptr && box->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete box;
  }
  template <class... Arguments>
  T& emplace(Arguments&&... arguments) {
    *this = Boxed(T(std::forward<Arguments>(arguments)...));
    return box_->value;
  }

  // Equal for objects that share a value; nullptr if there is none.
  const void* identity() const noexcept { return box_; }

  friend bool operator==(const Boxed& a, const Boxed& b) {
    return a.box_ == b.box_ || (a.has_value() && b.has_value() && *a == *b);
  }
  friend bool operator==(const Boxed& a, std::nullopt_t) { return !a.has_value(); }

 private:
  struct Box {
    std::atomic<std::uint32_t> holders;
    T value;
  };

  T& own() {
    if (box_->holders.load(std::memory_order_acquire) != 1) *this = Boxed(T(box_->value));
    return box_->value;
  }

  Box* box_ = nullptr;
};

}  // namespace rankstacks
