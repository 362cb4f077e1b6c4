#!/usr/bin/env python3
"""Causal attention in PyTorch on a GPU by its own backends, forward and backward: what scripts/gpu_check compares `trainer bench
attention` with. FLOPs are those the mask leaves, as there.

usage: bench_torch_attention.py BATCH TOKENS HEADS KV_HEADS WIDTH
"""
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def best_seconds(run, launches=20, repeats=5):
    best = float("inf")
    for _ in range(repeats + 1):  # the first warms up
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(launches):
            run()
        end.record()
        end.synchronize()
        best = min(best, 1e-3 * begin.elapsed_time(end) / launches)
    return best


def main():
    batch, tokens, heads, kv_heads, width = map(int, sys.argv[1:])
    make = lambda n: torch.randn(batch, n, tokens, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    q, k, v = make(heads), make(kv_heads), make(kv_heads)
    product = 2.0 * batch * heads * width * tokens * (tokens + 1) / 2
    for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("FlashAttention", SDPBackend.FLASH_ATTENTION)):
        with sdpa_kernel(backend):
            attention = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
            try:
                out = attention()
            except RuntimeError as error:
                print(f"skipped: PyTorch's {name} does not take this shape: {error}".splitlines()[0])
                continue
            d_out = torch.randn_like(out)
            backward = lambda: torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True)
            print(f"{name} forward {2 * product / best_seconds(attention) * 1e-9:.0f} GFLOP/s")
            print(f"{name} backward {5 * product / best_seconds(backward) * 1e-9:.0f} GFLOP/s")


if __name__ == "__main__":
    main()
