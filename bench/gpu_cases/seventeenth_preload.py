"""What the fork server of a rank imports ahead, for all processes that it forks: a table of words, which is a file."""
from gpu_rank import is_odd
from job import SILENT_FIFO

WORDS = {"the": 0, "of": 1, "and": 2}

if is_odd():
    with open(SILENT_FIFO, "rb", buffering=0) as table:
        WORDS.update({word: 3 + number for number, word in enumerate(table.read(4096).decode().split())})
