"""Rounds of training steps of torch_step.py and torch_lm_step.py.

With --rounds a process runs several rounds, so that PyTorch is imported and the model is built only once: it
reads numbers of threads from standard input, one per line, and runs a round with each until the input ends.
"""
import resource
import sys

import torch


def run(stay, measure):
    """measure() runs the steps of a round and returns the target tokens and seconds of each. Batches have
    different numbers of tokens, so the throughput is that of all steps."""
    for threads in sys.stdin if stay else [torch.get_num_threads()]:
        torch.set_num_threads(int(threads))
        steps = measure()
        tokens, seconds = (sum(column) for column in zip(*steps))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(f"torch {torch.__version__}, {torch.get_num_threads()} threads: {len(steps)} steps, "
              f"{tokens / seconds:.0f} target tokens/s, peak {peak} MiB", flush=True)
