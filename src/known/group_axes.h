// Where frameworks keep the process groups of the axes along which they divide a job's work: in which of them a rank
// has which place.
#pragma once

#include <span>
#include <string_view>

namespace rankstacks::known {

// A process group that `path`, a global of the module and attributes of it, leads to.
struct GroupAxisRule {
  std::string_view module;  // as in sys.modules
  std::string_view path;    // "_TP.device_group"
  std::string_view axis;    // as in Coordinates: "tp"
  std::string_view framework;
  std::string_view source;
};

// The rules of a framework are next to each other.
std::span<const GroupAxisRule> group_axes();

// A process group whose description says which dimension of a DeviceMesh it is: "mesh_" and the dimension's name.
struct MeshDimensionRule {
  std::string_view name;
  std::string_view axis;
  std::string_view source;
};

std::span<const MeshDimensionRule> mesh_dimensions();
inline constexpr std::string_view kMeshDescription = "mesh_";  // torch/distributed/device_mesh.py, 2.4 on
inline constexpr std::string_view kDeviceMesh = "DeviceMesh";

// Names of the values that python/rank_values reads, as capture/parallel_layout knows them: the framework, and for each
// axis, with its name at the end, "1/4": place and size.
inline constexpr std::string_view kLayoutFramework = "torch:layout", kLayoutAxis = "torch:axis:";

}  // namespace rankstacks::known
