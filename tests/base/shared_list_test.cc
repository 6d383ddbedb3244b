#include "base/shared_list.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

using rankstacks::SharedList;

TEST_CASE("shared list: read as a vector is") {
  SharedList<std::string> list;
  CHECK(list.empty());
  CHECK(list.begin() == list.end());
  CHECK(list.identity() == nullptr);
  list = {"one", "two"};
  list.push_back("three");
  CHECK(list.size() == 3);
  CHECK(list.front() == "one");
  CHECK(list[1] == "two");
  CHECK(list.back() == "three");
  CHECK(*list.rbegin() == "three");
  const std::vector<std::string>& as_vector = list;
  CHECK(as_vector == std::vector<std::string>{"one", "two", "three"});
  list.clear();
  CHECK(list.empty());
  CHECK(sizeof(list) == sizeof(void*));
}

TEST_CASE("shared list: copies share their elements until one is changed") {
  SharedList<int> list = {1, 2};
  SharedList<int> copy = list;
  CHECK(copy.identity() == list.identity());
  copy.edit()[0] = 3;
  CHECK(copy.identity() != list.identity());
  CHECK(list == SharedList<int>{1, 2});
  CHECK(copy == SharedList<int>{3, 2});
  CHECK_FALSE(list == copy);
  copy = list;
  list.push_back(5);
  CHECK(copy.size() == 2);
  CHECK(list.size() == 3);
  list.edit().clear();
  CHECK(list == SharedList<int>());
}
