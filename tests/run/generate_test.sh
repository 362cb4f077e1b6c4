#!/usr/bin/env bash
# A trained model continues what it has seen; the seed decides; eval agrees with the training loss.
source "$(dirname "$0")/common.sh"
prepare
for family in gpt2 llama; do
  small_spec $family > $family.yaml
  expect 0 "$trainer" --config $family.yaml log.dir=$family train.steps=120
  step=$family/checkpoints/step-120
  expect 0 "$trainer" generate --checkpoint $step --prompt "First" --tokens 20 --seed 7 --top-k 20 --top-p 0.9
  cp out.txt one.txt
  expect 0 "$trainer" generate --checkpoint $step --prompt "First" --tokens 20 --seed 7 --top-k 20 --top-p 0.9
  diff one.txt out.txt || fail "the same seed gives another text"
  contains out.txt "First"
  expect 0 "$trainer" generate --checkpoint $step --prompt "First" --tokens 20 --temperature 0 --json
  contains out.txt '"tokens"'
  expect 0 "$trainer" eval --checkpoint $step --data corpus --batch 4 --seq-len 32 --logits logits.safetensors --gradients gradients.safetensors --json
  loss=$(sed -nE 's/.*"loss": ([0-9.]+).*/\1/p' out.txt)
  awk -v x="$loss" 'BEGIN {exit !(x > 1 && x < 3.6)}' || fail "eval of a trained model says $loss"
  [ "$(stat -c %s logits.safetensors)" -gt $((4 * 32 * 257 * 4)) ] || fail "logits are missing"
done
