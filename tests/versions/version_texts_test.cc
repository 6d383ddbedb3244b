#include "versions/version_texts.h"

#include <catch2/catch.hpp>

using namespace rankstacks::versions;
using namespace std::string_literals;

TEST_CASE("a version begins with a digit and ends with a letter or a digit") {
  CHECK(version_at("2.28.9+cuda13.0\0more"s) == "2.28.9+cuda13.0");
  CHECK(version_at("1.13.0a0+gitunknown\n") == "1.13.0a0+gitunknown");
  CHECK(version_at("2.36.\n") == "2.36");
  CHECK(version_at("v2.36").empty());
  CHECK(version_at("").empty());
  CHECK(version_at("1" + std::string(1000, '2')).size() == kLongestVersion);
  CHECK(version_at("1.2\x1b[31m") == "1.2");
}

TEST_CASE("the numbers in a file's name") {
  CHECK(version_of_file_name("libnccl.so.2.28.7", false) == "2.28.7");
  CHECK(version_of_file_name("libcuda.so.580.95.05", false) == "580.95.05");
  CHECK(version_of_file_name("libcudart-a7b20f20.so.11.0", false) == "11.0");
  CHECK(version_of_file_name("libcudart.so.13", true) == "13");
  CHECK(version_of_file_name("libnccl.so.2", false).empty());
  CHECK(version_of_file_name("libnccl.so", true).empty());
  CHECK(version_of_file_name("libnccl.so.2.28.7.bak", false).empty());
  CHECK(version_of_file_name("libx.so.1..2", false).empty());
  CHECK(version_of_file_name("libx.so." + std::string(500, '1'), true).empty());
}

TEST_CASE("which package a metadata directory and a file belong to") {
  CHECK(package_of_metadata_name("nvidia_nccl_cu12-2.28.9.dist-info") == "nvidia_nccl_cu12");
  CHECK(package_of_metadata_name("Torch-1.13.0a0+gitunknown.egg-info") == "torch");
  CHECK(package_of_metadata_name("torch").empty());
  CHECK(package_of_metadata_name(".dist-info").empty());
  CHECK(is_package("nvidia_nccl_cu12", "nvidia_nccl_cu"));
  CHECK(is_package("nvidia_cuda_runtime", "nvidia_cuda_runtime"));
  CHECK(is_package("nvidia_cuda_runtime_cu12", "nvidia_cuda_runtime"));
  CHECK(is_package("torch", "torch"));
  CHECK_FALSE(is_package("torchvision", "torch"));
  CHECK_FALSE(is_package("torch_cuda", "torch"));
  CHECK_FALSE(is_package("nvidia_nccl_cuda", "nvidia_nccl_cu"));
  CHECK_FALSE(is_package("anything", ""));
  CHECK(site_directory("/v/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2") ==
        "/v/lib/python3.11/site-packages");
  CHECK(site_directory("/usr/lib/python3/dist-packages/torch/_C.so") == "/usr/lib/python3/dist-packages");
  CHECK(site_directory("/usr/lib/libc.so.6").empty());
}

TEST_CASE("the version in METADATA is a header, not a line of the description") {
  CHECK(version_of_metadata("Metadata-Version: 2.1\nName: torch\nVersion: 2.3.0\n\nVersion: 9\n") == "2.3.0");
  CHECK(version_of_metadata("Name: torch\r\nVersion:   2.3.0  \r\n") == "2.3.0");
  CHECK(version_of_metadata("Name: torch\n\nVersion: 9\n").empty());
  CHECK(version_of_metadata("Version: \x1b[31mred\n").empty());
  CHECK(version_of_metadata("Version:").empty());
  CHECK(version_of_metadata("\0\0\0Version: 1"s).empty());
  CHECK(version_of_metadata("").empty());
}

TEST_CASE("assignments in torch/version.py") {
  const std::string text =
      "from typing import Optional\n__all__ = ['__version__']\n__version__ = '2.3.0+cu121'\ndebug = False\n"
      "cuda: Optional[str] = '12.1'\nhip: Optional[str] = None\n";
  CHECK(assigned_text(text, "__version__") == "2.3.0+cu121");
  CHECK(assigned_text(text, "cuda") == "12.1");
  CHECK(assigned_text(text, "hip").empty());
  CHECK(assigned_text("cuda_home = '9'\ncuda = None\n", "cuda").empty());
  CHECK(assigned_text("cuda = '12.1", "cuda").empty());
  CHECK(assigned_text("cuda = __import__('os').system('x')", "cuda").empty());
}

TEST_CASE("the distribution in os-release") {
  CHECK(
      distribution_of("NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"") ==
      "Debian GNU/Linux 12 (bookworm)");
  CHECK(distribution_of("NAME='Rocky Linux'\nVERSION_ID=9.4\n") == "Rocky Linux 9.4");
  CHECK(distribution_of("NAME=Arch") == "Arch");
  CHECK(distribution_of("# nothing\n===\nPRETTY_NAME\n").empty());
  CHECK(distribution_of("PRETTY_NAME=\"" + std::string(100'000, 'x') + "\"").size() == 200);
  CHECK(distribution_of("").empty());
}

TEST_CASE("versions in a library's read-only data") {
  const std::string nccl = "x\0NCCL version \0NCCL version mismatch\0NCCL version 2.28.9+cuda13.0\0y"s;
  CHECK(version_after(nccl, "NCCL version ") == "2.28.9+cuda13.0");
  CHECK(version_after("NCCL version ", "NCCL version ").empty());
  CHECK(glibc_version("GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\n",
                      "GNU C Library (") == "2.36-9+deb12u14");
  CHECK(glibc_version("GNU C Library (GNU libc) stable release version 2.28.\n", "GNU C Library (") == "2.28");
  CHECK(glibc_version("GNU C Library (Ubuntu GLIBC 2.39-0ubuntu8.6) stable release version 2.39.\n",
                      "GNU C Library (") == "2.39-0ubuntu8.6");
  CHECK(glibc_version("GNU C Library (no end", "GNU C Library (").empty());
  CHECK(version_alone("a\0\0127.0.0.1\0001.17.0\0b"s, "") == "1.17.0");
  CHECK(version_alone("a\0v4.1.4\0004.1.4\0b"s, "v") == "4.1.4");
  CHECK(version_alone("a\0001.17.0\0001.18.0\0"s, "").empty());
  CHECK(version_alone("", "").empty());
}

TEST_CASE("the version of NVIDIA's kernel module") {
  CHECK(driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n"
                       "GCC version:  gcc version 12.2.0\n") == "580.95.05");
  CHECK(driver_version("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n") ==
        "570.124.06");
  CHECK(driver_version("GCC version: gcc 12.2.0").empty());
  CHECK(driver_version("").empty());
}
