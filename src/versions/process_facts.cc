#include "versions/process_facts.h"

#include <sys/timex.h>
#include <sys/utsname.h>
#include <algorithm>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "base/text.h"
#include "elf/bytes.h"
#include "known/containers.h"
#include "target/proc.h"
#include "versions/version_texts.h"

namespace rankstacks::versions {
namespace {

constexpr std::size_t kLongestFile = 64u << 10;

struct LimitRow {
  std::string_view in_proc, name;
};
// fs/proc/base.c: lnames.
constexpr LimitRow kLimitRows[] = {
    {"Max cpu time", "cpu-time"},           {"Max file size", "file-size"},
    {"Max data size", "data-size"},         {"Max stack size", "stack-size"},
    {"Max core file size", "core-size"},    {"Max processes", "processes"},
    {"Max open files", "open-files"},       {"Max locked memory", "locked-memory"},
    {"Max address space", "address-space"}, {"Max msgqueue size", "message-queues"},
};

std::string_view next_word(std::string_view& text) {
  const std::size_t start = std::min(text.find_first_not_of(' '), text.size());
  text.remove_prefix(start);
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

template <class T>
std::optional<T> number_of(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class F>
void each_line(std::string_view text, F&& f) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    f(line);
  }
}

std::optional<std::string> read_small(const std::string& path) {
  auto text = target::proc::read_file(path, kLongestFile);
  return text ? std::optional(std::move(*text)) : std::nullopt;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  const auto text = read_small(path);
  return text ? number_of<std::uint64_t>(*text) : std::nullopt;
}

template <class T>
void tighten(std::optional<T>& limit, std::optional<T> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

// Version 1 says "unlimited" by the greatest multiple of a page that fits.
constexpr std::uint64_t kUnlimitedMemory = std::uint64_t{1} << 62;

void read_group(const std::string& directory, const std::string& controller, CgroupLimits& limits) {
  if (controller.empty()) {
    tighten(limits.memory_bytes, read_number(directory + "/memory.max"));
    tighten(limits.processes, read_number(directory + "/pids.max"));
    if (const auto text = read_small(directory + "/cpu.max")) {
      std::string_view rest = *text;
      const auto quota = number_of<double>(next_word(rest));
      const auto period = number_of<double>(next_word(rest));
      if (quota && period && *period > 0) tighten(limits.cpus, std::optional(*quota / *period));
    }
  } else if (controller == "memory") {
    const auto bytes = read_number(directory + "/memory.limit_in_bytes");
    if (bytes && *bytes < kUnlimitedMemory) tighten(limits.memory_bytes, bytes);
  } else if (controller == "pids") {
    tighten(limits.processes, read_number(directory + "/pids.max"));
  } else if (controller == "cpu") {
    const auto quota = read_number(directory + "/cpu.cfs_quota_us");  // -1, no number of this kind: unlimited
    const auto period = read_number(directory + "/cpu.cfs_period_us");
    if (quota && period && *period > 0)
      tighten(limits.cpus, std::optional(static_cast<double>(*quota) / static_cast<double>(*period)));
  }
}

}  // namespace

std::vector<ResourceLimit> parse_limits(std::string_view text) {
  std::vector<ResourceLimit> limits;
  each_line(text, [&](std::string_view line) {
    for (const LimitRow& row : kLimitRows) {
      if (!line.starts_with(row.in_proc)) continue;
      std::string_view rest = line.substr(row.in_proc.size());
      const std::string_view soft = next_word(rest), hard = next_word(rest);
      const auto soft_number = number_of<std::uint64_t>(soft), hard_number = number_of<std::uint64_t>(hard);
      if ((soft_number || soft == "unlimited") && (hard_number || hard == "unlimited"))
        limits.push_back({std::string(row.name), soft_number, hard_number});
      return;
    }
  });
  std::sort(limits.begin(), limits.end(),
            [](const ResourceLimit& a, const ResourceLimit& b) { return a.name < b.name; });
  return limits;
}

std::string status_value(std::string_view text, std::string_view name) {
  std::string value;
  each_line(text, [&](std::string_view line) {
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':') {
      line.remove_prefix(name.size() + 1);
      const std::size_t start = line.find_first_not_of(" \t");
      if (start != std::string_view::npos) value = line.substr(start);
    }
  });
  return value;
}

std::vector<int> parse_number_list(std::string_view text) {
  constexpr int kMax = 65536;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  std::vector<int> numbers;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::size_t dash = item.find('-');
    const auto first = number_of<int>(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number_of<int>(item.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMax) return {};
    for (int n = *first; n <= *last; ++n) numbers.push_back(n);
    if (numbers.size() > static_cast<std::size_t>(kMax)) return {};
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::string format_number_list(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += end - i == 1 ? std::to_string(numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return text;
}

std::string kernel_of_notes(std::span<const std::byte> notes) {
  constexpr std::string_view kName = "Linux";
  const auto padded = [](std::uint64_t n) { return (n + 3) & ~std::uint64_t{3}; };
  std::uint64_t at = 0;
  while (const auto header = elf::load<Elf64_Nhdr>(notes, at)) {
    const std::uint64_t name_at = at + sizeof(Elf64_Nhdr);
    const std::uint64_t description_at = name_at + padded(header->n_namesz);
    const auto name = elf::exactly(notes, name_at, header->n_namesz);
    if (header->n_type == 0 && header->n_descsz == sizeof(std::uint32_t) && name.size() == kName.size() + 1 &&
        std::memcmp(name.data(), kName.data(), kName.size()) == 0) {
      const auto code = elf::load<std::uint32_t>(notes, description_at);
      if (code) return fmt::format("{}.{}.{}", *code >> 16, (*code >> 8) & 0xff, *code & 0xff);
    }
    at = description_at + padded(header->n_descsz);
  }
  return "";
}

std::vector<CgroupPlace> cgroup_places(std::string_view text) {
  constexpr std::size_t kMax = 32;
  const std::string mount = "/sys/fs/cgroup";
  std::vector<CgroupPlace> places;
  each_line(text, [&](std::string_view line) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos || places.size() >= kMax) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (!path.starts_with('/') || contains(path + "/", "/../")) return;
    const std::string below = path == "/" ? "" : path;
    if (controllers.empty()) {
      places.push_back({mount + below, mount, ""});
      places.push_back({mount + "/unified" + below, mount + "/unified", ""});  // next to version 1
      return;
    }
    std::string_view rest = controllers;
    while (!rest.empty()) {
      const std::string controller(rest.substr(0, rest.find(',')));
      rest.remove_prefix(std::min(rest.size(), controller.size() + 1));
      if (controller != "memory" && controller != "cpu" && controller != "pids") continue;
      places.push_back({mount + "/" + controller + below, mount + "/" + controller, controller});
    }
  });
  return places;
}

CgroupLimits read_cgroup_limits(const std::vector<CgroupPlace>& places) {
  constexpr int kDeepest = 64;
  CgroupLimits limits;
  for (const CgroupPlace& place : places) {
    std::string directory = place.directory;
    for (int depth = 0; depth < kDeepest && directory.size() >= place.mount.size(); ++depth) {
      read_group(directory, place.controller, limits);
      directory.resize(std::min(directory.rfind('/'), directory.size()));
    }
  }
  return limits;
}

std::string container_of(std::string_view cgroups, const RootDirectory* root,
                         const std::vector<std::string>& variables) {
  for (const known::ContainerRule& rule : known::container_rules()) {
    bool holds = false;
    switch (rule.sign) {
      case known::ContainerSign::kControlGroup: holds = contains(cgroups, rule.text); break;
      case known::ContainerSign::kFile: holds = root != nullptr && root->has(std::string(rule.text)); break;
      case known::ContainerSign::kVariable:
        holds = std::find(variables.begin(), variables.end(), rule.text) != variables.end();
        break;
    }
    if (holds) return std::string(rule.container);
  }
  return "";
}

MachineFacts read_machine_facts() {
  MachineFacts facts;
  utsname system{};
  if (uname(&system) == 0) facts.kernel = system.release;
  if (const auto text = read_small("/proc/driver/nvidia/version")) facts.gpu_driver = driver_version(*text);
  timex clock{};  // modes 0: nothing is changed
  if (const int state = adjtimex(&clock); state >= 0) {
    const bool in_nanoseconds = (clock.status & STA_NANO) != 0;
    facts.clock = ClockState{.synchronized = state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0,
                             .offset_us = in_nanoseconds ? clock.offset / 1000 : clock.offset,
                             .max_error_us = clock.maxerror};
  }
  constexpr const char* kNodes = "/sys/devices/system/node";
  if (const auto online = read_small(fmt::format("{}/online", kNodes)))
    for (const int node : parse_number_list(*online))
      if (const auto cpus = read_small(fmt::format("{}/node{}/cpulist", kNodes, node)))
        facts.node_cpus.emplace_back(node, parse_number_list(*cpus));
  return facts;
}

std::string nodes_of(const MachineFacts& machine, std::string_view cpus) {
  const std::vector<int> wanted = parse_number_list(cpus);
  std::vector<int> nodes;
  for (const auto& [node, of_node] : machine.node_cpus) {
    const bool some = std::any_of(of_node.begin(), of_node.end(),
                                  [&](int cpu) { return std::binary_search(wanted.begin(), wanted.end(), cpu); });
    if (some) nodes.push_back(node);
  }
  return format_number_list(nodes);
}

}  // namespace rankstacks::versions
