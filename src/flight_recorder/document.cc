#include "flight_recorder/document.h"

namespace rankstacks::flight_recorder {

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::kNone: return "nothing";
    case Kind::kBoolean: return "true or false";
    case Kind::kInteger: return "a whole number";
    case Kind::kReal: return "a number";
    case Kind::kText: return "a string";
    case Kind::kList: return "a list";
    case Kind::kDict: return "a dict";
  }
  return "";
}

const Value* Document::find(const Value& dict, std::string_view key) const {
  if (dict.kind != Kind::kDict) return nullptr;
  for (std::size_t i = dict.items.size(); i >= 2; i -= 2) {
    const Value& name = values[dict.items[i - 2]];
    if (name.kind == Kind::kText && name.text == key) return &values[dict.items[i - 1]];
  }
  return nullptr;
}

}  // namespace rankstacks::flight_recorder
