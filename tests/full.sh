#!/usr/bin/env bash
# The checks that need Python packages (tests/reference/requirements.txt): tests/full.sh [TRAINER]. What is not installed
# is skipped, and said.
tests=$(dirname "${BASH_SOURCE[0]}")
set -- "${1:-$tests/../build/release/trainer}"
source "$tests/run/common.sh"
compare="$tests/reference/compare.py"
have() { python3 -c "import $1" 2> /dev/null; }

prepare
if have tensorboard; then
  small_spec llama > llama.yaml
  expect 0 "$trainer" --config llama.yaml
  python3 "$compare" events run
else
  echo "skipped: python3 has no tensorboard, so no event file was read back"
fi

if ! have torch,transformers,safetensors; then
  echo "skipped: python3 lacks torch, transformers or safetensors, so PyTorch's values were not made again"
  exit 0
fi
python3 "$tests/reference/hf_reference.py" fresh > /dev/null
python3 "$compare" references "$tests/data/hf" fresh
# 65 characters fit the models' vocabulary of 96.
expect 0 "$trainer" data pack --tokenizer chars --out chars "$tests/data/tinyshakespeare.txt"
names=$(ls "$tests/data/hf")
for name in $names; do
  expect 0 "$trainer" ckpt import "$tests/data/hf/$name" --out "$name"
  expect 0 "$trainer" ckpt export "$name/step-0" --out "$name/hf"
  expect 0 "$trainer" eval --checkpoint "$name/step-0" --data chars --batch 3 --seq-len 40 \
    --logits "$name/logits.safetensors" --gradients "$name/gradients.safetensors"
done
python3 "$compare" models chars $names
