#include "known/rules.h"

namespace rankstacks::known {
namespace {

using M = FileMatch;

// clang-format off
constexpr FileRule kRules[] = {
    {M::kContains, "/site-packages/", true, "pip, conda, venv"},
    {M::kContains, "/dist-packages/", true, "debian's and ubuntu's packages"},
};
// clang-format on

}  // namespace

std::span<const FileRule> built_in_files() { return kRules; }

}  // namespace rankstacks::known
