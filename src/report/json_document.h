// The values of a JSON text, as compact as a report of thousands of ranks needs them.
//
//     text --nlohmann's SAX events--> values in one arena, each object and array a run of its members
//
// Most of a report's bytes are frames, and most of its frames are repeated. An object that has no objects or arrays in
// it and equals an earlier one is not kept twice: both are the same JsonValue::object, by which a reader can see that
// it has read one already.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "report/json_names.h"

namespace rankstacks::report {

// How deep a report may be nested; the documented fields (docs/json.md) have a depth of 7.
inline constexpr int kMaxReportDepth = 32;

struct JsonObject;

struct JsonValue {
  // kNegative: a whole number below 0; kNatural: one from 0 on; kReal: any other number.
  enum class Kind : std::uint8_t { kNull, kBoolean, kNegative, kNatural, kReal, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  std::uint32_t size = 0;  // bytes of a string, elements of an array, members of an object
  union {
    std::uint64_t bits = 0;  // of a boolean (0 or 1) or number
    const char* text;
    const JsonValue* elements;
    const JsonObject* object;
  };

  std::uint64_t natural() const { return bits; }
  std::int64_t negative() const { return static_cast<std::int64_t>(bits); }
  double real() const { return std::bit_cast<double>(bits); }
  std::string_view string() const { return {text, size}; }
  // Of an object; nullptr: there is none. The last one, if the text has several of that name.
  inline const JsonValue* find(const JsonKey& key) const;
};

// In the text's order; of several members of one name the last.
struct JsonObject {
  const JsonNames* names;
  const JsonValue* values;
};

const JsonValue* JsonValue::find(const JsonKey& key) const {
  const std::size_t at = object->names->find(key);
  return at != JsonNames::kNone ? object->values + at : nullptr;
}

class JsonDocument {
 public:
  // kMalformed: not JSON, nested deeper than `depth`, or with a number that does not fit into a double; `what` says
  // where. kLimit: a string or a container of more than 2^32 - 1 bytes or members.
  static Result<JsonDocument> read(std::string_view text, int depth, const std::string& subject);

  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  const JsonValue& root() const { return root_; }

 private:
  friend class JsonBuilder;
  friend class CompactReader;
  struct Storage;
  JsonDocument();

  std::unique_ptr<Storage> storage_;  // has all that the values point to
  JsonValue root_;
};

}  // namespace rankstacks::report
