#include <algorithm>
#include <cstdint>

#include "base/text.h"
#include "symbolizers/rust_characters.h"
#include "symbolizers/rust_names.h"

namespace rankstacks::symbolizers {
namespace {

constexpr int kMaxNested = 500;  // rustc's own demangler: 500
// Limit for the number of characters read; those behind back references count each time. Text that prints nothing (the
// path of an impl) can be referred to again and again, which the limit on the text does not catch. Of the 150,000 names
// in rustc 1.95 itself the longest takes 9,700 (and 96 levels, 10,100 characters of text).
constexpr std::size_t kMaxRead = 1 << 20;

struct Identifier {
  // punycode: what follows the last '_' of an identifier with other characters.
  std::string_view ascii, punycode;
  bool empty() const { return ascii.empty() && punycode.empty(); }
};

std::string_view basic_type(char tag) {
  switch (tag) {
    case 'a': return "i8";
    case 'b': return "bool";
    case 'c': return "char";
    case 'd': return "f64";
    case 'e': return "str";
    case 'f': return "f32";
    case 'h': return "u8";
    case 'i': return "isize";
    case 'j': return "usize";
    case 'l': return "i32";
    case 'm': return "u32";
    case 'n': return "i128";
    case 'o': return "u128";
    case 'p': return "_";
    case 's': return "i16";
    case 't': return "u16";
    case 'u': return "()";
    case 'v': return "...";
    case 'x': return "i64";
    case 'y': return "u64";
    case 'z': return "!";
    default: return {};
  }
}

// Parses and prints in one pass, with one function for each rule of the grammar. After a failure all reads fail and
// nothing is printed, so the rules need not check.
class V0 {
 public:
  V0(std::string_view mangled, std::size_t most_text) : mangled_(mangled), most_text_(most_text) {}

  std::optional<std::string> demangle() {
    path(true);
    if (peek() != '\0') silently([&] { path(false); });  // the crate in which a generic function was instantiated
    if (failed_ || at_ != mangled_.size() || text_.empty()) return std::nullopt;
    return std::move(text_);
  }

 private:
  class Nested {
   public:
    explicit Nested(V0& reader) : reader_(reader) {
      if (++reader_.nested_ > kMaxNested) reader_.fail();
    }
    ~Nested() { --reader_.nested_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    V0& reader_;
  };

  void fail() { failed_ = true; }
  char peek() const { return failed_ || at_ == mangled_.size() ? '\0' : mangled_[at_]; }
  char take() {
    if (++read_ > kMaxRead) fail();
    const char c = peek();
    if (c == '\0') fail();
    else ++at_;
    return c;
  }
  bool eat(char c) {
    if (peek() != c) return false;
    take();
    return true;
  }

  void print(std::string_view text) {
    if (silent_ || failed_) return;
    if (text.size() > most_text_ - text_.size()) return fail();
    text_ += text;
  }
  void print(std::uint64_t number) { print(std::to_string(number)); }
  void print(const Identifier& name) {
    if (name.punycode.empty()) return print(name.ascii);
    if (silent_ || failed_) return;
    if (const auto text = decode_punycode(name.ascii, name.punycode)) return print(*text);
    print("punycode{");
    print(name.ascii);
    if (!name.ascii.empty()) print("-");
    print(name.punycode);
    print("}");
  }

  template <class Rule>
  void silently(Rule rule) {
    const bool before = silent_;
    silent_ = true;
    rule();
    silent_ = before;
  }

  template <class Rule>
  std::size_t list(std::string_view separator, Rule rule) {
    std::size_t count = 0;
    for (; !failed_ && !eat('E'); ++count) {
      if (count > 0) print(separator);
      rule();
    }
    return count;
  }

  // Called after the 'B'. The reference leads to something that begins at an earlier character, which may contain the
  // reference itself: kMaxNested ends that, and kMaxRead does if there are several such references (2^500 paths).
  template <class Rule>
  void back_reference(Rule rule) {
    const std::size_t tag = at_ - 1;
    const std::uint64_t target = base_62();
    if (target >= tag) return fail();
    if (silent_) return;
    const Nested nested(*this);
    const std::size_t behind = at_;
    at_ = static_cast<std::size_t>(target);
    rule();
    at_ = behind;
  }

  // "_" is 0, "0_" is 1, ...
  std::uint64_t base_62() {
    if (eat('_')) return 0;
    std::uint64_t value = 0;
    while (!failed_ && !eat('_')) {
      const char c = take();
      std::uint64_t digit = 0;
      if (is_digit(c)) digit = c - '0';
      else if (c >= 'a' && c <= 'z') digit = c - 'a' + 10;
      else if (c >= 'A' && c <= 'Z') digit = c - 'A' + 36;
      else fail();
      if (__builtin_mul_overflow(value, std::uint64_t{62}, &value) || __builtin_add_overflow(value, digit, &value))
        fail();
    }
    if (__builtin_add_overflow(value, std::uint64_t{1}, &value)) fail();
    return failed_ ? 0 : value;
  }
  // Returns 0 if the tag does not follow, otherwise one more than the number after it.
  std::uint64_t optional_base_62(char tag) {
    if (!eat(tag)) return 0;
    std::uint64_t value = base_62();
    if (__builtin_add_overflow(value, std::uint64_t{1}, &value)) fail();
    return failed_ ? 0 : value;
  }
  std::uint64_t disambiguator() { return optional_base_62('s'); }

  // Lower-case digits up to a '_'.
  std::string_view hex() {
    const std::size_t begin = at_;
    while (!failed_ && !eat('_')) {
      if (!contains(kHexDigits, take())) fail();
    }
    return failed_ ? std::string_view{} : mangled_.substr(begin, at_ - 1 - begin);
  }
  static std::optional<std::uint64_t> number_of(std::string_view digits) {
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
    if (digits.size() > 16) return std::nullopt;
    std::uint64_t value = 0;
    for (const char c : digits) value = value << 4 | kHexDigits.find(c);
    return value;
  }

  Identifier identifier() {
    const bool encoded = eat('u');
    if (!is_digit(peek())) fail();
    std::size_t size = 0;
    if (!eat('0')) {
      while (is_digit(peek())) {
        size = size * 10 + static_cast<std::size_t>(take() - '0');
        if (size > mangled_.size()) fail();
      }
    }
    eat('_');  // present if the identifier begins with a digit or a '_'
    if (failed_ || size > mangled_.size() - at_) {
      fail();
      return {};
    }
    const std::string_view name = mangled_.substr(at_, size);
    at_ += size;
    if (!encoded) return {name, {}};
    const std::size_t split = name.rfind('_');
    const Identifier result = split == std::string_view::npos
                                  ? Identifier{{}, name}
                                  : Identifier{name.substr(0, split), name.substr(split + 1)};
    if (result.punycode.empty()) fail();
    return result;
  }

  // Lifetimes are numbered from the innermost binder outwards, and named from the outermost inwards.
  void lifetime(std::uint64_t index) {
    if (silent_) return;
    if (index > lifetimes_) return fail();
    if (index == 0) return print("'_");
    const std::uint64_t number = lifetimes_ - index;
    if (number >= 26) {
      print("'_");
      return print(number);
    }
    const char name[] = {'\'', static_cast<char>('a' + number)};
    print(std::string_view(name, 2));
  }

  template <class Rule>
  void binder(Rule rule) {
    const std::uint64_t bound = optional_base_62('G'), before = lifetimes_;
    if (bound > 0 && !silent_) {
      print("for<");
      for (std::uint64_t i = 0; i < bound && !failed_; ++i) {  // the limit on the text ends this
        if (i > 0) print(", ");
        ++lifetimes_;
        lifetime(1);
      }
      print("> ");
    }
    rule();
    lifetimes_ = before;
  }

  // In the path of a value, generic arguments follow "::".
  void path(bool value) {
    const Nested nested(*this);
    switch (const char tag = take()) {
      case 'C':
        disambiguator();
        print(identifier());
        break;
      case 'N': nested_path(value); break;
      case 'M':  // impl Type
      case 'X':  // impl Trait for Type
      case 'Y':  // Type as Trait
        if (tag != 'Y') {
          disambiguator();
          silently([&] { path(false); });
        }
        print("<");
        type();
        if (tag != 'M') {
          print(" as ");
          path(false);
        }
        print(">");
        break;
      case 'I':
        path(value);
        print(value ? "::<" : "<");
        list(", ", [&] { generic_argument(); });
        print(">");
        break;
      case 'B': back_reference([&] { path(value); }); break;
      default: fail();
    }
  }

  void nested_path(bool value) {
    const char space = take();
    const bool is_special = space >= 'A' && space <= 'Z';
    if (!is_special && (space < 'a' || space > 'z')) return fail();
    path(value);
    const std::uint64_t number = disambiguator();
    const Identifier name = identifier();
    if (!is_special) {
      if (!name.empty()) print("::");
      return print(name);
    }
    print("::{");
    if (space == 'C') print("closure");
    else if (space == 'S') print("shim");
    else print(std::string_view(&space, 1));
    if (!name.empty()) print(":");
    print(name);
    print("#");
    print(number);
    print("}");
  }

  void generic_argument() {
    if (eat('L')) lifetime(base_62());
    else if (eat('K')) constant(false);
    else type();
  }

  void type() {
    const Nested nested(*this);
    if (const std::string_view basic = basic_type(peek()); !basic.empty()) {
      take();
      return print(basic);
    }
    switch (const char tag = take()) {
      case 'R':
      case 'Q':
        print("&");
        if (eat('L')) {
          if (const std::uint64_t index = base_62(); index != 0) {
            lifetime(index);
            print(" ");
          }
        }
        if (tag == 'Q') print("mut ");
        type();
        break;
      case 'P':
      case 'O':
        print(tag == 'P' ? "*const " : "*mut ");
        type();
        break;
      case 'A':
      case 'S':
        print("[");
        type();
        if (tag == 'A') {
          print("; ");
          constant(true);
        }
        print("]");
        break;
      case 'T':
        print("(");
        if (list(", ", [&] { type(); }) == 1) print(",");
        print(")");
        break;
      case 'F': binder([&] { function_type(); }); break;
      case 'D':
        print("dyn ");
        binder([&] { list(" + ", [&] { dyn_trait(); }); });
        if (!eat('L')) return fail();
        if (const std::uint64_t index = base_62(); index != 0) {
          print(" + ");
          lifetime(index);
        }
        break;
      case 'W':
        type();
        print(" is ");
        pattern();
        break;
      case 'B': back_reference([&] { type(); }); break;
      default:
        if (failed_) return;
        --at_;
        path(false);
    }
  }

  void function_type() {
    if (eat('U')) print("unsafe ");
    if (eat('K')) {
      const Identifier abi = eat('C') ? Identifier{"C", {}} : identifier();
      if (abi.ascii.empty() || !abi.punycode.empty()) return fail();
      std::string name(abi.ascii);
      std::replace(name.begin(), name.end(), '_', '-');
      print("extern \"");
      print(name);
      print("\" ");
    }
    print("fn(");
    list(", ", [&] { type(); });
    print(")");
    if (eat('u')) return;
    print(" -> ");
    type();
  }

  // "Trait<A, Item = B>": the bindings are in the same brackets as the trait's own arguments.
  void dyn_trait() {
    bool open = open_trait();
    while (eat('p')) {
      print(open ? ", " : "<");
      open = true;
      print(identifier());
      print(" = ");
      if (eat('K')) constant(false);
      else type();
    }
    if (open) print(">");
  }
  // Returns whether the bracket is open.
  bool open_trait() {
    bool open = false;
    if (eat('B')) {
      back_reference([&] { open = open_trait(); });
    } else if (eat('I')) {
      path(false);
      print("<");
      list(", ", [&] { generic_argument(); });
      open = true;
    } else {
      path(false);
    }
    return open;
  }

  void pattern() {
    const Nested nested(*this);
    switch (take()) {
      case 'N': print("!null"); break;
      case 'O': list(" | ", [&] { pattern(); }); break;
      case 'R':
        constant(false);
        print("..=");
        constant(false);
        break;
      default: fail();
    }
  }

  // Outside of an expression, a constant that is more than a literal is put in braces.
  void constant(bool in_expression) {
    const Nested nested(*this);
    const char tag = take();
    if (tag == 'B') return back_reference([&] { constant(in_expression); });
    const bool is_text = tag == 'R' && peek() == 'e';
    const bool braces = !in_expression && !is_text && contains("eRQATV", tag);
    if (braces) print("{");
    switch (tag) {
      case 'p': print("_"); break;
      case 'b':
        if (const auto number = number_of(hex()); number && *number < 2) print(*number != 0 ? "true" : "false");
        else fail();
        break;
      case 'c':
        if (const auto number = number_of(hex()); number && is_character(*number)) character(*number);
        else fail();
        break;
      case 'a':
      case 'i':
      case 'l':
      case 'n':
      case 's':
      case 'x':
        if (eat('n')) print("-");
        integer();
        break;
      case 'h':
      case 'j':
      case 'm':
      case 'o':
      case 't':
      case 'y': integer(); break;
      case 'e':
        print("*");
        string_literal();
        break;
      case 'R':
      case 'Q':
        if (is_text) {
          take();
          string_literal();
        } else {
          print(tag == 'R' ? "&" : "&mut ");
          constant(true);
        }
        break;
      case 'A':
        print("[");
        list(", ", [&] { constant(true); });
        print("]");
        break;
      case 'T':
        print("(");
        if (list(", ", [&] { constant(true); }) == 1) print(",");
        print(")");
        break;
      case 'V': variant(); break;
      default: fail();
    }
    if (braces) print("}");
  }

  void variant() {
    path(true);
    switch (take()) {
      case 'U': break;
      case 'T':
        print("(");
        list(", ", [&] { constant(true); });
        print(")");
        break;
      case 'S':
        print(" { ");
        list(", ", [&] {
          disambiguator();
          print(identifier());
          print(": ");
          constant(true);
        });
        print(" }");
        break;
      default: fail();
    }
  }

  void integer() {
    const std::string_view digits = hex();
    if (const auto number = number_of(digits)) return print(*number);
    print("0x");
    print(digits);
  }

  void character(std::uint64_t c) {
    std::string text = "'";
    if (c < 0x80) append_escaped(text, static_cast<unsigned char>(c), '\'');
    else append_utf8(text, c);
    print(text += '\'');
  }

  void string_literal() {
    const std::string_view digits = hex();
    if (digits.size() % 2 != 0) return fail();
    if (silent_) return;
    std::string text = "\"";
    for (std::size_t i = 0; i < digits.size(); i += 2)
      append_escaped(text, static_cast<unsigned char>(kHexDigits.find(digits[i]) << 4 | kHexDigits.find(digits[i + 1])),
                     '"');
    print(text += '"');
  }

  std::string_view mangled_;
  std::size_t most_text_;
  std::string text_;
  std::size_t at_ = 0;
  std::size_t read_ = 0;
  std::uint64_t lifetimes_ = 0;  // number of lifetimes bound here
  int nested_ = 0;
  bool silent_ = false;
  bool failed_ = false;
};

}  // namespace

std::optional<std::string> demangle_rust_v0(std::string_view name, std::size_t most_text) {
  constexpr std::string_view kAlphabet = "_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  if (!name.starts_with("_R")) return std::nullopt;
  name.remove_prefix(2);
  const std::size_t end = std::min(name.find_first_not_of(kAlphabet), name.size());
  if (end < name.size() && name[end] != '.' && name[end] != '$') return std::nullopt;
  return V0(name.substr(0, end), most_text).demangle();
}

}  // namespace rankstacks::symbolizers
