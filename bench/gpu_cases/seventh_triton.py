"""Triton compiles a kernel from the file that it is in."""
import triton
import triton.language as tl


@triton.jit
def say_number(flag, number):
    tl.atomic_xchg(flag, number)


@triton.jit
def wait_and_scale(values, flag, number):
    """Waits until the number is reached, and scales 1024 values then."""
    while tl.load(flag, volatile=True) < number:
        pass
    places = values + tl.arange(0, 1024)
    tl.store(places, tl.load(places) * 0.5)
