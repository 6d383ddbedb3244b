#include "nodes/host_list.h"

#include <catch2/catch.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/host_set.h"

namespace rankstacks::nodes {
namespace {

std::string hosts(std::string_view text) {
  const auto list = parse_host_list(text);
  return list ? fmt::format("{}", fmt::join(*list, " ")) : list.error().message();
}

std::string of_file(std::string_view text) {
  const auto list = parse_hostfile(text, "hosts.txt");
  return list ? fmt::format("{}", fmt::join(*list, " ")) : list.error().message();
}

TEST_CASE("host lists") {
  CHECK(hosts("a") == "a");
  CHECK(hosts("a,b[1-3,7]") == "a b1 b2 b3 b7");
  CHECK(hosts("n[08-11]") == "n08 n09 n10 n11");
  CHECK(hosts("n[1,01]") == "n1 n01");
  CHECK(hosts("r[1-2]-n[3-4].x") == "r1-n3.x r1-n4.x r2-n3.x r2-n4.x");
  CHECK(hosts(" a , b\tc,,a ") == "a b c");
  CHECK(hosts("10.0.0.1,fe80::1,me@node") == "10.0.0.1 fe80::1 me@node");
}

TEST_CASE("host lists that are none") {
  CHECK(hosts("") == "host list: no host is named");
  CHECK(hosts(",, ") == "host list: no host is named");
  CHECK(hosts("a[1-") == "host list: \"a[1-\": a bracket is not closed");
  CHECK(hosts("a[]") == "host list: \"[]\": numbers and ranges are expected, as [1-64,70]");
  CHECK(hosts("a[3-1]") == "host list: \"[3-1]\": numbers and ranges are expected, as [1-64,70]");
  CHECK(hosts("a[1-x]") == "host list: \"[1-x]\": numbers and ranges are expected, as [1-64,70]");
  CHECK(hosts("a[0-99999999999999999999]") ==
        "host list: \"[0-99999999999999999999]\": numbers and ranges are expected, as [1-64,70]");
  CHECK(hosts("a[0-999999999]") == "host list: more than 65536 hosts");
  CHECK(hosts("a[1-999][1-999]") == "host list: more than 65536 hosts");
  CHECK(hosts("a[1-9999][1-9999][1-9999][1-9999]") == "host list: more than 65536 hosts");
  // Words that an engine or a shell would take for something else.
  CHECK(hosts("-oProxyCommand=x") == "host list: \"-oProxyCommand=x\" is no name of a host");
  CHECK(hosts("a;reboot") == "host list: \"a;reboot\" is no name of a host");
  CHECK(hosts("$(id)") == "host list: \"$(id)\" is no name of a host");
  CHECK(hosts("a]b") == "host list: \"a]b\" is no name of a host");
}

TEST_CASE("hostfiles") {
  CHECK(of_file("# nodes\nnode-1 slots=8 max_slots=8\n\n  node-2 slots=8 # spare\r\n") == "node-1 node-2");
  CHECK(of_file("node-1:8\nnode-2:8") == "node-1 node-2");
  CHECK(of_file("me@node-1\nnode-[3-4] slots=2\nfe80::1\n") == "node-1 node-3 node-4 fe80::1");
  CHECK(of_file("# nothing\n") == "hosts.txt: no host is named");
  CHECK(of_file("a\n+n0\n") == "hosts.txt:2: \"+n0\" is no name of a host");
}

TEST_CASE("sets of hosts") {
  CHECK(format_host_set({"node-3", "node-1", "node-2", "login", "node-7"}) == "login,node-[1-3,7]");
  CHECK(format_host_set({"n08", "n09", "n10", "n11"}) == "n[08-11]");
  CHECK(format_host_set({"n1", "n01"}) == "n1,n01");
  CHECK(format_host_set({"rack1-n4.x"}) == "rack1-n4.x");
  CHECK(format_host_set({"10.0.0.1", "10.0.0.2"}) == "10.0.0.1,10.0.0.2");
  CHECK(format_host_set({"a", "b", "c1", "c2", "c5"}, 3) == "a,b,c[1-2] and 1 more");
  CHECK(format_host_set({}) == "");
  for (const char* list : {"a,b[1-64,70]", "n[008-120]", "r2-n[1-2]"}) {
    auto expanded = *parse_host_list(list);
    CHECK(*parse_host_list(format_host_set(expanded, SIZE_MAX)) == expanded);
  }
}

}  // namespace
}  // namespace rankstacks::nodes
