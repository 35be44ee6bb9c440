"""Runs norms with the statistics of a group in several processes: ranks.py N FOLDER. Reads FOLDER/given.pt:
variants of norms, and for each step x and dy of each rank; writes FOLDER/rankR.pt."""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import norma.torch as nt


def work(rank, n, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=n)
    given = torch.load(os.path.join(folder, "given.pt"))
    results = []
    for type, options in given["variants"]:
        norm = nt.Norm(type, 12, **{"groups": 3, **options}, dtype=torch.float64, statistics="group")
        with torch.no_grad():
            for param in norm.parameters():
                param.add_(torch.linspace(0.1, 0.4, param.numel(), dtype=param.dtype).reshape(param.shape))
        steps = []
        for pair in given["steps"]:
            x, dy = pair[rank]
            x = x.clone().requires_grad_()
            norm.zero_grad()
            y = norm(x)
            ((y * dy).sum() + 0.5 * norm.penalty).backward()
            steps.append({"y": y.detach(), "dx": x.grad, "penalty": norm.penalty.detach(),
                          "grads": {name: param.grad.clone() for name,
                                    param in norm.named_parameters() if param.requires_grad},
                          "state": {name: buffer.clone() for name, buffer in norm.named_buffers()}})
        results.append(steps)
    torch.save(results, os.path.join(folder, f"rank{rank}.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, (int(sys.argv[1]), sys.argv[2]), nprocs=int(sys.argv[1]))
