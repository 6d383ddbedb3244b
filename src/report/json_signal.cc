#include "report/json_signal.h"

#include "analyzers/deaths.h"
#include "report/json_words.h"

namespace rankstacks::report {
namespace {

constexpr std::size_t kMaxRegisters = 16;

void write_instruction(JsonText& json, const FaultInstruction& instruction) {
  json.key("instruction");
  json.open('{');
  json.field("text", instruction.text.empty() ? std::nullopt : std::optional(instruction.text));
  json.field("bytes", instruction.bytes);
  json.key("registers");
  json.open('[');
  for (const auto& [name, value] : instruction.registers) {
    json.open('{');
    json.field("name", name);
    json.key("value"), json.hex(value);
    json.close();
  }
  json.close();
  json.close();
}

void write_place(JsonText& json, const FaultPlace& place) {
  json.key("place");
  json.open('{');
  json.field("region", std::string(word_of(kFaultRegionWords, place.region)));
  json.key("executed"), json.boolean(place.executed);
  for (const auto& [name, mapping] :
       {std::pair{"mapping", &place.mapping}, {"below", &place.below}, {"above", &place.above}}) {
    if (!*mapping) continue;
    json.key(name);
    json.open('{');
    json.field("name", (*mapping)->name.empty() ? std::nullopt : std::optional((*mapping)->name));
    json.field("permissions", (*mapping)->permissions);
    json.key("distance"), json.hex((*mapping)->distance);
    json.close();
  }
  json.close();
}

FaultMapping read_fault_mapping(const Node& node) {
  node.require_object();
  FaultMapping mapping;
  node.optional("name", [&](const Node& n) { mapping.name = n.text(); });
  node.required("permissions", [&](const Node& n) { mapping.permissions = n.text(); });
  node.required("distance", [&](const Node& n) { mapping.distance = n.hex(); });
  return mapping;
}

FaultPlace read_fault_place(const Node& node) {
  node.require_object();
  FaultPlace place;
  node.required("region", [&](const Node& n) { place.region = n.word(kFaultRegionWords); });
  node.optional("executed", [&](const Node& n) { place.executed = n.boolean(); });
  node.optional("mapping", [&](const Node& n) { place.mapping = read_fault_mapping(n); });
  node.optional("below", [&](const Node& n) { place.below = read_fault_mapping(n); });
  node.optional("above", [&](const Node& n) { place.above = read_fault_mapping(n); });
  return place;
}

FaultInstruction read_instruction(const Node& node) {
  node.require_object();
  FaultInstruction instruction;
  node.optional("text", [&](const Node& n) { instruction.text = n.text(); });
  node.required("bytes", [&](const Node& n) { instruction.bytes = n.text(); });
  node.optional("registers", [&](const Node& registers) {
    registers.each(kMaxRegisters, [&](const Node& n) {
      n.require_object();
      auto& one = instruction.registers.emplace_back();  // clang 14 captures no structured binding
      n.required("name", [&](const Node& v) { one.first = v.text(); });
      n.required("value", [&](const Node& v) { one.second = v.hex(); });
    });
  });
  return instruction;
}

}  // namespace

void write_signal(JsonText& json, const SignalInfo& signal) {
  json.open('{');
  json.key("number"), json.number(signal.number);
  json.field("name", signal.name);
  json.key("tid"), json.number(signal.tid);
  json.field("code", signal.code);
  json.key("fault_address");
  signal.fault_address ? json.hex(*signal.fault_address) : json.null();
  if (signal.place) write_place(json, *signal.place);
  if (signal.instruction) write_instruction(json, *signal.instruction);
  if (signal.sender) json.key("sender"), json.number(*signal.sender);
  if (signal.sender_uid) json.key("sender_uid"), json.number(*signal.sender_uid);
  if (analyzers::is_reraised(signal)) json.key("reraised"), json.boolean(true);
  json.close();
}

SignalInfo read_signal(const Node& node) {
  node.require_object();
  SignalInfo signal;
  node.required("number", [&](const Node& n) { signal.number = n.int32(0); });
  node.optional("name", [&](const Node& n) { signal.name = n.text(); });
  node.optional("tid", [&](const Node& n) { signal.tid = n.int32(0); });
  node.optional("code", [&](const Node& n) { signal.code = n.int32(); });
  node.optional("fault_address", [&](const Node& n) { signal.fault_address = n.hex(); });
  node.optional("place", [&](const Node& n) { signal.place = read_fault_place(n); });
  node.optional("instruction", [&](const Node& n) { signal.instruction = read_instruction(n); });
  node.optional("sender", [&](const Node& n) { signal.sender = n.int32(0); });
  node.optional("sender_uid",
                [&](const Node& n) { signal.sender_uid = static_cast<std::uint32_t>(n.integer(0, UINT32_MAX)); });
  return signal;
}

void write_faulthandler(JsonText& json, const Faulthandler& faulthandler) {
  json.key("faulthandler");
  json.open('{');
  for (const auto& [name, signals] : {std::pair{"signals", &faulthandler.signals}, {"called", &faulthandler.called}}) {
    json.key(name);
    json.open('[');
    for (const std::string& signal : *signals) json.string(signal);
    json.close();
  }
  json.field("descriptor", faulthandler.descriptor);
  json.close();
}

Faulthandler read_faulthandler(const Node& node) {
  constexpr std::size_t kMaxSignals = 64;
  node.require_object();
  Faulthandler faulthandler;
  node.required("signals", [&](const Node& signals) {
    signals.each(kMaxSignals, [&](const Node& n) { faulthandler.signals.push_back(n.text()); });
  });
  node.required("called", [&](const Node& signals) {
    signals.each(kMaxSignals, [&](const Node& n) { faulthandler.called.push_back(n.text()); });
  });
  node.optional("descriptor", [&](const Node& n) { faulthandler.descriptor = n.int32(0); });
  return faulthandler;
}

}  // namespace rankstacks::report
