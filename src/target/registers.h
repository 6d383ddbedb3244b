// The registers of one x86-64 thread, in DWARF's numbering.
//
// Source: System V ABI, AMD64 supplement, figure 3.36 "DWARF Register Number Mapping".
#pragma once

#include <sys/user.h>
#include <array>
#include <cstdint>

#include "base/types.h"

namespace rankstacks::target {

enum DwarfRegister : unsigned {
  kRax = 0,
  kRdx = 1,
  kRcx = 2,
  kRbx = 3,
  kRsi = 4,
  kRdi = 5,
  kRbp = 6,
  kRsp = 7,
  kR8 = 8,
  kR9 = 9,
  kR10 = 10,
  kR11 = 11,
  kR12 = 12,
  kR13 = 13,
  kR14 = 14,
  kR15 = 15,
  kRip = 16,
};
inline constexpr unsigned kDwarfRegisters = 17;

struct Registers {
  std::array<std::uint64_t, kDwarfRegisters> value{};
  std::uint32_t known = 0;     // bit n: register n is known
  std::int64_t orig_rax = -1;  // the number of the system call that the thread is in; -1: none
  // The thread pointer: the address of glibc's struct pthread, and the value of pthread_self().
  Address fs_base = 0;

  std::uint64_t operator[](unsigned r) const { return value[r]; }
  bool has(unsigned r) const { return (known >> r) & 1u; }
  void set(unsigned r, std::uint64_t v) {
    value[r] = v;
    known |= 1u << r;
  }
  Address pc() const { return value[kRip]; }
  Address sp() const { return value[kRsp]; }

  static Registers from_user_regs(const user_regs_struct& u) {
    Registers r;
    r.set(kRax, u.rax);
    r.set(kRdx, u.rdx);
    r.set(kRcx, u.rcx);
    r.set(kRbx, u.rbx);
    r.set(kRsi, u.rsi);
    r.set(kRdi, u.rdi);
    r.set(kRbp, u.rbp);
    r.set(kRsp, u.rsp);
    r.set(kR8, u.r8);
    r.set(kR9, u.r9);
    r.set(kR10, u.r10);
    r.set(kR11, u.r11);
    r.set(kR12, u.r12);
    r.set(kR13, u.r13);
    r.set(kR14, u.r14);
    r.set(kR15, u.r15);
    r.set(kRip, u.rip);
    r.orig_rax = static_cast<std::int64_t>(u.orig_rax);
    r.fs_base = u.fs_base;
    return r;
  }
};

}  // namespace rankstacks::target
