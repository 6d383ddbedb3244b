// Reads what other readers of a core need of the interpreter and this tool does not, so that it is recorded
// (target/target.h). pystack (1.7) takes a structure for an interpreter's state only where its dicts of sys.modules,
// sys and builtins are dicts; from 3.13 on it copies that structure and those of the threads whole; and it gives up a
// frame at the first variable whose name it cannot read, and copies the structure of a str whole for that.
#pragma once

#include "python/objects.h"
#include "python/running.h"

namespace rankstacks::python {

void read_for_other_readers(const target::Target& target, const Runtime& runtime, CodeReader& codes);

}  // namespace rankstacks::python
