// A JSON document in few bytes, which are read in a fraction of the time that its text takes: the form in which nodes
// send their reports (docs/clusters.md, "What travels"). Version 1:
//
//     "rankstacks-values 1\n"
//     N, then N times: a string                           member names and values of strings, each once
//     N, then N times: M, then M times: name, scalar      objects without objects or arrays in them, each once
//     a value                                             the document
//
//     numbers (N, M, lengths and indices): LEB128, 7 bits a byte, the lowest first
//     string: its length, its bytes; name: the index of a string
//     value: a byte, and what belongs to it:
//       0 null, 1 false, 2 true, 3 a number from 0 on, 4 a number below 0 (as -1 - n), 5 a double (8 bytes, little-
//       endian), 6 the index of a string (these are the scalars), 7 an array: N, N values, 8 an object: N, N times name
//       and value, 9 the index of an object of the table
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "report/json_document.h"

namespace rankstacks::report {

std::string compact_form(const JsonDocument& document);
// A JSON text in that form; one that JsonDocument::read refuses stays as it is.
std::string as_compact_form(std::string text, int depth);

// The bytes are untrusted. Errors as those of JsonDocument::read; kLimit also for a document that would have more than
// kMaxReportBytes as a text.
Result<JsonDocument> read_compact_form(std::string_view bytes, int depth, const std::string& subject);
Result<JsonDocument> read_text_or_compact_form(std::string_view bytes, int depth, const std::string& subject);

}  // namespace rankstacks::report
