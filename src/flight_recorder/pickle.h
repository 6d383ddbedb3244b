// Reads pickles of plain data: None, bools, ints of 64 bits, floats, strings, bytes, lists, tuples and dicts. torch
// writes protocol 2 (torch/csrc/jit/serialization/pickler.cpp), Python's pickle module protocols 2 to 5 of the same
// data.
//
// Nothing is run or imported: an instruction that names a class or calls something (GLOBAL, REDUCE, BUILD, ...) is
// refused, and so is every other one that plain data does not need.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "flight_recorder/document.h"

namespace rankstacks::flight_recorder {

bool looks_like_pickle(std::string_view bytes);

// Errors: kMalformed, with the offset of the instruction; kUnsupported: an instruction that is refused; kLimit.
Result<Document> read_pickle(std::string_view bytes, const std::string& subject);

}  // namespace rankstacks::flight_recorder
