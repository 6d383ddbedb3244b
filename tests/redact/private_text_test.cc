#include "redact/private_text.h"

#include <sys/stat.h>
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "support/temporary_directory.h"

using namespace rankstacks;
using namespace rankstacks::redact;

namespace {

struct Fixture {
  Pseudonyms names;
  PrivateText text{names};
  std::string words(std::string_view of) { return text.replaced(of, Text::kWords); }
  std::string name(std::string_view of) { return text.replaced(of, Text::kName); }
  std::string path(std::string_view of) { return text.replaced(of, Text::kPath); }
};

}  // namespace

TEST_CASE("homes and users") {
  Fixture f;
  CHECK(f.path("/home/alice/proj/train.py") == "~/proj/train.py");
  CHECK(f.path("/mnt/nfs/home/bob/x.py") == "~user-2/x.py");
  CHECK(f.path("/Users/alice/x") == "~/x");
  CHECK(f.path("/root/x") == "~user-3/x");
  CHECK(f.path("~carol/x") == "~user-4/x");
  CHECK(f.path("/tmp/torchinductor_alice/6j/x.py") == "/tmp/torchinductor_user-1/6j/x.py");
  CHECK(f.path("/scratch/bob/x") == "/scratch/user-2/x");
  CHECK(f.name("alice::Trainer::run()") == "user-1::Trainer::run()");
  CHECK(f.name("malice") == "malice");
  CHECK(f.name("alice_loss") == "alice_loss");
  CHECK(f.path("~/proj/x") == "~/proj/x");
  CHECK(f.path("~user-2/x.py") == "~user-2/x.py");
}

TEST_CASE("accounts of everybody are no names") {
  Fixture f;
  CHECK(f.path("/home/ubuntu/train.py") == "~/train.py");
  CHECK(f.path("/usr/share/ubuntu/x") == "/usr/share/ubuntu/x");
}

TEST_CASE("libraries stay readable") {
  Fixture f;
  for (const std::string path :
       {"/usr/lib/x86_64-linux-gnu/libc.so.6", "/opt/conda/lib/python3.11/site-packages/torch/x.py",
        "<frozen importlib._bootstrap>", "<string>", "[vdso]", "train.py"})
    CHECK(f.path(path) == path);
  CHECK(f.path("/home/alice/venv/lib/python3.11/site-packages/torch/x.py") ==
        "~/venv/lib/python3.11/site-packages/torch/x.py");
  CHECK(f.name("memcpy@@GLIBC_2.14") == "memcpy@@GLIBC_2.14");
}

TEST_CASE("addresses") {
  Fixture f;
  CHECK(f.words("tcp 10.1.2.3:4711 -> 10.1.2.4:29500") == "tcp ip-1:port-1 -> ip-2:port-2");
  CHECK(f.words("from 10.1.2.3.") == "from ip-1.");
  CHECK(f.words("[fe80::1%eth0]:80 x") == "ip-3:port-3 x");
  CHECK(f.words("at 2001:db8::7:1 now") == "at ip-4 now");
  CHECK(f.words("127.0.0.1:80 ::1 0.0.0.0") == "127.0.0.1:80 ::1 0.0.0.0");
  CHECK(f.words("libcublas.so.12.4.5.8") == "libcublas.so.12.4.5.8");
  CHECK(f.words("at 12:34:56, 0000:0a:00.0") == "at 12:34:56, 0000:0a:00.0");
  CHECK(f.name("std::a::b1::c") == "std::a::b1::c");
  CHECK(f.name("dead::beef1") == "dead::beef1");
}

TEST_CASE("versions of four numbers are no addresses") {
  Fixture f;
  for (const std::string text : {"driver version 12.4.5.8", "needs torch==2.1.0.1", "x>=1.2.3.4", "VERSION=1.2.3.4",
                                 "{'version': '1.2.3.4'}", "libcublas.so.12.4.5.8", "v1.2.3.4"})
    CHECK(f.words(text) == text);
  CHECK(f.words("addr=1.2.3.4") == "addr=ip-1");
  CHECK(names_a_version("--cuda-version"));
  CHECK(names_a_version("NCCL_VERSION"));
  CHECK(names_a_version("libraryVersion"));
  CHECK_FALSE(names_a_version("--conversion"));
}

TEST_CASE("values that consist of addresses") {
  Fixture f;
  CHECK(f.words("at 10.1.2.3") == "at ip-1");
  CHECK(f.text.addresses("10.1.2.3") == "ip-1");
  CHECK(f.text.addresses("10.1.2.3:29500") == "ip-1:port-1");
  CHECK(f.text.addresses("tcp://10.1.2.3:29500") == "tcp://ip-1:port-1");
  CHECK(f.text.addresses("10.1.2.3,10.1.2.4:1") == "ip-1,ip-2:port-2");
  CHECK(f.text.addresses("10.1.2.0/24") == "ip-3/24");
  CHECK(f.text.addresses("10.1.2.3-10.1.2.4") == "ip-1-ip-2");
  CHECK(f.text.addresses("fd00::12:34") == "ip-4");
  CHECK(f.text.addresses("[fd00::12:34]:80") == "ip-4:port-3");
  CHECK(f.text.addresses("127.0.0.1:29500") == "127.0.0.1:29500");
  CHECK(f.text.addresses("0.0.0.0") == "0.0.0.0");
  for (const std::string other : {"", "12.4.1", "1.2.3.256", "1.2.3.4.5", "0.1", "10.1.2.3,", "host", "12:34:56",
                                  "10.1.2.3/x", "aa:bb:cc:dd:ee:ff", "tcp://", "10.1.2.3 x"})
    CHECK(f.text.addresses(other) == std::nullopt);
}

TEST_CASE("hosts, mail and pods") {
  Fixture f;
  CHECK(f.text.host("node-17.hpc.example.com") == "host-1");
  CHECK(f.text.host("unknown") == "unknown");
  CHECK(f.text.host("10.0.0.1") == "ip-1");
  CHECK(f.words("core-node-17-99 of node-17.hpc.example.com") == "core-host-1-99 of host-1");
  CHECK(f.words("alice@example.com and bob@node-17") == "email-1 and user-1@host-1");
  CHECK(f.words("pull registry.corp.internal/x") == "pull host-2/x");
  CHECK(f.words("on trainer-7d9f8b6c5d-x2k4q") == "on pod-1");
  CHECK(f.path("/var/lib/kubelet/pods/1b2c3d4e-5f60-7182-93a4-b5c6d7e8f901/volumes") ==
        "/var/lib/kubelet/pods/pod-2/volumes");
  CHECK(f.words("torch.nn.functional and train.py") == "torch.nn.functional and train.py");
}

TEST_CASE("the map is a new file of its owner") {
  const testing::TemporaryDirectory directory;
  Fixture f;
  f.text.host("node-a");
  f.path("/home/alice/x");
  const std::string path = directory / "map.json";
  REQUIRE(write_map(path, f.names));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str().find("\"host-1\": \"node-a\"") != std::string::npos);
  CHECK(text.str().find("\"user-1\": \"alice\"") != std::string::npos);
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  const auto again = write_map(path, f.names);
  REQUIRE_FALSE(again);
  CHECK(again.error().message() == path + ": cannot be written: File exists");
  CHECK(again.error().hint == "remove it first, or name another file");
}
