"""Triton compiles a kernel from the file that it is in."""
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["seed"])
def draw_between(noise, bounds, seed):
    """Draws 128 numbers from 0 to 1 again and again, until all of them are between the bounds: of those that are not,
    new ones are drawn."""
    places = tl.arange(0, 128)
    low, high = tl.load(bounds), tl.load(bounds + 1)
    numbers = tl.rand(seed, places)
    outside = tl.sum(((numbers < low) | (numbers > high)).to(tl.int32), axis=0)
    drawn = seed * 0
    while outside > 0:
        drawn += 128
        numbers = tl.where((numbers < low) | (numbers > high), tl.rand(seed, places + drawn), numbers)
        outside = tl.sum(((numbers < low) | (numbers > high)).to(tl.int32), axis=0)
    tl.store(noise + places, numbers)
