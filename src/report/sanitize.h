// Texts of a target for terminals, by the name that this directory and those above it use (base/sanitize.h).
#pragma once

#include "base/sanitize.h"

namespace rankstacks::report {

using base::columns_of;
using base::cut_end;
using base::cut_start;
using base::escape_in_json;
using base::in_quotes;
using base::sanitize;

}  // namespace rankstacks::report
