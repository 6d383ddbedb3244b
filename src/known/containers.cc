#include "known/containers.h"

namespace rankstacks::known {
namespace {

using S = ContainerSign;

// clang-format off
constexpr ContainerRule kRules[] = {
    {S::kVariable, "KUBERNETES_SERVICE_HOST", "kubernetes", "kubernetes pkg/kubelet/envvars"},
    {S::kControlGroup, "kubepods", "kubernetes", "kubernetes pkg/kubelet/cm"},
    {S::kFile, "/.singularity.d", "apptainer", "apptainer, in every image's root"},
    {S::kControlGroup, "/libpod-", "podman", "podman libpod"},
    {S::kFile, "/run/.containerenv", "podman", "podman libpod/container_internal_common.go"},
    {S::kControlGroup, "/docker", "docker", "moby daemon/oci_linux.go: docker-ID.scope, /docker/ID"},
    {S::kFile, "/.dockerenv", "docker", "moby"},
    {S::kControlGroup, "/lxc", "lxc", "lxc src/lxc/cgroups"},
    {S::kControlGroup, "/machine.slice/", "systemd-nspawn", "systemd-machined"},
};
// clang-format on

}  // namespace

std::span<const ContainerRule> container_rules() { return kRules; }

}  // namespace rankstacks::known
