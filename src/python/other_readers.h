// Reads what other readers of a core need of the interpreter and this tool does not, so that it is recorded
// (target/target.h). pystack (1.7) takes a structure for an interpreter's state only where its dicts of sys.modules,
// sys and builtins are dicts, and from 3.13 on it copies that structure whole. It copies whole the structures of
// threads, frames, code objects, their str objects and line tables, too, and gives up a frame at the first of these, or
// of its variables' names, that it cannot read.
#pragma once

#include <span>

#include "python/objects.h"
#include "python/python.h"
#include "python/running.h"

namespace rankstacks::python {

void read_for_other_readers(const target::Target& target, const Runtime& runtime, CodeReader& codes,
                            std::span<const ThreadState> threads);

}  // namespace rankstacks::python
