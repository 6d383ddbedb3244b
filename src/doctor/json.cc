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

const char* word_of(CoreOutlook::Fate fate) {
  switch (fate) {
    case CoreOutlook::Fate::kUnknown: return "unknown";
    case CoreOutlook::Fate::kWhole: return "whole";
    case CoreOutlook::Fate::kCut: return "cut";
    case CoreOutlook::Fate::kDropped: return "dropped";
    case CoreOutlook::Fate::kSmall: return "small";
  }
  return "";
}

void write_core(report::JsonText& json, const std::optional<CoreOutlook>& core) {
  json.key("core");
  if (!core) return json.null();
  const auto text = [&](const char* name, const std::string& value) {
    json.key(name);
    if (value.empty()) json.null();
    else json.string(value);
  };
  json.open('{');
  json.field("bytes", std::optional(core->bytes));
  json.field("data_bytes", std::optional(core->data));
  json.field("shared_bytes", std::optional(core->shared));
  json.field("fate", word_of(core->fate));
  text("limit", core->limit);
  json.field("limit_bytes", core->limit_bytes);
  text("directory", core->directory);
  json.field("free_bytes", core->free_bytes);
  json.close();
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
  write_core(json, f.core);
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
