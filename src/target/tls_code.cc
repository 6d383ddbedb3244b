// The few instructions that compilers and linkers use in a function that returns the address of a thread-local
// variable.
//
//     general and local dynamic    lea pair(%rip),%rdi; call __tls_get_addr; [add $offset,%rax]
//     initial exec                 mov %fs:0,%rax; add slot(%rip),%rax
//                               or  mov slot(%rip),%rax; add %fs:0,%rax
//     local exec                   mov %fs:0,%rax; lea offset(%rax),%rax
//                               or  add $offset,%rax
//
// with endbr64, pushes and stack adjustment around them. Source: Drepper, "ELF Handling For Thread-Local Storage", 4.1
// to 4.4, x86-64; checked against Debian's libstdc++ of GCC 10 to 14. Descriptors (-mtls-dialect=gnu2) are not decoded:
// only their resolver knows what they contain.
//
// Also the code of libc++abi's __cxa_get_globals_fast without such variables (LLVM, libcxxabi/src/
// cxa_exception_storage.cpp), as Debian's libc++abi of LLVM 14 to 16 has it:
//
//     lea flag(%rip),%rdi; lea function(%rip),%rsi; call pthread_once; test %eax,%eax; jne ...
//     mov key(%rip),%edi; jmp pthread_getspecific
//                     or  call pthread_getspecific; ret
#include <cstring>

#include "target/cxx_exceptions.h"

namespace rankstacks::target {
namespace {

class Code {
 public:
  Code(std::span<const std::byte> bytes, Address at) : bytes_(bytes), at_(at) {}

  // Skips `pattern` if it comes next.
  bool take(std::initializer_list<unsigned char> pattern) {
    if (bytes_.size() - next_ < pattern.size()) return false;
    std::size_t i = next_;
    for (const unsigned char byte : pattern)
      if (std::to_integer<unsigned char>(bytes_[i++]) != byte) return false;
    next_ = i;
    return true;
  }
  template <class Number>
  std::optional<std::int64_t> number() {
    Number value;
    if (bytes_.size() - next_ < sizeof value) return std::nullopt;
    std::memcpy(&value, bytes_.data() + next_, sizeof value);
    next_ += sizeof value;
    return value;
  }
  // An operand relative to the next instruction, which begins right behind it.
  std::optional<Address> relative() {
    const auto distance = number<std::int32_t>();
    if (!distance) return std::nullopt;
    return at_ + next_ + static_cast<Address>(*distance);
  }
  bool take_push_or_pop() {
    if (next_ >= bytes_.size()) return false;
    const auto byte = std::to_integer<unsigned char>(bytes_[next_]);
    if (byte < 0x50 || byte > 0x5f) return false;
    ++next_;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  Address at_;
  std::size_t next_ = 0;
};

}  // namespace

std::optional<ExceptionStorage> decode_exception_storage(std::span<const std::byte> bytes, Address at) {
  constexpr int kMaxInstructions = 16;
  Code code(bytes, at);
  ExceptionStorage storage;
  std::optional<Address> pair;
  bool called = false, thread_pointer = false;
  for (int i = 0; i < kMaxInstructions; ++i) {
    while (code.take({0x66})) {}  // padding that allows linkers to put other code there
    if (code.take({0xf3, 0x0f, 0x1e, 0xfa}) || code.take({0x48, 0x89, 0xe5}) || code.take({0xc9}))
      continue;                                                            // endbr64; mov %rsp,%rbp; leave
    if (code.take({0x48, 0x83, 0xec}) || code.take({0x48, 0x83, 0xc4})) {  // sub, add $n,%rsp
      if (!code.number<std::int8_t>()) return std::nullopt;
    } else if (code.take({0x48, 0x8d, 0x3d})) {  // lea pair(%rip),%rdi
      pair = code.relative();
      if (!pair) return std::nullopt;
    } else if (code.take({0xe8}) || code.take({0x48, 0xe8}) || code.take({0x67, 0xe8}) ||
               code.take({0x48, 0xff, 0x15}) || code.take({0xff, 0x15})) {  // call
      if (!pair || called || thread_pointer || !code.relative()) return std::nullopt;
      called = true;
    } else if (code.take({0x64, 0x48, 0x8b, 0x04, 0x25})) {  // mov %fs:0,%rax
      if (thread_pointer || called || storage.offset_slot || code.number<std::int32_t>() != 0) return std::nullopt;
      thread_pointer = true;
    } else if (code.take({0x64, 0x48, 0x03, 0x04, 0x25})) {  // add %fs:0,%rax
      if (thread_pointer || !storage.offset_slot || code.number<std::int32_t>() != 0) return std::nullopt;
      thread_pointer = true;
    } else if (code.take({0x48, 0x8b, 0x05})) {  // mov slot(%rip),%rax
      if (thread_pointer || called || storage.offset_slot) return std::nullopt;
      storage.offset_slot = code.relative();
      if (!storage.offset_slot) return std::nullopt;
    } else if (code.take({0x48, 0x03, 0x05})) {  // add slot(%rip),%rax
      if (!thread_pointer || storage.offset_slot) return std::nullopt;
      storage.offset_slot = code.relative();
      if (!storage.offset_slot) return std::nullopt;
    } else if (code.take({0x48, 0x05}) || code.take({0x48, 0x8d, 0x80})) {  // add $n,%rax; lea n(%rax),%rax
      const auto n = code.number<std::int32_t>();
      if (!n || (!called && !thread_pointer)) return std::nullopt;
      storage.offset += *n;
    } else if (code.take({0x48, 0x83, 0xc0}) || code.take({0x48, 0x8d, 0x40})) {  // the same with a short n
      const auto n = code.number<std::int8_t>();
      if (!n || (!called && !thread_pointer)) return std::nullopt;
      storage.offset += *n;
    } else if (code.take({0xc3})) {
      if (called == thread_pointer) return std::nullopt;  // neither, or both
      if (called) storage.module_slot = pair;
      return storage;
    } else if (!code.take_push_or_pop()) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<Address> decode_exception_key(std::span<const std::byte> bytes, Address at) {
  constexpr int kMaxInstructions = 16;
  Code code(bytes, at);
  std::optional<Address> flag, function, key;
  bool called = false, tested = false, branched = false, got = false;
  for (int i = 0; i < kMaxInstructions; ++i) {
    if (code.take({0xf3, 0x0f, 0x1e, 0xfa}) || code.take({0x48, 0x89, 0xe5})) continue;  // endbr64; mov %rsp,%rbp
    if (code.take({0x48, 0x83, 0xec}) || code.take({0x48, 0x83, 0xc4})) {                // sub, add $n,%rsp
      if (!code.number<std::int8_t>()) return std::nullopt;
    } else if (code.take({0x48, 0x8d, 0x3d})) {  // lea flag(%rip),%rdi
      if (flag || !(flag = code.relative())) return std::nullopt;
    } else if (code.take({0x48, 0x8d, 0x35})) {  // lea function(%rip),%rsi
      if (function || !(function = code.relative())) return std::nullopt;
    } else if (code.take({0xe8}) || code.take({0xff, 0x15})) {  // call
      if (!flag || !function || got || called != key.has_value() || !code.relative()) return std::nullopt;
      (called ? got : called) = true;
    } else if (code.take({0x85, 0xc0})) {  // test %eax,%eax
      if (!called || tested) return std::nullopt;
      tested = true;
    } else if (code.take({0x75})) {  // jne
      if (!tested || branched || !code.number<std::int8_t>()) return std::nullopt;
      branched = true;
    } else if (code.take({0x0f, 0x85})) {
      if (!tested || branched || !code.relative()) return std::nullopt;
      branched = true;
    } else if (code.take({0x8b, 0x3d})) {  // mov key(%rip),%edi
      if (!branched || key || !(key = code.relative())) return std::nullopt;
    } else if (code.take({0xe9}) || code.take({0xff, 0x25})) {  // jmp
      return got || !code.relative() ? std::nullopt : key;
    } else if (code.take({0xc3})) {
      return got ? key : std::nullopt;
    } else if (!code.take_push_or_pop()) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace rankstacks::target
