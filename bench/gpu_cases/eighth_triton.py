"""Triton compiles a kernel from the file that it is in."""
import triton
import triton.language as tl


@triton.jit
def scale_when_ready(values, flag, number):
    """Waits until the number is reached, and scales one of 1024 values then."""
    while tl.load(flag, volatile=True) < number:
        pass
    place = values + tl.program_id(0) % 1024
    tl.store(place, tl.load(place) * 0.5)


@triton.jit
def find_root(square, root, limit):
    """Newton's method, until the error is not above the limit."""
    wanted, smallest = tl.load(square), tl.load(limit)
    guess = wanted
    while tl.abs(guess * guess - wanted) > smallest:
        guess = 0.5 * (guess + wanted / guess)
    tl.store(root, guess)
