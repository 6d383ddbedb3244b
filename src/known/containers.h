// By what a process in a container is recognised: the names of its control groups, a file in its root, a variable.
#pragma once

#include <span>
#include <string_view>

namespace rankstacks::known {

enum class ContainerSign { kControlGroup, kFile, kVariable };

struct ContainerRule {
  ContainerSign sign;
  std::string_view text;  // a part of the control group's path; the file; the variable's name
  std::string_view container;
  std::string_view source;
};

// The first that holds decides.
std::span<const ContainerRule> container_rules();

}  // namespace rankstacks::known
