// Formats one frame as text. All returned texts are sanitized.
#pragma once

#include <cstddef>
#include <string>

#include "model/snapshot.h"

namespace rankstacks::report {

// "Trainer.train", "c10d::Reducer::finalize_backward()"; without a symbol "libfoo.so+0x1234", outside of any module
// "0x7f12...".
std::string frame_name(const Frame& frame);
// For a line that holds a whole stack: "Reducer::finalize_backward".
std::string brief_frame_name(const Frame& frame);
// The name with the whole signature.
std::string full_frame_name(const Frame& frame);

// Python: "…/torch/_tensor.py:623", the user's files with their whole path. Native: "reducer.cpp:1040" if it is known,
// else the module's base name.
std::string frame_place(const Frame& frame);
// The source file with its whole path, or the module and offset.
std::string full_frame_place(const Frame& frame);

// Shortens a place to at most `width` columns: whole directories are cut from the front, the file and line stay.
std::string fit_place(const std::string& place, std::size_t width);

}  // namespace rankstacks::report
