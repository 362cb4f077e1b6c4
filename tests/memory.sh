#!/usr/bin/env bash
# The estimate is the allocation, at full size: every config that fits this machine, under every recompute mode, stays
# within its arena and the allowance (else the run itself ends with 20), and all modes give the same losses, bit for bit.
# tests/memory.sh [TRAINER]; minutes
tests=$(dirname "${BASH_SOURCE[0]}")
set -- "${1:-$tests/../build/release/trainer}"
source "$tests/run/common.sh"
"$trainer" data pack --tokenizer chars --out corpus "$tests/data/tinyshakespeare.txt" > /dev/null
batch=(train.global_batch=2 train.micro_batch=1 train.steps=2 train.tokens=none schedule.warmup=0 train.eval_every=none checkpoint.every=none)
for config in "$tests"/../configs/*.yaml; do
  # A small corpus in place of the config's corpus; it keeps its own way of splitting off a validation part.
  data=(data.tokenizer=chars "data.train=[{path: corpus}]")
  grep -q split "$config" || data+=("data.valid=[{path: corpus}]")
  "$trainer" plan --config "$config" --json "${data[@]}" "${batch[@]}" | grep -q '"fits": true' || continue
  for mode in none selective full '{every: 2}'; do
    dir=$(basename "$config" .yaml)-${mode//[^a-z0-9]/}
    expect 0 "$trainer" --config "$config" "${data[@]}" "${batch[@]}" "memory.recompute=$mode" log.dir="$dir"
    echo "$dir: $(grep 'peak memory' out.txt)"
    rm -rf "$dir/checkpoints"
    series "$dir" | diff <(series "$(basename "$config" .yaml)-none") - || fail "$dir: other losses than without recompute"
  done
done
