#include "known/rules.h"

namespace rankstacks::known {
namespace {

using M = FileMatch;

// clang-format off
constexpr FileRule kRules[] = {
    {M::kSuffix, "<dynamic-code>", false, "cloudpickle cloudpickle.py, 3.1-: functions sent to a worker, which are those of the main program"},
    {M::kContains, "/site-packages/", true, "pip, conda, venv"},
    {M::kContains, "/dist-packages/", true, "debian's and ubuntu's packages"},
    {M::kContains, "/include/c++/", true, "libstdc++ and libc++: headers, whose functions are part of the program that uses them"},
    {M::kContains, "-linux-gnu/c++/", true, "libstdc++ in debian's multiarch directories: gthr-default.h"},
};
// clang-format on

}  // namespace

std::span<const FileRule> built_in_files() { return kRules; }

}  // namespace rankstacks::known
