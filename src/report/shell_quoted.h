// Words of commands that are displayed for copying (base/shell_quoted.h).
#pragma once

#include "base/shell_quoted.h"

namespace rankstacks::report {

using base::shell_quoted;

}  // namespace rankstacks::report
