#include "versions/process_facts.h"

#include <sys/resource.h>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "support/elf_writer.h"
#include "support/temporary_directory.h"
#include "target/proc.h"

using namespace rankstacks;
using namespace rankstacks::versions;
using namespace rankstacks::testing;

TEST_CASE("limits of a process, by name") {
  const auto limits = parse_limits(
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max stack size            8388608              unlimited            bytes     \n"
      "Max core file size        0                    unlimited            bytes     \n"
      "Max open files            1024                 1048576              files     \n"
      "Max nice priority         0                    0                    \n"
      "Max processes             x                    1                    processes \n"
      "Max locked memory\n");
  CHECK(limits ==
        std::vector<ResourceLimit>{{"core-size", 0, {}}, {"open-files", 1024, 1048576}, {"stack-size", 8388608, {}}});
  CHECK(parse_limits("").empty());
}

TEST_CASE("the limits of this process are those that getrlimit gives") {
  const auto text = target::proc::read_file("/proc/self/limits");
  REQUIRE(text);
  rlimit files{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  bool seen = false;
  for (const ResourceLimit& limit : parse_limits(*text))
    if (limit.name == "open-files") {
      seen = true;
      CHECK(limit.soft ==
            (files.rlim_cur == RLIM_INFINITY ? std::nullopt : std::optional<std::uint64_t>(files.rlim_cur)));
    }
  CHECK(seen);
}

TEST_CASE("lists of processors") {
  CHECK(parse_number_list("0-2,8\n") == std::vector<int>{0, 1, 2, 8});
  CHECK(format_number_list({0, 1, 2, 8, 10, 11}) == "0-2,8,10-11");
  CHECK(format_number_list({}).empty());
  CHECK(parse_number_list("3-1").empty());
  CHECK(parse_number_list("0-4294967295").empty());
  CHECK(parse_number_list("0-").empty());
  CHECK(parse_number_list("x").empty());
  const MachineFacts machine{.node_cpus = {{0, {0, 1, 2, 3}}, {1, {4, 5, 6, 7}}}};
  CHECK(nodes_of(machine, "2-5") == "0-1");
  CHECK(nodes_of(machine, "6") == "1");
  CHECK(nodes_of(machine, "9").empty());
  CHECK(status_value("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n", "Cpus_allowed_list") == "0-7");
  CHECK(status_value("Cpus_allowed_list\n", "Cpus_allowed_list").empty());
}

namespace {

Bytes note(std::uint32_t name_size, std::string_view name, std::uint32_t size, std::uint32_t type,
           std::uint32_t value) {
  Bytes bytes;
  append_value(bytes, Elf64_Nhdr{name_size, size, type});
  append(bytes, name);
  append_value(bytes, value);
  return bytes;
}

}  // namespace

TEST_CASE("the kernel's version in a vdso's note") {
  using namespace std::string_view_literals;
  constexpr auto kName = "Linux\0\0\0"sv;
  CHECK(kernel_of_notes(note(6, kName, 4, 0, 0x06014c)) == "6.1.76");
  Bytes second = note(4, "GNU\0"sv, 4, 3, 7);
  append(second, note(6, kName, 4, 0, 0x050a05));
  CHECK(kernel_of_notes(second) == "5.10.5");
  CHECK(kernel_of_notes(note(6, kName, 8, 0, 0x06014c)).empty());
  CHECK(kernel_of_notes(note(0xffffffff, kName, 4, 0, 0x06014c)).empty());
  CHECK(kernel_of_notes(note(6, kName, 0xfffffff0, 0, 0x06014c)).empty());
  CHECK(kernel_of_notes({}).empty());
}

TEST_CASE("control groups of both versions, and none outside of the mount") {
  const auto two = cgroup_places("0::/system.slice/job.scope\n");
  REQUIRE(!two.empty());
  CHECK(two[0].directory == "/sys/fs/cgroup/system.slice/job.scope");
  CHECK(two[0].controller.empty());
  const auto one = cgroup_places("7:cpu,cpuacct:/a\n5:memory:/b/c\n3:pids:/\n1:name=systemd:/x\n");
  REQUIRE(one.size() == 3);
  CHECK(one[0].directory == "/sys/fs/cgroup/cpu/a");
  CHECK(one[1].directory == "/sys/fs/cgroup/memory/b/c");
  CHECK(one[2].directory == "/sys/fs/cgroup/pids");
  CHECK(cgroup_places("0::/../../etc\n").empty());
  CHECK(cgroup_places("0::/x/..\n").empty());
  CHECK(cgroup_places("0::relative\nno colons\n").empty());
}

TEST_CASE("the tightest limit of a control group and those above it") {
  TemporaryDirectory directory;
  const std::string mount = directory / "cgroup";
  std::filesystem::create_directories(mount + "/a/b");
  const auto write = [&](const std::string& name, const std::string& text) { std::ofstream(mount + name) << text; };
  write("/a/memory.max", "1000000\n");
  write("/a/b/memory.max", "max\n");
  write("/a/b/cpu.max", "150000 100000\n");
  write("/a/cpu.max", "max 100000\n");
  write("/a/b/pids.max", "nonsense\n");
  const CgroupLimits limits = read_cgroup_limits({{mount + "/a/b", mount, ""}});
  CHECK(limits.memory_bytes == 1000000u);
  CHECK(limits.cpus == 1.5);
  CHECK(limits.processes == std::nullopt);
  write("/a/memory.limit_in_bytes", "9223372036854771712\n");
  write("/a/b/memory.limit_in_bytes", "4096\n");
  CHECK(read_cgroup_limits({{mount + "/a/b", mount, "memory"}}).memory_bytes == 4096u);
  CHECK(read_cgroup_limits({{mount + "/a", mount, "memory"}}).memory_bytes == std::nullopt);
  write("/a/b/cpu.cfs_quota_us", "-1\n");
  write("/a/b/cpu.cfs_period_us", "100000\n");
  CHECK(read_cgroup_limits({{mount + "/a/b", mount, "cpu"}}).cpus == std::nullopt);
}

TEST_CASE("containers by control group, file and variable") {
  TemporaryDirectory directory;
  const auto root = RootDirectory::open(directory.path());
  REQUIRE(root);
  CHECK(container_of("0::/user.slice\n", &*root, {}).empty());
  CHECK(container_of("0::/system.slice/docker-0123.scope\n", &*root, {}) == "docker");
  CHECK(container_of("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope\n", nullptr, {}) == "kubernetes");
  CHECK(container_of("", nullptr, {"KUBERNETES_SERVICE_HOST"}) == "kubernetes");
  std::ofstream(directory / ".dockerenv") << "";
  CHECK(container_of("0::/\n", &*root, {}) == "docker");
}

TEST_CASE("what the machine says of itself") {
  const MachineFacts facts = read_machine_facts();
  const auto release = target::proc::read_file("/proc/sys/kernel/osrelease");
  REQUIRE(release);
  CHECK(facts.kernel + "\n" == *release);
  CHECK(facts.clock.has_value());
}
