#!/usr/bin/env python3
"""Compares what the trainer wrote with what the Python packages of the formats make of it. Ends with 0, or says what differs.

  compare.py references STORED FRESH          two folders made by hf_reference.py
  compare.py models PREFIX DIRECTORY...       transformers' logits and gradients of exported models, DIRECTORY/hf, against what
                                              `trainer eval` wrote to DIRECTORY for the tokens in PREFIX.bin
  compare.py events RUN_DIRECTORY             TensorBoard's losses against those in metrics.jsonl
"""
import json
import pathlib
import sys

NEAR = 1e-4  # of norms


def check(holds, what):
    if not holds:
        sys.exit(f"FAILED: {what}")


def check_near(found, wanted, what):
    check(found.shape == wanted.shape, f"{what}: wanted shape {tuple(wanted.shape)}, found {tuple(found.shape)}")
    difference, size = (found.double() - wanted.double()).norm().item(), wanted.double().norm().item()
    check(difference <= NEAR * size, f"{what}: wanted norm {size}, found a difference of {difference}")


def without(tensor, name, true_zeros):
    """Zero where Adam divided noise by noise."""
    tensor = tensor.clone()
    for zero in true_zeros:
        if name == "weight." + zero["tensor"]:
            tensor[zero["begin"]:zero["end"]] = 0
    return tensor


def references(stored, fresh):
    from safetensors.torch import load_file
    names = sorted(p.name for p in pathlib.Path(stored).iterdir())
    for name in names:
        a, b = pathlib.Path(stored) / name, pathlib.Path(fresh) / name
        record, again = (json.loads((p / "reference.json").read_text()) for p in (a, b))
        for key in ("losses", "gradient_norms"):
            for x, y in zip(record[key], again[key], strict=True):
                check(abs(x - y) <= 1e-5 * abs(x), f"{name}: {key}: stored {x} by torch {record['torch']}, now {y} by {again['torch']}")
        for file in ("model.safetensors", "reference.safetensors"):
            old, new = load_file(a / file), load_file(b / file)
            check(old.keys() == new.keys(), f"{name}/{file}: other tensors")
            for tensor in old:
                zeros = record["true_zero_gradients"]
                check_near(without(new[tensor], tensor, zeros), without(old[tensor], tensor, zeros), f"{name}/{file}: {tensor}")
    print(f"reference values made again: {', '.join(names)}")


def models(prefix, *directories):
    for directory in directories:
        model(directory, prefix)


def model(directory, prefix):
    import numpy
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
    found = load_file(pathlib.Path(directory) / "logits.safetensors")["logits"]
    rows, length, vocabulary = found.shape
    tokens = numpy.fromfile(prefix + ".bin", dtype=numpy.uint16, count=rows * length + 1).astype(numpy.int64)
    inputs, targets = (torch.from_numpy(tokens[i:i + rows * length].copy()).reshape(rows, length) for i in (0, 1))
    network, loading = AutoModelForCausalLM.from_pretrained(directory + "/hf", dtype=torch.float32, attn_implementation="eager",
                                                            output_loading_info=True)
    for kind, names in loading.items():
        check(not names, f"{directory}: {kind}: {names}")
    logits = network(input_ids=inputs).logits
    distance = (logits - found).abs().max().item()
    check(distance <= 1e-4, f"{directory}: logits differ by {distance}")
    torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), targets.reshape(-1)).backward()
    gradients = load_file(pathlib.Path(directory) / "gradients.safetensors")
    parameters = dict(network.named_parameters())
    check(gradients.keys() == parameters.keys(), f"{directory}: gradients of other tensors: {gradients.keys() ^ parameters.keys()}")
    for name, parameter in parameters.items():
        check_near(gradients[name], parameter.grad, f"{directory}: gradient of {name}")
    print(f"{directory}: transformers agrees, logits to {distance:.1e}")


def events(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    accumulator = EventAccumulator(run)
    accumulator.Reload()
    lines = [json.loads(line) for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()]
    wanted = {line["step"]: line["loss"] for line in lines if line["kind"] == "step"}
    found = {e.step: e.value for e in accumulator.Scalars("train/loss")}
    check(found.keys() == wanted.keys(), f"{run}: TensorBoard has steps {sorted(found)}, metrics.jsonl {sorted(wanted)}")
    for step, loss in wanted.items():
        check(abs(found[step] - loss) <= 1e-5 * loss, f"{run}: step {step}: wanted {loss}, TensorBoard has {found[step]}")
    print(f"TensorBoard reads {len(found)} steps")


if __name__ == "__main__":
    {"references": references, "models": models, "events": events}[sys.argv[1]](*sys.argv[2:])
