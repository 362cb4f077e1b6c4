#!/usr/bin/env bash
# A small model of each family learns, in both precisions, and leaves behind what the formats promise.
source "$(dirname "$0")/common.sh"
prepare
for family in gpt2 llama; do
  small_spec $family > $family.yaml
  for compute in fp32 bf16; do
    run=$family-$compute
    expect 0 "$trainer" --config $family.yaml log.dir=$run precision.compute=$compute
    first=$(sed -nE 's/.*"step":1,"loss":([0-9.]+).*/\1/p' $run/metrics.jsonl)
    last=$(sed -nE 's/.*"step":24,"loss":([0-9.]+).*/\1/p' $run/metrics.jsonl)
    awk -v a="$first" -v b="$last" 'BEGIN {exit !(a > 5.3 && a < 5.8 && b < a - 1.2)}' || fail "$run: loss went from $first to $last"
    contains $run/metrics.jsonl '"kind":"eval","step":24'
    [ "$(grep -c '"kind":"step"' $run/metrics.jsonl)" = 24 ] || fail "$run: not a line per step"
    for key in grad_norm lr tokens tokens_per_second step_seconds time mfu data_hash attempt comm_bytes arena_bytes peak_rss; do
      contains $run/metrics.jsonl "\"$key\":"
    done
    contains $run/events.jsonl '"event":"save","step":24'
    contains $run/events.jsonl '"event":"end"'
    contains $run/resolved.yaml 'compute: '
    ls $run/events.out.tfevents.* > /dev/null
    [ "$(ls -d $run/checkpoints/step-* | wc -l)" = 3 ] || fail "$run: checkpoint.keep is 3, found $(ls $run/checkpoints)"
    expect 0 "$trainer" ckpt verify $run/checkpoints/step-24
  done
done
# The same run again gives the same bits.
expect 0 "$trainer" --config gpt2.yaml log.dir=again
diff <(series gpt2-fp32) <(series again) || fail "two runs differ"
