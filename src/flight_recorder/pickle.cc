#include "flight_recorder/pickle.h"

#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace rankstacks::flight_recorder {
namespace {

// Instructions, with the names of CPython's Lib/pickle.py.
enum Opcode : unsigned char {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinUnicode = 'X',
  kAppend = 'a',
  kAppends = 'e',
  kSetItem = 's',
  kSetItems = 'u',
  kTuple = 't',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kList = 'l',
  kDict = 'd',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kMemoize = 0x94,
  kFrame = 0x95,
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& subject) : bytes_(bytes), subject_(subject) {}

  Result<Document> read() {
    if (bytes_.size() > kMaxBytes) stop(ErrorCode::kLimit, fmt::format("it has more than {} bytes", kMaxBytes));
    while (!error_ && !done_) {
      instruction_ = at_;
      if (at_ == bytes_.size()) stop(ErrorCode::kMalformed, "the pickle ends before its last instruction");
      else step(static_cast<unsigned char>(bytes_[at_++]));
    }
    if (error_) return fail(std::move(*error_));
    return std::move(document_);
  }

 private:
  void stop(ErrorCode code, std::string what, std::string hint = "") {
    if (!error_)
      error_ = Error{
          .code = code, .subject = subject_, .what = std::move(what), .where = instruction_, .hint = std::move(hint)};
  }
  void malformed(std::string what) { stop(ErrorCode::kMalformed, std::move(what)); }

  // The next `n` bytes; "" after an error.
  std::string_view take(std::uint64_t n) {
    if (n > bytes_.size() - at_) {
      malformed("the pickle ends within an instruction");
      return {};
    }
    const std::string_view taken = bytes_.substr(at_, n);
    at_ += n;
    return taken;
  }
  // Little endian.
  std::uint64_t number(std::size_t n) {
    std::uint64_t value = 0;
    const std::string_view taken = take(n);
    for (std::size_t i = taken.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(taken[i]);
    return value;
  }

  void push(ValueId id) { stack_.push_back(id); }
  void push(Value value) {
    if (document_.values.size() >= kMaxValues)
      return stop(ErrorCode::kLimit, fmt::format("it has more than {} values", kMaxValues));
    document_.values.push_back(std::move(value));
    push(static_cast<ValueId>(document_.values.size() - 1));
  }
  void push_integer(std::int64_t n) { push(Value{.kind = Kind::kInteger, .integer = n}); }
  void push_text(std::uint64_t size) { push(Value{.kind = Kind::kText, .text = std::string(take(size))}); }
  void push_long(std::uint64_t size) {
    if (size > 8) return malformed("an integer of more than 64 bits");
    std::uint64_t value = number(size);
    if (size > 0 && size < 8 && (value >> (8 * size - 1)) != 0) value |= ~std::uint64_t{0} << (8 * size);
    push_integer(std::bit_cast<std::int64_t>(value));
  }

  // Nothing below the last mark may be taken.
  std::size_t bottom() const { return marks_.empty() ? 0 : marks_.back(); }
  std::optional<ValueId> pop() {
    if (stack_.size() <= bottom()) {
      malformed("an instruction finds nothing on the stack");
      return std::nullopt;
    }
    const ValueId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  std::vector<ValueId> pop_marked() {
    if (marks_.empty()) {
      malformed("an instruction finds no mark on the stack");
      return {};
    }
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<ValueId> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  void push_last(std::size_t count) {
    Value tuple{.kind = Kind::kList, .items = std::vector<ValueId>(count)};
    for (std::size_t i = count; i-- > 0;) {
      const auto item = pop();
      if (!item) return;
      tuple.items[i] = *item;
    }
    push(std::move(tuple));
  }
  void push_dict(std::vector<ValueId> items) {
    if (items.size() % 2 != 0) return malformed("a dict with a key without a value");
    push(Value{.kind = Kind::kDict, .items = std::move(items)});
  }
  // Adds to the container on top of the stack.
  void add(Kind kind, const std::vector<ValueId>& items) {
    if (error_) return;
    if (stack_.size() <= bottom() || document_.values[stack_.back()].kind != kind)
      return malformed(fmt::format("expected {} to add to", to_string(kind)));
    if (kind == Kind::kDict && items.size() % 2 != 0) return malformed("a dict with a key without a value");
    auto& into = document_.values[stack_.back()].items;
    into.insert(into.end(), items.begin(), items.end());
  }
  void add_last(Kind kind, std::size_t count) {
    std::vector<ValueId> items(count);
    for (std::size_t i = count; i-- > 0;)
      if (const auto item = pop()) items[i] = *item;
    add(kind, items);
  }

  void put(std::uint64_t key) {
    if (stack_.size() <= bottom()) return malformed("an instruction finds nothing on the stack");
    memo_[key] = stack_.back();
  }
  void get(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) return malformed(fmt::format("a reference to {}, which is not there", key));
    push(found->second);
  }

  void finish() {
    const auto root = pop();
    if (!root) return;
    document_.root = *root;
    done_ = true;
  }

  void step(unsigned char opcode) {
    if (!scalar(opcode) && !container(opcode) && !error_)
      stop(ErrorCode::kUnsupported, fmt::format("instruction {:#04x} of pickle is not one of plain data", opcode),
           "a dump of the Flight Recorder has dicts, lists, numbers and strings; a pickle that names classes or calls "
           "functions is not one, and nothing of it is run");
  }

  // Returns false if it is none of these.
  bool scalar(unsigned char opcode) {
    switch (opcode) {
      case kProto:
        if (number(1) > 5) malformed("a version of pickle after 5");
        return true;
      case kFrame: return take(8), true;
      case kNone: return push(Value{}), true;
      case kNewTrue: return push(Value{.kind = Kind::kBoolean, .integer = 1}), true;
      case kNewFalse: return push(Value{.kind = Kind::kBoolean}), true;
      case kBinInt: return push_integer(static_cast<std::int32_t>(number(4))), true;
      case kBinInt1: return push_integer(static_cast<std::int64_t>(number(1))), true;
      case kBinInt2: return push_integer(static_cast<std::int64_t>(number(2))), true;
      case kLong1: return push_long(number(1)), true;
      case kLong4: return push_long(number(4)), true;
      case kBinFloat: {
        std::uint64_t bits = 0;  // big endian
        for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
        return push(Value{.kind = Kind::kReal, .real = std::bit_cast<double>(bits)}), true;
      }
      case kShortBinUnicode:
      case kShortBinString:
      case kShortBinBytes: return push_text(number(1)), true;
      case kBinUnicode:
      case kBinString:
      case kBinBytes: return push_text(number(4)), true;
      case kBinUnicode8:
      case kBinBytes8: return push_text(number(8)), true;
      default: return false;
    }
  }

  bool container(unsigned char opcode) {
    switch (opcode) {
      case kMark: return marks_.push_back(stack_.size()), true;
      case kStop: return finish(), true;
      case kPop: return pop(), true;
      case kPopMark: return pop_marked(), true;
      case kDup:
        if (const auto top = pop()) push(*top), push(*top);
        return true;
      case kEmptyList:
      case kEmptyTuple: return push(Value{.kind = Kind::kList}), true;
      case kEmptyDict: return push(Value{.kind = Kind::kDict}), true;
      case kTuple:
      case kList: return push(Value{.kind = Kind::kList, .items = pop_marked()}), true;
      case kDict: return push_dict(pop_marked()), true;
      case kTuple1: return push_last(1), true;
      case kTuple2: return push_last(2), true;
      case kTuple3: return push_last(3), true;
      case kAppend: return add_last(Kind::kList, 1), true;
      case kAppends: return add(Kind::kList, pop_marked()), true;
      case kSetItem: return add_last(Kind::kDict, 2), true;
      case kSetItems: return add(Kind::kDict, pop_marked()), true;
      case kBinPut: return put(number(1)), true;
      case kLongBinPut: return put(number(4)), true;
      case kMemoize: return put(memo_.size()), true;
      case kBinGet: return get(number(1)), true;
      case kLongBinGet: return get(number(4)), true;
      default: return false;
    }
  }

  std::string_view bytes_;
  const std::string& subject_;
  std::size_t at_ = 0, instruction_ = 0;
  std::vector<ValueId> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::unordered_map<std::uint64_t, ValueId> memo_;
  Document document_;
  std::optional<Error> error_;
  bool done_ = false;
};

}  // namespace

bool looks_like_pickle(std::string_view bytes) {
  return !bytes.empty() && static_cast<unsigned char>(bytes[0]) == kProto;
}

Result<Document> read_pickle(std::string_view bytes, const std::string& subject) {
  return Reader(bytes, subject).read();
}

}  // namespace rankstacks::flight_recorder
