"""Triton compiles a kernel from the file that it is in."""
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"step": step}) for step in (64, 128, 256)], key=["size"])
@triton.jit
def add_up(ring, total, size, capacity, step: tl.constexpr):
    """Adds up what is in a ring, from its begin to `size`, which it takes for a multiple of the step."""
    position = size * 0
    result = tl.load(total)
    while position != size:
        result += tl.sum(tl.load(ring + position + tl.arange(0, step), volatile=True))
        position = (position + step) % capacity
    tl.store(total, result)


@triton.jit
def wait_for_number(flag, number):
    while tl.load(flag, volatile=True) < number:
        pass
