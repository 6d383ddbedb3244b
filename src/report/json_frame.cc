#include "report/json_frame.h"

#include "report/json_text.h"
#include "report/json_words.h"

namespace rankstacks::report {

std::string json_of_frame(const Frame& frame) {
  JsonText json(256);
  json.open('{');
  json.field("kind", std::string(word_of(kFrameKindWords, frame.kind)));
  json.field("function", frame.function);
  if (frame.kind == FrameKind::kPython) {
    json.field("qualname", frame.qualname);
    json.field("file", frame.file);
    json.field("line", frame.line);
  } else {
    json.key("module");
    frame.module.empty() ? json.null() : json.string(frame.module);
    json.field("file", frame.file);
    json.field("line", frame.line);
    json.key("address"), json.hex(frame.address);
    json.key("offset");
    frame.offset ? json.hex(*frame.offset) : json.null();
    json.key("inlined"), json.boolean(frame.inlined);
  }
  if (frame.origin != FrameOrigin::kNormal) json.field("origin", std::string(word_of(kFrameOriginWords, frame.origin)));
  json.close();
  return json.take();
}

}  // namespace rankstacks::report
