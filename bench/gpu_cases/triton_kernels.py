"""Triton compiles a kernel from the file that it is in."""
import triton
import triton.language as tl


@triton.jit
def wait_for_flag(flag):
    value = tl.load(flag, volatile=True)
    while value == 0:
        value = tl.load(flag, volatile=True)
    tl.store(flag, value)


@triton.jit
def scale(values, factor, size: tl.constexpr):
    offsets = tl.arange(0, size)
    tl.store(values + offsets, tl.load(values + offsets) * factor)


@triton.jit
def add_under_lock(lock, total, value):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + value)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)
