"""Ports for the jobs of one run, several of which are started at a time."""
import errno
import random
import socket
import threading

EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
DEFAULTS = (28028, 29400, 29500)      # of NCCL's RAS service, of torchrun's rendezvous and of torch's store: jobs other than this run's may have them
_lock, _left = threading.Lock(), None


def ephemeral_range():
    """The ports that the kernel gives to whoever asks for any: one of these can be taken at any time. (first, last)"""
    with open(EPHEMERAL, encoding="ascii") as stream:
        first, last = map(int, stream.read().split())
    return first, last


def candidates():
    """All ports if the kernel's range leaves none."""
    first, last = ephemeral_range()
    known = [port for port in range(10000, 65536) if port not in DEFAULTS]
    return [port for port in known if not first <= port <= last] or known


def is_free(port):
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if family == socket.AF_INET or error.errno == errno.EADDRINUSE:
                return False        # a machine without IPv6 has other errors
    return True


def free_port():
    """A port that nobody listens on, and that no other call in this process has returned. It is not held: between two runs of the benchmark on
    one machine chance decides, which is why the choice is random."""
    global _left                          # pylint: disable=global-statement
    with _lock:
        if _left is None:
            _left = candidates()
            random.shuffle(_left)
        while _left:
            port = _left.pop()
            if is_free(port):
                return port
    raise OSError("no port is left")
