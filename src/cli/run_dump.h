// `rankstacks dump`: one process in py-spy's form, with the verdict on all ranks of its job on this machine.
#pragma once

#include <iosfwd>

#include "cli/options.h"

namespace rankstacks::cli {

// The exit status is that of the process which was asked for, and of its children with --subprocesses: a program that
// wants py-spy's answer gets it although another rank could not be read. The problems of all ranks are on `err`.
int run_dump(const Options& options, std::ostream& out, std::ostream& err);

}  // namespace rankstacks::cli
