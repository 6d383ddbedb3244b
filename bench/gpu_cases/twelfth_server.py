"""What ranks call on the rank that serves the parameters: torch.distributed.rpc finds functions by the module that they are in."""
import threading

import torch
import torch.distributed.rpc as rpc

guard, waiting = threading.Lock(), {}


@rpc.functions.async_execution
def push_gradients(number, count, gradients):
    """A future of the mean of `count` ranks' gradients of that step."""
    with guard:
        pushed, future = waiting.setdefault(number, ([], torch.futures.Future()))
        pushed.append(gradients)
        if len(pushed) == count:
            del waiting[number]
    if len(pushed) == count:
        future.set_result(torch.stack(pushed).mean(0))
    return future
