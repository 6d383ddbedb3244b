#include "nodes/topology.h"

#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <catch2/catch.hpp>

#include "nodes/gateways.h"
#include "nodes/host_list.h"

namespace rankstacks::nodes {
namespace {

// "gw1,gw2: n1,n2; gw3: n9 (2)": the branches, and the levels of gateways.
std::string tree(std::string_view own, std::string_view topology, std::string_view hosts) {
  const auto routes = parse_topology(topology, "t");
  if (!routes) return routes.error().message();
  const Tree tree = tree_from(std::string(own), *routes, *parse_host_list(hosts));
  std::string text;
  for (const Branch& branch : tree.branches)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", fmt::join(branch.gateways, ","),
                        fmt::join(branch.behind, ","));
  return fmt::format("{} ({})", text, tree.levels);
}

constexpr std::string_view kTwoLevels =
    "# of the cluster\n[other]\nx: y\n[routes]\nlogin: top[1-2]\n top[1-2] : rack[1-3]\n; the racks\nrack1: "
    "n[1-2]\nrack2=n[3-4]\n";

TEST_CASE("the gateways on the way to nodes") {
  CHECK(tree("login", "[routes]\nlogin: gw[1-2]\ngw[1-2]: n[1-4]\n", "n[1-4]") == "gw1,gw2: n1,n2,n3,n4 (1)");
  CHECK(tree("login", "[routes]\nlogin: gw[1-2]\ngw[1-2]: n[1-4]\n", "gw[1-2],n3,other") == "gw1,gw2: n3 (1)");
  CHECK(tree("login", "[Main]\nlogin: gw1,gw2\ngw1: n1\ngw2: n2", "n2,n1") == "gw1: n1; gw2: n2 (1)");
  CHECK(tree("login", kTwoLevels, "n[1-4],rack3,top1") == "top1,top2: n1,n2,n3,n4,rack3 (2)");
  CHECK(tree("top2", kTwoLevels, "n[1-4],rack3") == "rack1: n1,n2; rack2: n3,n4 (1)");
  CHECK(tree("rack2", kTwoLevels, "n[3-4]") == " (0)");
  // From a machine that is in no route, or below, nodes are reached directly.
  CHECK(tree("laptop", kTwoLevels, "n[1-4]") == " (0)");
  CHECK(tree("rack2", kTwoLevels, "n1,top1,login") == " (0)");
  // A loop leads nowhere, and does not end the tool.
  CHECK(tree("login", "[routes]\na: b\nb: a\n", "a,b") == " (0)");
  CHECK(tree("a", "[routes]\na: b\nb: c\nc: b,d\n", "d") == "b: d (2)");
}

TEST_CASE("topologies that are none, or that only clush can read") {
  CHECK(tree("a", "", "b") == "t:0: has no routes");
  CHECK(tree("a", "a: b\n", "b") == "t:1: has no routes");
  CHECK(tree("a", "[routes]\na b\n", "b") == "t:2: a route is expected, as \"login: gw[1-2]\"");
  CHECK(tree("a", "[routes]\na: b[1\n", "b") == "t:2: a route is expected, as \"login: gw[1-2]\"");
  CHECK(tree("a", "[routes]\na: @racks\n", "b") == "t:2: groups and operations of node sets are known to clush alone");
  CHECK(tree("a", "[routes]\na: b[1-9]!b3\n", "b") ==
        "t:2: groups and operations of node sets are known to clush alone");
}

TEST_CASE("which file it is") {
  setenv("HOME", "/home/u", 1);
  setenv("CLUSTERSHELL_CFGDIR", "/c", 1);
  unsetenv("XDG_CONFIG_HOME");
  CHECK(topology_files({}) ==
        std::vector<std::string>{"/etc/clustershell/topology.conf", "/home/u/.local/etc/clustershell/topology.conf",
                                 "/home/u/.config/clustershell/topology.conf", "/c/topology.conf"});
  setenv("XDG_CONFIG_HOME", "/x", 1);
  unsetenv("CLUSTERSHELL_CFGDIR");
  CHECK(topology_files({}).back() == "/x/clustershell/topology.conf");
  CHECK(topology_files({"-l", "u", "--topology=/t"}) == std::vector<std::string>{"/t"});
  CHECK(topology_files({"--topology", "/t", "-S"}) == std::vector<std::string>{"/t"});
  CHECK(without_topology({"-l", "u", "--topology=/t", "--topology", "/u", "-S"}) ==
        std::vector<std::string>{"-l", "u", "-S"});
}

TEST_CASE("nodes are shared among the gateways of their branch") {
  const auto shared = [](std::size_t gateways, std::size_t nodes) {
    std::vector<std::string> names;
    for (std::size_t g = 0; g < gateways; ++g) names.push_back(fmt::format("g{}", g));
    std::vector<std::size_t> pages;
    for (std::size_t n = 0; n < nodes; ++n) pages.push_back(10 + n);
    std::string text;
    for (const Relay& relay : share(3, names, pages)) {
      CHECK(relay.branch == 3);
      text += fmt::format("{}: {} ", relay.host, fmt::join(relay.behind, ","));
    }
    return text;
  };
  CHECK(shared(2, 5) == "g0: 10,11 g1: 12,13,14 ");
  CHECK(shared(3, 2) == "g1: 10 g2: 11 ");
  CHECK(shared(0, 2).empty());
}

TEST_CASE("what a gateway is asked for") {
  using std::chrono::milliseconds, std::chrono::seconds, std::chrono::system_clock;
  CHECK(words_of_gateway({"--for-gateway", "attach", "--job"}, {"n1", "n2", "m"}, seconds(50),
                         system_clock::time_point(milliseconds(1700000000123))) ==
        std::vector<std::string>{"job", "--hosts=m,n[1-2]", "--timeout=50", "--start-at=1700000000123", "--for-gateway",
                                 "attach", "--job"});
  EngineSettings engine;
  CHECK(limit_of_gateway(engine, Deadline::never()) == seconds(60));
  // It answers before this tool makes its report.
  CHECK(limit_of_gateway(engine, Deadline::after(seconds(60))) >= seconds(51));
  CHECK(limit_of_gateway(engine, Deadline::after(seconds(60))) <= seconds(52));
  CHECK(limit_of_gateway(engine, Deadline::after(seconds(20))) <= seconds(15));
  CHECK(limit_of_gateway(engine, Deadline::after(seconds(2))) == seconds(1));
  CHECK(has_time_to_ask_again(engine, milliseconds(2500), Deadline::after(seconds(19))));
  CHECK_FALSE(has_time_to_ask_again(engine, milliseconds(2500), Deadline::after(seconds(17))));
}

}  // namespace
}  // namespace rankstacks::nodes
