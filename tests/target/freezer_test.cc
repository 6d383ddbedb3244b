#include "target/freezer.h"

#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <filesystem>

#include "support/temporary_directory.h"

using namespace rankstacks;
using namespace rankstacks::target;
using rankstacks::testing::TemporaryDirectory;

namespace {

// Hierarchies of control groups, as files of a directory.
class Groups {
 public:
  // A file of a group: put("two/job/rank", "cgroup.freeze", "1\n").
  void put(std::string_view group, std::string_view file, std::string_view text) const {
    std::filesystem::create_directories(directory_ / group);
    std::ofstream(directory_ / fmt::format("{}/{}", group, file)) << text;
  }
  // A group of version 2, with its parents.
  void add(std::string_view group, bool is_frozen, bool asks) const {
    put(group, "cgroup.events", fmt::format("populated 1\nfrozen {}\n", is_frozen ? 1 : 0));
    put(group, "cgroup.freeze", asks ? "1\n" : "0\n");
  }
  std::string mountinfo(std::string_view root = "/") const {
    return fmt::format(
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "30 22 0:26 {0} {1}/one rw,nosuid shared:9 master:2 - cgroup cgroup rw,cpu,freezer\n"
        "31 22 0:27 {0} {1}/two rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
        root, directory_.path());
  }
  std::string operator/(std::string_view file) const { return directory_ / file; }

 private:
  TemporaryDirectory directory_;
};

}  // namespace

TEST_CASE("version 2: the group is frozen, and which file says so", "[freezer]") {
  const Groups groups;
  groups.add("two/job", true, true);
  groups.add("two/job/rank 1", true, false);
  const auto freeze = freeze_of("4:cpu,freezer:/\n0::/job/rank 1\n", groups.mountinfo());
  REQUIRE(freeze);
  CHECK((freeze->version == 2 && freeze->is_complete && freeze->can_be_stopped()));
  CHECK(freeze->group == groups / "two/job/rank 1");
  CHECK(freeze->switches == std::vector<std::string>{groups / "two/job/cgroup.freeze"});
  const Problem problem = problem_of(*freeze);
  CHECK(problem.message ==
        fmt::format("its control group {} is frozen: none of its threads runs until it is thawed", freeze->group));
  CHECK(problem.hint->find(fmt::format("echo 0 > {}", freeze->switches[0])) != std::string::npos);
  SECTION("both of two nested groups") {
    groups.add("two/job/rank 1", true, true);
    CHECK(freeze_of("0::/job/rank 1\n", groups.mountinfo())->switches ==
          std::vector<std::string>{groups / "two/job/rank 1/cgroup.freeze", groups / "two/job/cgroup.freeze"});
  }
  SECTION("not yet") {
    groups.add("two/job/rank 1", false, false);
    const auto begun = freeze_of("0::/job/rank 1\n", groups.mountinfo());
    REQUIRE(begun);
    CHECK_FALSE(begun->is_complete);
    CHECK(problem_of(*begun).message.find("is being frozen") != std::string::npos);
  }
  SECTION("no more") {
    groups.add("two/job", false, false);
    groups.add("two/job/rank 1", false, false);
    CHECK_FALSE(freeze_of("0::/job/rank 1\n", groups.mountinfo()));
  }
  SECTION("a container's group, mounted as the root") {
    const auto inside = freeze_of("0::/docker/abc/job/rank 1\n", groups.mountinfo("/docker/abc"));
    REQUIRE(inside);
    CHECK(inside->group == groups / "two/job/rank 1");
    CHECK_FALSE(freeze_of("0::/docker/abcd/job/rank 1\n", groups.mountinfo("/docker/abc")));
  }
  SECTION("by a group that is not visible from here") {
    groups.add("two", true, false);
    const auto root = freeze_of("0::/docker/abc\n", groups.mountinfo("/docker/abc"));
    REQUIRE(root);
    CHECK(root->switches.empty());
    CHECK(problem_of(*root).hint->find("not visible") != std::string::npos);
    CHECK_FALSE(freeze_of("0::/../other\n", groups.mountinfo()));
  }
}

TEST_CASE("a group's name is one word of the command that thaws it", "[freezer]") {
  const Groups groups;
  for (const std::string& name :
       std::vector<std::string>{"a b", "a;touch x", "$(touch x)", "it's", "`touch x`", "a&b|c>d"}) {
    groups.add("two/" + name, true, true);
    const auto freeze = freeze_of(fmt::format("0::/{}\n", name), groups.mountinfo());
    REQUIRE(freeze);
    const std::string hint = *problem_of(*freeze).hint, command = hint.substr(0, hint.find(", or as it was frozen"));
    REQUIRE(command.starts_with("thaw it: echo 0 > "));
    // What the shell makes of it: the file is written to, and nothing else happens.
    const std::string written = groups / ("two/" + name + "/cgroup.freeze");
    REQUIRE(std::system(fmt::format("cd {} && {}", groups / "two", command.substr(9)).c_str()) == 0);
    std::string text;
    std::getline(std::ifstream(written), text);
    CHECK(text == "0");
    CHECK_FALSE(std::filesystem::exists(groups / "two/x"));
  }
  Freeze freeze{
      .version = 2, .is_complete = true, .group = "/g", .switches = {"/sys/fs/cgroup/a\n touch x/cgroup.freeze"}};
  CHECK(problem_of(freeze).hint->starts_with("thaw it: echo 0 > $'/sys/fs/cgroup/a\\012 touch x/cgroup.freeze', or"));
}

TEST_CASE("version 1: the group is frozen, and its threads cannot be stopped", "[freezer]") {
  const Groups groups;
  groups.put("one/job", "freezer.state", "FROZEN\n");
  groups.put("one/job", "freezer.self_freezing", "1\n");
  const std::string cgroups = "6:cpu,freezer:/job\n5:devices:/\n0::/\n";
  const auto freeze = freeze_of(cgroups, groups.mountinfo());
  REQUIRE(freeze);
  CHECK((freeze->version == 1 && freeze->is_complete && !freeze->can_be_stopped()));
  CHECK(freeze->group == groups / "one/job");
  CHECK(freeze->switches == std::vector<std::string>{groups / "one/job/freezer.state"});
  CHECK(problem_of(*freeze).hint->find(fmt::format("echo THAWED > {}", freeze->switches[0])) != std::string::npos);
  groups.put("one/job", "freezer.state", "FREEZING\n");
  CHECK_FALSE(freeze_of(cgroups, groups.mountinfo())->is_complete);
  groups.put("one/job", "freezer.state", "THAWED\n");
  CHECK_FALSE(freeze_of(cgroups, groups.mountinfo()));
}

TEST_CASE("where nothing says that a process is frozen", "[freezer]") {
  const Groups groups;
  groups.add("two/job", true, true);
  for (const char* cgroups :
       {"", "\n", "0", "0:", "0::", "0::job", "0:name=x:/job", "7:cpu:/job\n", "0::/else\n", "0::/\n"})
    CHECK_FALSE(freeze_of(cgroups, groups.mountinfo()));
  for (const char* mountinfo : {"", "\n\n", "31 22 0:27 / /two rw", "31 22 0:27 / /two rw -", "- - - - - - cgroup2"})
    CHECK_FALSE(freeze_of("0::/job\n", mountinfo));
  CHECK_FALSE(freeze_of(getpid(), getpid()));
}
