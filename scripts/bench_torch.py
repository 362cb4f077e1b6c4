#!/usr/bin/env python3
"""One training step of GPT-2's shape in PyTorch, timed: what scripts/bench_step.sh --torch and scripts/gpu_check compare with.

Forward, backward, clipping and fused AdamW; scaled_dot_product_attention; median and best of the steps after the warm-up.
usage: bench_torch.py LAYERS HEADS WIDTH VOCAB BATCH TOKENS fp32|bf16 [--compile] [--steps N] [--device cpu|cuda]
"""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, heads, width, vocab, tokens):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    for name in ("layers", "heads", "width", "vocab", "batch", "tokens"):
        parser.add_argument(name, type=int)
    parser.add_argument("precision", choices=("fp32", "bf16"))
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    o = parser.parse_args()
    torch.manual_seed(1)
    model = Gpt2(o.layers, o.heads, o.width, o.vocab, o.tokens).to(o.device)
    step_model = torch.compile(model) if o.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids = torch.randint(o.vocab, (o.batch, o.tokens + 1)).to(o.device)
    times = []
    for step in range(o.steps + 2):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(o.device, torch.bfloat16, enabled=o.precision == "bf16"):
            loss = step_model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if o.device == "cuda":
            torch.cuda.synchronize()
        if step >= 2:
            times.append(time.perf_counter() - begin)
    times.sort()
    tokens = o.batch * o.tokens
    print(f"{tokens / times[0]:.1f} {tokens / times[len(times) // 2]:.1f}")  # best, median tokens/s


if __name__ == "__main__":
    main()
