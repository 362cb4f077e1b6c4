#!/usr/bin/env bash
# A run saved under one layout goes on under any other: the state is the same bits when it is loaded, and the losses go
# on. `trainer parity` says so, and names what differs. `bash layouts_test.sh TRAINER`
source "$(dirname "$0")/common.sh"
prepare
small_spec gpt2 | sed 's/num_layers: 3/num_layers: 4/' > spec.yaml
base=(train.steps=12 schedule.warmup=2 train.micro_batch=1 train.global_batch=12 checkpoint.every=4 checkpoint.keep=9)
train() { local ranks=$1 dir=$2; shift 2; expect 0 "$trainer" --config spec.yaml --ranks "$ranks" "${base[@]}" log.dir="$dir" "$@"; }

train 1 one
train 4 first parallel.tp=2 parallel.zero=3
close one first

hash=$("$trainer" ckpt inspect --json first/checkpoints/step-4 | sed -nE 's/.*"state_hash": *"([^"]*)".*/\1/p')
[ -n "$hash" ] || fail "no state_hash"

# From step 4 on under another layout. Loading compares the state's hash over all ranks with the checkpoint's.
resume() {  # resume RANKS NAME OVERRIDES...
  local ranks=$1 name=$2
  shift 2
  mkdir "$name"
  cp -r first/checkpoints "$name/"
  rm -rf "$name"/checkpoints/step-8 "$name"/checkpoints/step-12 "$name/checkpoints/LATEST"
  grep '"kind":"step","step":[1-4],' first/metrics.jsonl > "$name/metrics.jsonl"
  train "$ranks" "$name" "$@"
  contains out.txt "resumed from step 4 "
  contains out.txt "state $hash"
  close one "$name"
}
resume 3 dp3 parallel.zero=1
resume 4 tp4 parallel.tp=4 parallel.sequence_parallel=true
resume 1 alone
resume 2 pp2 parallel.pp=2
resume 3 uneven parallel.pp=3 parallel.pipeline.schedule=zb_h1 "parallel.pipeline.split=[2, 1, 1]"
resume 4 looped parallel.pp=2 parallel.pipeline.virtual_stages=2 parallel.pipeline.schedule=interleaved parallel.zero=3
resume 4 vee parallel.pp=2 parallel.tp=2 parallel.pipeline.virtual_stages=2 parallel.pipeline.schedule=zb_v
# And back.
cp -r dp3 back
rm -rf back/checkpoints/step-12 back/checkpoints/LATEST
sed -i '/"kind":"step","step":\(9\|1.\),/d' back/metrics.jsonl
train 4 back parallel.tp=2 parallel.zero=3
contains out.txt "resumed from step 8"
close one back
expect 0 "$trainer" ckpt verify back/checkpoints/step-12

{ cat spec.yaml; echo 'parallel: {tp: 2, dp: 2, zero: 2}'; } > four.yaml
sed -i 's/micro_batch: 4/micro_batch: 2/' four.yaml
expect 0 "$trainer" parity spec.yaml four.yaml --steps 3
contains out.txt "the same: losses to 1e-05"
sed 's/seed: 1,/seed: 2,/' four.yaml > other.yaml
expect 1 "$trainer" parity spec.yaml other.yaml --steps 2
contains out.txt "step 1: "
contains out.txt "differs by"
