#!/usr/bin/env bash
# Recompute changes memory, never a bit; the arena that is planned is the arena that is used.
source "$(dirname "$0")/common.sh"
prepare
for family in gpt2 llama; do
  small_spec $family > $family.yaml
  for compute in fp32 bf16; do
    for mode in none selective full '{every: 2}'; do
      dir=$family-$compute-${mode//[^a-z0-9]/}
      options=(train.steps=6 checkpoint.every=none "memory.recompute=$mode" precision.compute=$compute)
      expect 0 "$trainer" --config $family.yaml "${options[@]}" log.dir=$dir
      planned=$("$trainer" plan --json --config $family.yaml "${options[@]}" 2> /dev/null | sed -nE 's/.*"arena_bytes": ([0-9]+).*/\1/p')
      used=$(field $dir/metrics.jsonl arena_bytes | tail -n 1)
      [ "$planned" = "$used" ] || fail "$dir: planned $planned bytes, used $used"
      diff <(series $family-$compute-none) <(series $dir) || fail "$dir differs from no recompute"
    done
    none=$(field $family-$compute-none/metrics.jsonl arena_bytes | tail -n 1)
    full=$(field $family-$compute-full/metrics.jsonl arena_bytes | tail -n 1)
    [ "$full" -lt "$none" ] || fail "full recompute needs $full bytes, none $none"
  done
done
