// A JSON document written by a person. Each value knows its line, so that an error message can name it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace rankstacks::report {

struct LinedJson {
  enum class Kind { kNull, kBoolean, kNumber, kString, kArray, kObject } kind = Kind::kNull;
  std::size_t line = 0;  // of its first character, from 1
  bool boolean = false;
  double number = 0;  // finite
  std::string text;
  std::vector<LinedJson> items;  // an array's elements; an object's values
  std::vector<std::string>
      names;  // an object's keys, in the order of the text, each once: names[i] belongs to items[i]
};

// Errors: kMalformed, with the line, the text found and the text expected there; kLimit, if it is nested deeper than
// `depth`, or has more values than `values`, or more than 64 names in one object.
Result<LinedJson> read_lined_json(std::string_view text, const std::string& subject, int depth, std::size_t values);

}  // namespace rankstacks::report
