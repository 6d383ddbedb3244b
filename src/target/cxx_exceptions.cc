#include "target/cxx_exceptions.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

namespace rankstacks::target {
namespace {

constexpr std::size_t kMaxRuntimes = 4;                // copies of C++ libraries in one process
constexpr std::size_t kMaxVtables = 3 * kMaxRuntimes;  // of types of one sort
constexpr std::size_t kMaxCode = 64;                   // of __cxa_get_globals, which has 31 bytes
constexpr std::size_t kLongestName = 1024;             // of a type
constexpr int kMaxBases = 16;                          // in a chain of base classes
constexpr std::uint32_t kMaxDirectBases = 8;
constexpr std::size_t kMaxSearchedThreads = 64;    // for exceptions that are on their way
constexpr std::size_t kSearchedBytes = 256 << 10;  // of the stack of one of them
constexpr std::size_t kMaxCandidates = 16384;      // addresses in it
constexpr int kMaxThrownAgain = 16;                // exceptions of one thread that their catch blocks have thrown again
constexpr std::uint64_t kMaxModules = 1u << 20;    // with thread-local variables

// The libraries, by the marks that users of the unwinder write: "GNUCC++\0" and "CLNGC++\0"; the last byte is 1 for
// what std::rethrow_exception throws.
struct Library {
  std::uint64_t mark = 0;
  Address before_type = 0;  // bytes of an exception's header before its type
  Address primary = 0;      // offset of the thrown object's address in a dependent exception
  std::uint64_t dependent_mark() const { return mark + 1; }
};
constexpr Library kLibstdcxx{.mark = 0x474e5543432b2b00, .before_type = 0, .primary = 0};
constexpr Library kLibcxx{.mark = 0x434c4e47432b2b00, .before_type = 16, .primary = 8};

struct EhGlobals {
  Address caught = 0;
  std::uint32_t uncaught = 0;
  std::uint32_t padding = 0;
};

// __cxa_exception or __cxa_dependent_exception, from the type on.
struct ExceptionHeader {
  Address type = 0;  // libstdc++'s dependent exceptions have the address of the thrown object there
  Address destructor = 0, unexpected_handler = 0, terminate_handler = 0;
  Address next = 0;
  std::int32_t handler_count = 0, switch_value = 0;
  Address action_record = 0, language_data = 0, catch_temp = 0, adjusted = 0;
  std::uint64_t exception_class = 0;  // unwindHeader begins here
  Address cleanup = 0;
  std::uint64_t private_1 = 0, private_2 = 0;
};
static_assert(sizeof(ExceptionHeader) == 112);

constexpr Address kOwnersBeforeHeader = 16;  // libstdc++'s __cxa_refcounted_exception: referenceCount
// The part of an exception's header that precedes its unwindHeader, of either library.
constexpr Address kBeforeUnwindHeader = offsetof(ExceptionHeader, exception_class) + 16;

struct TypeInfo {
  Address vtable = 0, name = 0;
};

bool contains(const std::vector<Address>& addresses, Address a) {
  return std::find(addresses.begin(), addresses.end(), a) != addresses.end();
}

// UTF-8 without control characters except white space. A character that a cut at the end left incomplete is removed.
bool is_text(std::string& text, bool cut) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t length = c < 0x80                ? 1
                               : c >= 0xc2 && c < 0xe0 ? 2
                               : c >= 0xe0 && c < 0xf0 ? 3
                               : c >= 0xf0 && c < 0xf5 ? 4
                                                       : 0;
    if (length == 0 || c == 0x7f || (c < 0x20 && c != '\n' && c != '\t' && c != '\r')) return false;
    if (text.size() - i < length) {
      if (!cut) return false;
      text.resize(i);
      return true;
    }
    for (std::size_t k = 1; k < length; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    i += length;
  }
  return true;
}

bool is_program(const elf::Image& image) { return image.type() == ET_EXEC || image.has_interpreter(); }

class Reader {
 public:
  Reader(const Target& target, const CxxRuntime& runtime) : target_(target), runtime_(runtime) {}

  // tcbhead_t: the thread's own address, then dtv; dtv[-1] has the number of slots of 16 bytes, dtv[0] the generation.
  static constexpr Address kHead = 16, kDtvInHead = 8, kSlot = 16;
  struct Pair {
    std::uint64_t module, offset;
  };

  // The value of a key of pthread_getspecific(). `seq` is odd while the key is in use.
  struct Value {
    std::uint64_t seq;
    Address data;
  };
  // Where a thread's block with that value has its address; the value's place in the block.
  struct PlaceOfValue {
    Address block_slot, offset;
  };
  std::optional<PlaceOfValue> place_of_value(Address fs_base, const ExceptionStorage& storage) const {
    if (!storage.key || !runtime_.specifics) return std::nullopt;
    const ThreadSpecifics& specifics = *runtime_.specifics;
    const auto key = target_.read_value<std::uint32_t>(*storage.key);
    if (!key || *key / specifics.values_per_block >= specifics.blocks) return std::nullopt;
    return PlaceOfValue{fs_base + specifics.offset + *key / specifics.values_per_block * sizeof(Address),
                        *key % specifics.values_per_block * sizeof(Value)};
  }

  // Adds what shows where that copy of the library has the thread's block: a part of its dtv, or of its struct pthread.
  void add_dtv(Address fs_base, const ExceptionStorage& storage, std::vector<Range>& ranges) const {
    if (const auto place = place_of_value(fs_base, storage); place && place->block_slot < ~Address{0} - kSlot) {
      ranges.push_back({place->block_slot, place->block_slot + sizeof(Address)});
      return;
    }
    if (!storage.module_slot) return;
    const auto pair = target_.read_value<Pair>(*storage.module_slot);
    const auto dtv = target_.read_value<Address>(fs_base + kDtvInHead);
    if (!pair || !dtv || *dtv < kSlot || *dtv > ~Address{0} / 2 || pair->module > kMaxModules) return;
    ranges.push_back({*dtv - kSlot, *dtv});
    ranges.push_back({*dtv + pair->module * kSlot, *dtv + (pair->module + 1) * kSlot});
  }

  // The thread's __cxa_eh_globals in that copy of the library.
  std::optional<Address> globals_of(Address fs_base, const ExceptionStorage& storage) const {
    if (storage.key) {
      const auto place = place_of_value(fs_base, storage);
      const auto block = place ? target_.read_value<Address>(place->block_slot) : std::nullopt;
      if (!block || *block == 0) return std::nullopt;
      const auto value = target_.read_value<Value>(*block + place->offset);
      return value && value->seq % 2 == 1 && value->data != 0 ? std::optional(value->data) : std::nullopt;
    }
    Address base = fs_base;
    if (storage.module_slot) {
      constexpr Address kNotAllocated = ~Address{0};
      const auto pair = target_.read_value<Pair>(*storage.module_slot);
      const auto dtv = target_.read_value<Address>(fs_base + kDtvInHead);
      if (!pair || !dtv || *dtv < kSlot || pair->module == 0) return std::nullopt;
      const auto slots = target_.read_value<std::uint64_t>(*dtv - kSlot);
      if (!slots || pair->module > *slots || pair->module > kMaxModules) return std::nullopt;
      const auto block = target_.read_value<Address>(*dtv + pair->module * kSlot);
      if (!block || *block == 0 || *block == kNotAllocated) return std::nullopt;
      base = *block + pair->offset;
    }
    if (storage.offset_slot) {
      const auto offset = target_.read_value<std::uint64_t>(*storage.offset_slot);
      if (!offset) return std::nullopt;
      base += *offset;
    }
    return base + static_cast<Address>(storage.offset);
  }

  std::optional<HeldException> handled_by(const EhGlobals& eh) const {
    Address caught = eh.caught;
    for (int i = 0; i <= kMaxThrownAgain && caught != 0; ++i) {
      const auto thrown = thrown_at(caught);
      if (!thrown) return std::nullopt;
      if (eh.uncaught != 0 && thrown->header.handler_count < 0) {
        caught = thrown->header.next;
        continue;
      }
      auto held = held_of(*thrown);
      if (held) held->alone = eh.uncaught == 0;
      return held;
    }
    return std::nullopt;
  }

  // The innermost of at most `uncaught` exceptions that are on their way through the stack of a thread: it searches the
  // registers and the innermost part of the stack for addresses of unwindHeaders.
  std::optional<HeldException> raised_in(const Registers& registers, std::uint64_t uncaught) const {
    if (!registers.has(kRsp)) return std::nullopt;
    const Address sp = registers.sp();
    std::vector<Address> words = words_above(sp);
    for (unsigned r = kRax; r <= kR15; ++r)
      if (registers.has(r)) words.push_back(registers[r]);
    keep_header_addresses(words, sp);
    std::vector<Range> ranges;
    for (const Address at : words) ranges.push_back({at - kBeforeUnwindHeader, at + sizeof(Address)});
    target_.prefetch(ranges);
    std::optional<HeldException> innermost;
    std::uint64_t found = 0;
    for (const Address at : words) {
      const auto thrown = thrown_with(at);
      if (!thrown || !is_on_its_way(*thrown, sp)) continue;
      auto held = held_of(*thrown);
      if (!held) continue;
      if (++found > uncaught) return std::nullopt;
      if (!innermost || held->handler_sp < innermost->handler_sp) innermost = std::move(held);
    }
    return innermost;
  }

 private:
  // The words of the stack from `sp` on, as many as can be read.
  std::vector<Address> words_above(Address sp) const {
    constexpr std::size_t kPart = 4096;
    sp &= ~Address{sizeof(Address) - 1};
    std::vector<Address> words;
    if (sp > ~Address{0} - kSearchedBytes) return words;
    target_.prefetch(std::array{Range{sp, sp + kSearchedBytes}});
    for (Address at = sp; at < sp + kSearchedBytes;) {
      const std::size_t size = kPart - at % kPart;  // to the end of the page
      const std::size_t before = words.size();
      words.resize(before + size / sizeof(Address));
      if (!target_.read_exact(at, std::as_writable_bytes(std::span(words).subspan(before)))) {
        words.resize(before);
        break;
      }
      at += size;
    }
    return words;
  }

  // Leaves those that can be an unwindHeader's address, each once: these are aligned, and not on the stack.
  static void keep_header_addresses(std::vector<Address>& words, Address sp) {
    constexpr Address kAlignment = 16, kFirst = 1u << 16, kEndOfUserSpace = Address{1} << 47;
    std::erase_if(words, [&](Address at) {
      return at % kAlignment != 0 || at < kFirst || at >= kEndOfUserSpace || (at >= sp && at - sp < kSearchedBytes);
    });
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    if (words.size() > kMaxCandidates) words.resize(kMaxCandidates);
  }

  struct Thrown {
    const Library* library;
    Address at;  // what the library's own references to it have
    ExceptionHeader header;
  };
  // The exception whose header is at `at`, if one of the libraries has thrown it.
  std::optional<Thrown> thrown_at(Address at) const {
    for (const Library* library : {&kLibstdcxx, &kLibcxx}) {
      const auto header = target_.read_value<ExceptionHeader>(at + library->before_type);
      if (header && (header->exception_class == library->mark || header->exception_class == library->dependent_mark()))
        return Thrown{library, at, *header};
    }
    return std::nullopt;
  }

  // The exception whose unwindHeader is at `at`.
  std::optional<Thrown> thrown_with(Address at) const {
    const auto mark = target_.read_value<std::uint64_t>(at);
    if (!mark) return std::nullopt;
    for (const Library* library : {&kLibstdcxx, &kLibcxx})
      if (*mark == library->mark || *mark == library->dependent_mark())
        return thrown_at(at - offsetof(ExceptionHeader, exception_class) - library->before_type);
    return std::nullopt;
  }

  // Whether it has not been caught, or was thrown again, by code whose handler is further out than `sp`, and has an
  // owner: an exception that has ended leaves its bytes behind.
  bool is_on_its_way(const Thrown& thrown, Address sp) const {
    constexpr std::uint64_t kMaxOwners = 1u << 16;
    const ExceptionHeader& header = thrown.header;
    if (header.handler_count > 0 || header.private_1 != 0 || (header.private_2 != 0 && header.private_2 <= sp))
      return false;
    // A dependent exception has one owner.
    if (header.exception_class == thrown.library->dependent_mark()) return true;
    std::optional<std::uint64_t> owners;
    if (thrown.library == &kLibcxx) owners = target_.read_value<std::uint64_t>(thrown.at + sizeof(std::uint64_t));
    else owners = target_.read_value<std::uint32_t>(thrown.at - kOwnersBeforeHeader);
    return owners && *owners > 0 && *owners <= kMaxOwners;
  }

  std::optional<HeldException> held_of(const Thrown& thrown) const {
    const Library& library = *thrown.library;
    Address object = thrown.at + library.before_type + sizeof(ExceptionHeader), type = thrown.header.type;
    if (thrown.header.exception_class == library.dependent_mark()) {
      const auto original = target_.read_value<Address>(thrown.at + library.primary);
      if (!original) return std::nullopt;
      object = *original;
      const auto primary = target_.read_value<ExceptionHeader>(object - sizeof(ExceptionHeader));
      if (!primary || primary->exception_class != library.mark) return std::nullopt;
      type = primary->type;
    }
    auto name = name_of(type);
    if (!name) return std::nullopt;
    return HeldException{std::move(*name), text_of(library, object, type, 0), thrown.header.private_2};
  }

  std::optional<std::string> name_of(Address type) const {
    const auto info = target_.read_value<TypeInfo>(type);
    if (!info || !(is_class(info->vtable) || contains(runtime_.plain_types, info->vtable))) return std::nullopt;
    auto name = target_.read_c_string(info->name, kLongestName);
    if (!name || name->empty()) return std::nullopt;
    if (name->front() == '*') name->erase(0, 1);  // a type that is local to its file
    const bool mangled = std::all_of(name->begin(), name->end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '$';
    });
    if (!mangled || name->empty()) return std::nullopt;
    return name;
  }

  bool is_class(Address vtable) const {
    return contains(runtime_.class_types, vtable) || contains(runtime_.single_bases, vtable) ||
           contains(runtime_.several_bases, vtable);
  }

  // The text of an object of that type, or of its first base class that has one.
  std::optional<std::string> text_of(const Library& library, Address object, Address type, int depth) const {
    if (depth == kMaxBases) return std::nullopt;
    const auto name = name_of(type);
    const auto info = target_.read_value<TypeInfo>(type);
    if (!name || !info) return std::nullopt;
    constexpr Address kText = 8;  // behind the address of the vtable
    if (*name == "St13runtime_error" || *name == "St11logic_error") return reference_counted(object + kText);
    if (*name == "N3c105ErrorE") {
      if (library.mark == kLibcxx.mark) return libcxx_string(object + kText);
      auto text = short_string(object + kText);
      // With -D_GLIBCXX_USE_CXX11_ABI=0, as in wheels of PyTorch up to 2.5.
      return text ? text : reference_counted(object + kText);
    }
    if (*name == "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE") return short_string(object);
    if (*name == "Ss") return reference_counted(object);
    if (*name == "NSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEE") return libcxx_string(object);
    if (contains(runtime_.plain_types, info->vtable)) return value_of(*name, object);
    if (contains(runtime_.single_bases, info->vtable)) {
      const auto base = target_.read_value<Address>(type + sizeof(TypeInfo));
      return base ? text_of(library, object, *base, depth + 1) : std::nullopt;
    }
    if (!contains(runtime_.several_bases, info->vtable)) return std::nullopt;
    struct Bases {
      std::uint32_t flags, count;
    };
    struct Base {
      Address type;
      std::int64_t offset_and_flags;
    };
    constexpr std::int64_t kVirtual = 1;
    constexpr int kOffsetShift = 8;
    const auto bases = target_.read_value<Bases>(type + sizeof(TypeInfo));
    if (!bases) return std::nullopt;
    for (std::uint32_t i = 0; i < std::min(bases->count, kMaxDirectBases); ++i) {
      const auto base = target_.read_value<Base>(type + sizeof(TypeInfo) + sizeof(Bases) + i * sizeof(Base));
      if (!base || (base->offset_and_flags & kVirtual) != 0) continue;
      // From here on only one level: several bases with several bases each would be a tree without end.
      if (auto text = text_of(library, object + static_cast<Address>(base->offset_and_flags >> kOffsetShift),
                              base->type, std::max(depth + 1, kMaxBases - 4)))
        return text;
    }
    return std::nullopt;
  }

  template <class Value>
  std::optional<std::string> number(Address at) const {
    const auto value = target_.read_value<Value>(at);
    return value ? std::optional(fmt::format("{}", *value)) : std::nullopt;
  }

  // What a builtin type's object holds; of pointers only those to characters.
  std::optional<std::string> value_of(std::string_view type, Address object) const {
    if (type == "i") return number<std::int32_t>(object);
    if (type == "j") return number<std::uint32_t>(object);
    if (type == "l" || type == "x") return number<std::int64_t>(object);
    if (type == "m" || type == "y") return number<std::uint64_t>(object);
    if (type == "s") return number<std::int16_t>(object);
    if (type == "t") return number<std::uint16_t>(object);
    if (type == "f") return number<float>(object);
    if (type == "d") return number<double>(object);
    if (type != "PKc" && type != "Pc") return std::nullopt;
    const auto first = target_.read_value<Address>(object);
    auto text = first ? target_.read_c_string(*first, kMaxExceptionText) : std::nullopt;
    return text && is_text(*text, false) ? text : std::nullopt;
  }

  // The characters of a string: their number and the 0 behind them must agree.
  std::optional<std::string> characters(Address at, std::uint64_t length) const {
    constexpr std::uint64_t kLongest = 1u << 26;
    if (length > kLongest || target_.read_value<char>(at + length) != '\0') return std::nullopt;
    std::string text(std::min<std::uint64_t>(length, kMaxExceptionText), '\0');
    if (!target_.read_exact(at, std::as_writable_bytes(std::span<char>(text.data(), text.size()))) ||
        text.find('\0') != std::string::npos)
      return std::nullopt;
    if (!is_text(text, length > text.size())) return std::nullopt;
    return text;
  }

  // What exceptions of the standard library contain (__cow_string, libc++'s __libcpp_refstring), and std::string before
  // GCC 5: a pointer to characters that are preceded by their numbers.
  std::optional<std::string> reference_counted(Address at) const {
    struct Numbers {
      std::uint64_t length, capacity;
      std::int32_t references, padding;
    };
    const auto data = target_.read_value<Address>(at);
    if (!data || *data < sizeof(Numbers)) return std::nullopt;
    const auto numbers = target_.read_value<Numbers>(*data - sizeof(Numbers));
    constexpr std::int32_t kMaxReferences = 1 << 20;
    if (!numbers || numbers->length > numbers->capacity || numbers->references < -1 ||
        numbers->references > kMaxReferences)
      return std::nullopt;
    return characters(*data, numbers->length);
  }

  // std::string since GCC 5: pointer, length, and the capacity or the characters themselves.
  std::optional<std::string> short_string(Address at) const {
    struct String {
      Address data;
      std::uint64_t length, capacity, rest;
    };
    constexpr std::uint64_t kInPlace = 15;
    const auto string = target_.read_value<String>(at);
    if (!string) return std::nullopt;
    const bool in_place = string->data == at + offsetof(String, capacity);
    if (string->length > (in_place ? kInPlace : string->capacity)) return std::nullopt;
    return characters(string->data, string->length);
  }

  // libc++'s std::string, whose first bit says which form it has: the capacity with that bit, the length and a pointer;
  // or a byte with twice the length, and up to 22 characters.
  std::optional<std::string> libcxx_string(Address at) const {
    struct String {
      std::uint64_t capacity, length;
      Address data;
    };
    constexpr std::uint64_t kIsLong = 1, kByte = 0xff, kInPlace = sizeof(String) - 2;
    const auto string = target_.read_value<String>(at);
    if (!string) return std::nullopt;
    if ((string->capacity & kIsLong) != 0)  // it includes the 0 at the end
      return string->length < (string->capacity & ~kIsLong) ? characters(string->data, string->length) : std::nullopt;
    const std::uint64_t length = (string->capacity & kByte) >> 1;
    return length <= kInPlace ? characters(at + 1, length) : std::nullopt;
  }

  const Target& target_;
  const CxxRuntime& runtime_;
};

// The offsets that glibc has in its data for debuggers: { bits, number of elements, offset }, for each member of a
// structure. They are in libc since 2.34, in the symbol table of libpthread before.
std::optional<ThreadSpecifics> find_thread_specifics(const ModuleMap& modules) {
  struct Member {
    std::uint32_t bits, elements, offset;
  };
  const auto member = [](const Module& module, const char* name) -> std::optional<Member> {
    auto symbol = module.image->find_exported(name);
    if (!symbol && module.path.substr(module.path.rfind('/') + 1).starts_with("libpthread"))
      symbol = module.image->find_symbol(name);
    if (!symbol || symbol->type != STT_OBJECT) return std::nullopt;
    const auto bytes = module.image->at(symbol->value);
    Member value;
    if (bytes.size() < sizeof value) return std::nullopt;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  };
  constexpr std::uint32_t kBitsOfAddress = 64, kBitsOfValue = 128, kMaxElements = 1024, kMaxOffset = 1u << 16;
  for (const Module& module : modules.all()) {
    if (!module.image) continue;
    const auto blocks = member(module, "_thread_db_pthread_specific");
    if (!blocks) continue;
    const auto values = member(module, "_thread_db_pthread_key_data_level2_data");
    const auto data = member(module, "_thread_db_pthread_key_data_data");
    // The array of blocks may be described as one element that has the bits of all of them.
    if (!values || !data || values->bits != kBitsOfValue || values->offset != 0 || data->bits != kBitsOfAddress ||
        data->offset != kBitsOfAddress / 8 || values->elements == 0 || values->elements > kMaxElements ||
        blocks->bits % kBitsOfAddress != 0 || blocks->bits > kBitsOfAddress * kMaxElements ||
        blocks->elements > kMaxElements || blocks->offset > kMaxOffset)
      return std::nullopt;
    return ThreadSpecifics{blocks->offset, blocks->bits / kBitsOfAddress * blocks->elements, values->elements};
  }
  return std::nullopt;
}

}  // namespace

CxxRuntime find_cxx_runtime(const ModuleMap& modules) {
  CxxRuntime runtime;
  const auto add_vtable = [](const Module& module, const char* name, std::vector<Address>& into) {
    // Where an object's pointer to its vtable points: behind the offset to the top and the type.
    constexpr Vaddr kFirstFunction = 16;
    const auto symbol = module.image->find_exported(name);
    if (symbol && symbol->type == STT_OBJECT && into.size() < kMaxVtables)
      into.push_back(module.to_address(symbol->value + kFirstFunction));
  };
  for (const Module& module : modules.all()) {
    if (!module.image) continue;
    // One search in every module, and the others only where they can succeed: programs may contain copies of a
    // library's data.
    const auto function = module.image->find_exported("__cxa_get_globals");
    if (!function && !is_program(*module.image)) continue;
    add_vtable(module, "_ZTVN10__cxxabiv117__class_type_infoE", runtime.class_types);
    add_vtable(module, "_ZTVN10__cxxabiv120__si_class_type_infoE", runtime.single_bases);
    add_vtable(module, "_ZTVN10__cxxabiv121__vmi_class_type_infoE", runtime.several_bases);
    for (const char* plain : {"_ZTVN10__cxxabiv123__fundamental_type_infoE", "_ZTVN10__cxxabiv116__enum_type_infoE",
                              "_ZTVN10__cxxabiv119__pointer_type_infoE"})
      add_vtable(module, plain, runtime.plain_types);
    if (runtime.storage.size() == kMaxRuntimes || !function || function->type != STT_FUNC) continue;
    const auto code_of = [&](const elf::Symbol& symbol) {
      const auto code = module.image->at(symbol.value);
      return code.first(std::min(code.size(), kMaxCode));
    };
    if (const auto storage = decode_exception_storage(code_of(*function), module.to_address(function->value))) {
      runtime.storage.push_back(*storage);
    } else if (const auto fast = module.image->find_exported("__cxa_get_globals_fast")) {
      if (const auto key = decode_exception_key(code_of(*fast), module.to_address(fast->value))) {
        ExceptionStorage by_key;
        by_key.key = key;
        runtime.storage.push_back(by_key);
      }
    }
  }
  if (std::any_of(runtime.storage.begin(), runtime.storage.end(), [](const auto& s) { return s.key.has_value(); }))
    runtime.specifics = find_thread_specifics(modules);
  return runtime;
}

namespace {

// Of two exceptions that a thread holds in two libraries: the stack grows downwards, so that the handler that was
// entered last has the lower address.
void add_handled(std::optional<HeldException>& held, HeldException one) {
  if (held) one.alone = held->alone = one.alone && held->alone && *held == one;
  if (!held || one.handler_sp < held->handler_sp) held = std::move(one);
}

}  // namespace

HeldExceptions read_held_exceptions(const Target& target, const CxxRuntime& runtime) {
  const auto threads = target.threads();
  HeldExceptions held{.handled = std::vector<std::optional<HeldException>>(threads.size()),
                      .raised = std::vector<std::optional<HeldException>>(threads.size())};
  const Reader reader(target, runtime);
  std::vector<std::uint64_t> uncaught(threads.size(), 0);
  for (const ExceptionStorage& storage : runtime.storage) {
    // In a live process, what is needed of all threads is fetched by one call each: their heads, their dtvs, their
    // globals.
    std::vector<Range> ranges;
    for (const ThreadInfo& thread : threads)
      if (thread.registers && thread.registers->fs_base < ~Address{0} - Reader::kHead)
        ranges.push_back({thread.registers->fs_base, thread.registers->fs_base + Reader::kHead});
    target.prefetch(ranges);
    ranges.clear();
    for (const ThreadInfo& thread : threads)
      if (thread.registers) reader.add_dtv(thread.registers->fs_base, storage, ranges);
    target.prefetch(ranges);
    ranges.clear();
    std::vector<std::pair<std::size_t, Address>> places;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      if (!threads[i].registers) continue;
      const auto globals = reader.globals_of(threads[i].registers->fs_base, storage);
      if (!globals || *globals > ~Address{0} - sizeof(EhGlobals)) continue;
      places.emplace_back(i, *globals);
      ranges.push_back({*globals, *globals + sizeof(EhGlobals)});
    }
    target.prefetch(ranges);
    for (const auto& [i, globals] : places) {
      const auto eh = target.read_value<EhGlobals>(globals);
      if (!eh) continue;
      uncaught[i] += eh->uncaught;
      if (auto one = reader.handled_by(*eh)) add_handled(held.handled[i], std::move(*one));
    }
  }
  std::size_t searched = 0;
  for (std::size_t i = 0; i < threads.size() && searched < kMaxSearchedThreads; ++i) {
    if (uncaught[i] == 0) continue;
    ++searched;
    held.raised[i] = reader.raised_in(*threads[i].registers, uncaught[i]);
  }
  return held;
}

}  // namespace rankstacks::target
