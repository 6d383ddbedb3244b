// The examination for programs: docs/json.md, "The doctor's findings".
#include "doctor/doctor.h"
#include "report/json_text.h"

namespace rankstacks::doctor {
namespace {

const char* word_of(Severity severity) {
  return severity == Severity::kOk ? "ok" : severity == Severity::kNote ? "note" : "problem";
}

const char* word_of(Area area) {
  switch (area) {
    case Area::kAttach: return "attach";
    case Area::kCores: return "cores";
    case Area::kNames: return "names";
    case Area::kGpu: return "gpu";
  }
  return "";
}

std::string with_pid(std::string mend, const std::optional<Pid>& pid) {
  const std::size_t at = mend.find(kPid);
  if (at != std::string::npos && pid) mend.replace(at, kPid.size(), std::to_string(*pid));
  return mend;
}

void write_finding(report::JsonText& json, const Section& section, const Finding& f) {
  json.open('{');
  json.field("subject", section.path ? "core" : section.pid ? "process" : "machine");
  json.field("pid", section.pid);
  json.field("path", section.path);
  json.key("name");
  if (section.name.empty()) json.null();
  else json.string(section.name);
  json.field("check", f.check);
  json.field("area", word_of(f.area));
  json.field("status", word_of(f.severity));
  json.field("found", f.found);
  json.key("mends");
  json.open('[');
  for (const std::string& mend : f.mends) json.string(with_pid(mend, section.pid));
  json.close();
  json.close();
}

}  // namespace

std::string json_of(const Examination& examination) {
  report::JsonText json(4096);
  json.open_document(RANKSTACKS_VERSION);
  json.key("ok"), json.boolean(examination.exit_status() == 0);
  json.key("findings");
  json.open('[', true);
  for (const Section& section : examination.sections)
    for (const Finding& finding : section.findings) write_finding(json, section, finding);
  json.close();
  json.close();
  return json.take() + "\n";
}

}  // namespace rankstacks::doctor
