#include "nodes/topology.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "nodes/host_list.h"

namespace rankstacks::nodes {
namespace {

constexpr std::string_view kBlank = " \t\r";
constexpr std::string_view kOption = "--topology";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// "@rack", "a!b", "a&b", "a^b", and steps of ranges: "[0-8/2]" (ClusterShell NodeSet).
bool needs_clustershell(std::string_view list) { return list.find_first_of("@!&^/%*") != std::string_view::npos; }

// Python's configparser takes "=" as well as ":".
std::optional<Route> parse_route(std::string_view line) {
  const std::size_t at = line.find_first_of(":=");
  if (at == std::string_view::npos) return std::nullopt;
  auto from = parse_host_list(line.substr(0, at)), to = parse_host_list(line.substr(at + 1));
  if (!from || !to) return std::nullopt;
  return Route{std::move(*from), std::move(*to)};
}

// Which way leads to each route's hosts, for the host `own`.
class Ways {
 public:
  Ways(const std::vector<Route>& routes, const std::string& own) : routes_(routes), own_(own) {
    for (std::size_t r = 0; r < routes.size(); ++r)
      for (const std::string& host : routes[r].to) route_to_.try_emplace(host, r);
  }

  // `first`: the route whose `from` are the gateways that are reached directly; `levels`: how many gateways follow one
  // another. None of them: the host is reached directly.
  struct Way {
    std::size_t first = 0, levels = 0;
  };
  // std::nullopt: no route leads from here to it.
  std::optional<Way> to(const std::string& host) const {
    const auto it = route_to_.find(host);
    return it == route_to_.end() ? std::nullopt : way_of(it->second, routes_.size());
  }

 private:
  // `left`: how many routes may still follow one another; more are a loop.
  std::optional<Way> way_of(std::size_t route, std::size_t left) const {
    const std::vector<std::string>& from = routes_[route].from;
    if (std::find(from.begin(), from.end(), own_) != from.end()) return Way{route, 0};
    const auto it = route_to_.find(from.front());
    if (it == route_to_.end() || left == 0) return std::nullopt;
    auto way = way_of(it->second, left - 1);
    if (!way) return std::nullopt;
    if (way->levels == 0) way->first = route;
    ++way->levels;
    return way;
  }

  const std::vector<Route>& routes_;
  const std::string& own_;
  std::unordered_map<std::string_view, std::size_t> route_to_;
};

}  // namespace

Result<std::vector<Route>> parse_topology(std::string_view text, const std::string& subject) {
  const auto fault = [&](ErrorCode code, std::size_t number, std::string what) {
    return fail({.code = code, .subject = fmt::format("{}:{}", subject, number), .what = std::move(what)});
  };
  std::vector<Route> routes;
  bool in_routes = false;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trimmed(text.substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      in_routes = line == "[routes]" || line == "[Main]";  // the latter until ClusterShell 1.7
      continue;
    }
    if (!in_routes) continue;
    if (needs_clustershell(line))
      return fault(ErrorCode::kUnsupported, number, "groups and operations of node sets are known to clush alone");
    auto route = parse_route(line);
    if (!route) return fault(ErrorCode::kMalformed, number, "a route is expected, as \"login: gw[1-2]\"");
    routes.push_back(std::move(*route));
  }
  if (routes.empty()) return fault(ErrorCode::kMalformed, number, "has no routes");
  return routes;
}

std::vector<std::string> without_topology(const std::vector<std::string>& options) {
  std::vector<std::string> others;
  for (std::size_t o = 0; o < options.size(); ++o) {
    if (options[o] == kOption) ++o;
    else if (!options[o].starts_with(std::string(kOption) + "=")) others.push_back(options[o]);
  }
  return others;
}

std::vector<std::string> topology_files(const std::vector<std::string>& options) {
  std::vector<std::string> files;
  for (std::size_t o = 0; o < options.size(); ++o) {
    if (options[o] == kOption && o + 1 < options.size()) files = {options[o + 1]};
    if (options[o].starts_with(std::string(kOption) + "=")) files = {options[o].substr(kOption.size() + 1)};
  }
  if (!files.empty()) return files;
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string home = variable("HOME"), xdg = variable("XDG_CONFIG_HOME"), own = variable("CLUSTERSHELL_CFGDIR");
  files = {"/etc/clustershell/topology.conf"};
  if (!home.empty()) files.push_back(home + "/.local/etc/clustershell/topology.conf");
  if (!xdg.empty()) files.push_back(xdg + "/clustershell/topology.conf");
  else if (!home.empty()) files.push_back(home + "/.config/clustershell/topology.conf");
  if (!own.empty()) files.push_back(own + "/topology.conf");
  return files;
}

Tree tree_from(const std::string& own, const std::vector<Route>& routes, const std::vector<std::string>& hosts) {
  const Ways ways(routes, own);
  std::map<std::size_t, Branch> branches;  // by the first route
  Tree tree;
  for (const std::string& host : hosts) {
    const auto way = ways.to(host);
    if (!way || way->levels == 0) continue;
    Branch& branch = branches[way->first];
    branch.gateways = routes[way->first].from;
    branch.behind.push_back(host);
    tree.levels = std::max(tree.levels, way->levels);
  }
  for (auto& [route, branch] : branches) tree.branches.push_back(std::move(branch));
  return tree;
}

}  // namespace rankstacks::nodes
