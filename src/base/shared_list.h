// A list whose copies share their elements until one of them is changed (base/boxed.h). It is read as a const
// std::vector is, and has a pointer's size.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/boxed.h"

namespace rankstacks {

template <class T>
class SharedList {
 public:
  using value_type = T;
  using const_iterator = typename std::vector<T>::const_iterator;
  using iterator = const_iterator;

  SharedList() = default;
  SharedList(std::vector<T> values) {
    if (!values.empty()) values_ = Boxed<std::vector<T>>(std::move(values));
  }
  SharedList(std::initializer_list<T> values) : SharedList(std::vector<T>(values)) {}

  const std::vector<T>& get() const {
    static const std::vector<T> kNone;
    return values_ ? *values_ : kNone;
  }
  operator const std::vector<T>&() const { return get(); }

  const_iterator begin() const { return get().begin(); }
  const_iterator end() const { return get().end(); }
  auto rbegin() const { return get().rbegin(); }
  auto rend() const { return get().rend(); }
  std::size_t size() const { return get().size(); }
  bool empty() const { return get().empty(); }
  const T& operator[](std::size_t i) const { return get()[i]; }
  const T& at(std::size_t i) const { return get().at(i); }
  const T& front() const { return get().front(); }
  const T& back() const { return get().back(); }

  // The elements, to be changed: from then on they are this list's own, until it is copied.
  std::vector<T>& edit() { return values_ ? *values_ : values_.emplace(); }
  void push_back(T value) { edit().push_back(std::move(value)); }
  void clear() { values_.reset(); }

  // Equal for lists that share their elements; nullptr for most that have none.
  const void* identity() const { return values_.identity(); }

  friend bool operator==(const SharedList& a, const SharedList& b) {
    return a.identity() == b.identity() || a.get() == b.get();
  }

 private:
  Boxed<std::vector<T>> values_;
};

}  // namespace rankstacks
