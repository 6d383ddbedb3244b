#include "analyzers/operation.h"

#include <algorithm>

#include <array>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"

namespace rankstacks::analyzers {
namespace {

// "all_reduce", "ncclAllReduce", "MPI_Allreduce" -> letters only, in lower case
std::string letters(std::string_view text) {
  std::string out;
  for (const unsigned char c : text)
    if (std::isalpha(c)) out += static_cast<char>(std::tolower(c));
  return out;
}

// The first entry that the name contains wins: "reducescatter" is before "reduce" and "scatter".
constexpr std::array<std::pair<std::string_view, known::Collective>, 11> kCalls{{
    {"allreduce", known::Collective::kAllReduce},
    {"allgather", known::Collective::kAllGather},
    {"alltoall", known::Collective::kAllToAll},
    {"reducescatter", known::Collective::kReduceScatter},
    {"barrier", known::Collective::kBarrier},
    {"broadcast", known::Collective::kBroadcast},
    {"bcast", known::Collective::kBroadcast},
    {"gather", known::Collective::kGather},
    {"scatter", known::Collective::kScatter},
    {"sendrecv", known::Collective::kSendRecv},
    {"reduce", known::Collective::kReduce},
}};

}  // namespace

known::Collective collective_of_call(std::string_view function) {
  const std::string name = letters(function);
  for (const auto& [part, collective] : kCalls)
    if (contains(name, part)) return collective;
  return known::Collective::kUnknown;
}

bool is_named_as_collective(std::string_view function) {
  std::string_view name = function.substr(0, function.find('('));
  if (const std::size_t scope = name.find_last_of(":."); scope != std::string_view::npos) name.remove_prefix(scope + 1);
  const std::string called = letters(name);
  return std::any_of(kCalls.begin(), kCalls.end(), [&](const auto& call) {
    return called == call.first && call.second != known::Collective::kGather &&
           call.second != known::Collective::kScatter && call.second != known::Collective::kReduce;
  });
}

std::string Operation::key() const {
  return fmt::format("{}|{}|{}", static_cast<int>(kind), static_cast<int>(collective), call);
}

bool same_call(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.collective == b.collective && a.sends == b.sends && a.receives == b.receives &&
         a.call == b.call;
}

Operation operation_of_kind(known::OperationKind kind, std::string name) {
  Operation operation;
  operation.kind = kind;
  operation.name = std::move(name);
  return operation;
}

Operation operation_of_call(known::OperationKind kind, std::string function, std::string name) {
  Operation operation = operation_of_kind(kind, std::move(name));
  operation.call = std::move(function);
  if (operation.name.empty()) operation.name = operation.call;
  if (kind == known::OperationKind::kCollective) operation.collective = collective_of_call(operation.call);
  if (kind == known::OperationKind::kMessage) {
    const std::string called = letters(operation.call);
    operation.sends = contains(called, "send");
    operation.receives = contains(called, "recv") || contains(called, "probe");  // MPI_Probe, MPI_Mprobe
  }
  return operation;
}

}  // namespace rankstacks::analyzers
