// Decides, by names alone, which variables of which frames show the progress of a program.
#pragma once

#include <string_view>

namespace rankstacks::python {

// Whether this is the user's own code: not below site-packages or dist-packages, not the standard library, not <frozen
// ...>. Code run by -c and exec() counts as the user's.
bool is_user_file(std::string_view file);

// PyTorch's torch/distributed/distributed_c10d.py, wherever it is installed.
bool is_c10d_file(std::string_view file);

// Arguments of c10d's functions that are ranks or tags: src, dst, group_src, group_dst, tag.
bool is_c10d_number(std::string_view name);

}  // namespace rankstacks::python
