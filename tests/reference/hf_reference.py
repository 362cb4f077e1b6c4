#!/usr/bin/env python3
"""Tiny, randomly initialised Hugging Face models and what PyTorch computes with them.

Writes DIR/NAME/{config.json, model.safetensors, reference.json, reference.safetensors} for each family; see README.md beside this file.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

VOCAB, BATCH, SEQ_LEN, STEPS = 96, 2, 24, 3
OPTIMIZER = {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0}
TRUE_ZERO = 1e-6  # a gradient's norm below it is rounding noise

COMMON = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.15, attention_dropout=0.0,
              bos_token_id=None, eos_token_id=None, use_cache=False)
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}


def models():
    eager = {"attn_implementation": "eager"}
    yield "gpt2", lambda: GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCAB, n_positions=64, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        initializer_range=0.15, bos_token_id=None, eos_token_id=None, use_cache=False, **eager))
    yield "llama", lambda: LlamaForCausalLM(LlamaConfig(**COMMON, rms_norm_eps=1e-5, rope_parameters=LLAMA3_ROPE, **eager))
    yield "qwen2", lambda: Qwen2ForCausalLM(Qwen2Config(**COMMON, rms_norm_eps=1e-6, rope_parameters=PLAIN_ROPE,
                                                tie_word_embeddings=True, **eager))
    yield "qwen3", lambda: Qwen3ForCausalLM(Qwen3Config(**COMMON, head_dim=16, rms_norm_eps=1e-6, rope_parameters=PLAIN_ROPE,
                                                **eager))
    yield "mistral", lambda: MistralForCausalLM(MistralConfig(**COMMON, rms_norm_eps=1e-5, rope_parameters=PLAIN_ROPE,
                                                      sliding_window=7, **eager))


def randomise(model):
    """Norms away from one and biases away from zero: otherwise a missing one goes unseen."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)


def loss_of(model, tokens, targets):
    logits = model(input_ids=tokens).logits
    return logits, torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


def train(model, tokens, targets):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": OPTIMIZER["weight_decay"]},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=OPTIMIZER["lr"], betas=OPTIMIZER["betas"], eps=OPTIMIZER["eps"])
    losses, norms, tensors = [], [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        logits, loss = loss_of(model, tokens[step], targets[step])
        loss.backward()
        if step == 0:
            tensors["logits"] = logits.detach().clone()
            for name, p in model.named_parameters():
                tensors["gradient." + name] = p.grad.detach().clone()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip"]).item())
        optimizer.step()
        losses.append(loss.item())
    for name, p in model.named_parameters():
        tensors["weight." + name] = p.detach().clone()
    return losses, norms, tensors


def true_zeros(name, model, gradients):
    """Elements whose gradient is zero in exact arithmetic: without rotation, a key's bias shifts all scores of a row alike."""
    if name != "gpt2":
        return []
    width = model.config.n_embd
    parts = [{"tensor": f"transformer.h.{i}.attn.c_attn.bias", "begin": width, "end": 2 * width}
             for i in range(model.config.n_layer)]
    for p in parts:
        assert gradients["gradient." + p["tensor"]][p["begin"]:p["end"]].norm() < TRUE_ZERO
    return parts


def main(directory):
    for name, build in models():
        torch.manual_seed(sum(map(ord, name)))
        model = build()
        randomise(model)
        model = model.float().train()
        out = pathlib.Path(directory) / name
        out.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(out)
        (out / "generation_config.json").unlink(missing_ok=True)
        samples = torch.randint(0, VOCAB, (STEPS, BATCH, SEQ_LEN + 1))
        tokens, targets = samples[..., :-1].contiguous(), samples[..., 1:].contiguous()
        losses, norms, tensors = train(model, tokens, targets)
        zero = true_zeros(name, model, tensors)
        tensors["tokens"], tensors["targets"] = tokens.int(), targets.int()
        save_file(tensors, out / "reference.safetensors")
        record = {"optimizer": OPTIMIZER, "losses": losses, "gradient_norms": norms, "true_zero_gradients": zero,
                  "torch": torch.__version__}
        for file in out.iterdir():
            file.chmod(0o644)
        (out / "reference.json").write_text(json.dumps(record, indent=2) + "\n")
        print(name, losses, norms, zero)


if __name__ == "__main__":
    main(sys.argv[1])
