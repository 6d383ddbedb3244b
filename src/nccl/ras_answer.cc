#include "nccl/ras_answer.h"

#include <climits>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace rankstacks::nccl {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 16;                  // NCCL's own is 6
constexpr std::size_t kMaxValues = 4'000'000;  // a member has 17; bounds the tree in memory to some hundred MB
constexpr std::size_t kMaxOperations = 64;     // NCCL has 5 to 8
constexpr std::size_t kMaxName = 256;

// Checks form and bounds before a tree is built.
class Check : public nlohmann::json_sax<Json> {
 public:
  std::string error;
  bool malformed = false;

  bool null() override { return one(); }
  bool boolean(bool) override { return one(); }
  bool number_integer(number_integer_t) override { return one(); }
  bool number_unsigned(number_unsigned_t) override { return one(); }
  bool number_float(number_float_t, const string_t&) override { return one(); }
  bool string(string_t&) override { return one(); }
  bool binary(binary_t&) override { return one(); }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return deeper(); }
  bool start_array(std::size_t) override { return deeper(); }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    malformed = true;
    error = fmt::format("its answer is no JSON from character {} on", position);
    return false;
  }

 private:
  bool one() {
    if (++values_ <= kMaxValues) return true;
    error = fmt::format("its answer has more than {} values", kMaxValues);
    return false;
  }
  bool deeper() {
    if (++depth_ > kMaxDepth) {
      error = fmt::format("its answer is nested deeper than {} levels", kMaxDepth);
      return false;
    }
    return one();
  }
  int depth_ = 0;
  std::size_t values_ = 0;
};

// NCCL 2.28 leaves out the comma between "nvml_dev" and "status" of a missing rank. A string that follows a value
// without a comma is a key: commas are inserted there, and never inside of strings.
std::string with_missing_commas(std::string_view text) {
  std::string mended;
  mended.reserve(text.size() + 64);
  bool in_string = false, escaped = false;
  char last = 0;  // the last character that is not white space
  for (const char c : text) {
    if (in_string) {
      if (!escaped && c == '"') in_string = false;
      escaped = !escaped && c == '\\';
    } else if (c == '"') {
      const bool after_value =
          last == '"' || last == '}' || last == ']' || (last >= '0' && last <= '9') || (last >= 'a' && last <= 'z');
      if (after_value) mended += ',';
      in_string = true;
    }
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') last = c;
    mended += c;
  }
  return mended;
}

const Json* member_of(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string text_of(const Json& object, const char* name) {
  const Json* value = member_of(object, name);
  return value != nullptr && value->is_string() ? value->get_ref<const std::string&>().substr(0, kMaxName)
                                                : std::string();
}

bool flag_of(const Json& object, const char* name) {
  const Json* value = member_of(object, name);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::optional<std::int64_t> number_in(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return number <= static_cast<std::uint64_t>(INT64_MAX) ? std::optional(static_cast<std::int64_t>(number))
                                                           : std::nullopt;
  }
  return value.is_number_integer() ? std::optional(value.get<std::int64_t>()) : std::nullopt;
}

std::optional<int> int_of(const Json& object, const char* name) {
  const Json* value = member_of(object, name);
  const auto number = value != nullptr ? number_in(*value) : std::nullopt;
  return number && *number >= INT_MIN && *number <= INT_MAX ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

// std::nullopt if it has no rank or no pid.
std::optional<NcclMember> read_member(const Json& object) {
  const auto rank = int_of(object, "rank"), pid = int_of(object, "pid");
  if (!rank || *rank < 0 || !pid) return std::nullopt;
  NcclMember member;
  member.rank = *rank;
  member.pid = std::max(*pid, 0);  // -1: RAS does not know it
  member.host = text_of(object, "host");
  if (const Json* status = member_of(object, "status")) {
    member.unresponsive = flag_of(*status, "unresponsive");
    member.dead = flag_of(*status, "considered_dead");
    member.aborted = flag_of(*status, "abort_flag");
    member.finalized = flag_of(*status, "finalize_called") || flag_of(*status, "destroy_flag");
    member.async_error = int_of(*status, "async_error").value_or(0);
  }
  if (const Json* counts = member_of(object, "collective_counts"); counts != nullptr && counts->is_object()) {
    for (const auto& [name, value] : counts->items()) {
      const auto count = number_in(value);
      if (count && *count >= 0 && name.size() <= kMaxName && member.launched.size() < kMaxOperations)
        member.launched.emplace_back(name, *count);
    }
  }
  return member;
}

// Returns what is wrong, or "".
std::string read_members(const Json& communicator, const char* name, std::vector<NcclMember>& members) {
  const Json* list = member_of(communicator, name);
  if (list == nullptr || !list->is_array()) return "";
  for (const Json& object : *list) {
    auto member = read_member(object);
    if (!member) return fmt::format("{}[{}] has no rank or no pid", name, members.size());
    members.push_back(std::move(*member));
  }
  return "";
}

// Returns what is wrong, or "".
std::string read_status(const Json& document, NcclStatus& status) {
  const Json* communicators = member_of(document, "communicators");
  if (communicators == nullptr || !communicators->is_array()) return "its answer has no communicators";
  status.version = text_of(document, "nccl_version");
  for (const Json& object : *communicators) {
    const std::size_t index = status.communicators.size();
    NcclCommunicator& communicator = status.communicators.emplace_back();
    communicator.hash = text_of(object, "hash");
    if (communicator.hash.empty()) return fmt::format("its answer's communicators[{}] has no hash", index);
    communicator.secondary_hash = text_of(object, "secondary_hash");
    communicator.size = std::max(int_of(object, "size").value_or(0), 0);
    for (const auto& [name, members] :
         {std::pair{"ranks", &communicator.members}, std::pair{"missing_ranks", &communicator.missing}})
      if (const std::string wrong = read_members(object, name, *members); !wrong.empty())
        return fmt::format("its answer's communicators[{}].{}", index, wrong);
  }
  return "";
}

}  // namespace

Result<NcclStatus> parse_ras_answer(std::string_view text, const std::string& subject) {
  const auto wrong = [&](ErrorCode code, std::string what) {
    return fail({.code = code, .subject = subject, .what = std::move(what)});
  };
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return wrong(ErrorCode::kGone, "it hung up without an answer");
  std::string mended;
  Check check;
  if (!Json::sax_parse(text, &check)) {
    if (!check.malformed) return wrong(ErrorCode::kLimit, check.error);
    mended = with_missing_commas(text);
    Check second;
    if (!Json::sax_parse(mended, &second))
      return wrong(second.malformed ? ErrorCode::kMalformed : ErrorCode::kLimit,
                   second.malformed ? check.error : second.error);
    text = mended;
  }
  try {
    NcclStatus status;
    if (const std::string what = read_status(Json::parse(text), status); !what.empty())
      return wrong(ErrorCode::kMalformed, what);
    return status;
  } catch (const Json::exception&) {
    return wrong(ErrorCode::kMalformed, "its answer cannot be read");
  }
}

}  // namespace rankstacks::nccl
