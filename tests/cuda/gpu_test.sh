#!/usr/bin/env bash
# The binary on an emulated GPU, from YAML: it learns, goes on after a kill and from a CPU's checkpoint, and says in one
# sentence what is wrong with a machine. `bash gpu_test.sh TRAINER`
source "$(dirname "$0")/../run/common.sh"
prepare
gpu=(device.kind=cuda train.steps=12 schedule.warmup=2 checkpoint.every=4)
for family in gpt2 llama; do
  small_spec $family > $family.yaml
  expect 0 "$trainer" --config $family.yaml "${gpu[@]}" log.dir=gpu-$family
  expect 0 "$trainer" --config $family.yaml "${gpu[@]}" device.kind=cpu log.dir=cpu-$family
  close cpu-$family gpu-$family
done
expect 0 "$trainer" --config llama.yaml "${gpu[@]}" log.dir=again-llama
diff <(series gpu-llama) <(series again-llama) || fail "two runs differ"
times_add_up() {
  sed -nE 's/.*"step_seconds":([^,]*),.*"time":\{"compute":([^,]*),"exposed_comm":([^,]*),"data_wait":([^,]*),"checkpoint":[^,]*,"other":([^}]*)\}.*/\1 \2 \3 \4 \5/p' "$1/metrics.jsonl" |
    awk '{sum = $2 + $3 + $4 + $5; if ($2 <= 0 || $4 < 0 || sum < 0.999 * $1 || sum > 1.001 * $1) exit 1} END {exit NR != 12}' ||
    fail "$1: times of steps do not add up"
}
times_add_up gpu-gpt2
contains gpu-gpt2/metrics.jsonl '"kind":"eval","step":12'

# Steps as CUDA graphs: the same run to the last bit, also where it begins as a graph again after a kill.
graph=("${gpu[@]}" device.cuda_graph=true log.trace=true)
expect 0 "$trainer" --config gpt2.yaml "${graph[@]}" log.dir=graph
contains graph/trace.json '"name":"forward'
diff <(series gpu-gpt2) <(series graph) || fail "other losses with graphs"
times_add_up graph
code=0
TRAINER_FAIL="step_end@step=6:kill" "$trainer" --config gpt2.yaml "${graph[@]}" log.dir=graph-killed > out.txt 2>&1 || code=$?
[ $code = 137 ] || { cat out.txt; fail "wanted a kill, found exit code $code"; }
expect 0 "$trainer" --config gpt2.yaml "${graph[@]}" log.dir=graph-killed
diff <(series graph) <(series graph-killed) || fail "other losses after the kill of a run with graphs"
expect 10 "$trainer" --config gpt2.yaml "${graph[@]}" device.kind=cpu log.dir=refused
contains err.txt "device.cuda_graph: true makes a CUDA graph of a step, and the device is a CPU"

# Killed in mid-run, it goes on to the same losses; and from one device to the other.
code=0
TRAINER_FAIL="step_end@step=6:kill" "$trainer" --config gpt2.yaml "${gpu[@]}" log.dir=killed > out.txt 2>&1 || code=$?
[ $code = 137 ] || { cat out.txt; fail "wanted a kill, found exit code $code"; }
expect 0 "$trainer" --config gpt2.yaml "${gpu[@]}" log.dir=killed
diff <(series gpu-gpt2) <(series killed) || fail "other losses after the kill"
mkdir moved
cp -r cpu-llama/checkpoints moved/
rm -rf moved/checkpoints/step-12 moved/checkpoints/LATEST
grep -E '"kind":"step","step":[1-8],' cpu-llama/metrics.jsonl > moved/metrics.jsonl
expect 0 "$trainer" --config llama.yaml "${gpu[@]}" log.dir=moved
contains out.txt "resumed from step 8"
close cpu-llama moved
state() { field "$1/checkpoints/step-12/MANIFEST.json" state_hash; }
[ "$(state gpu-llama)" = "$(state again-llama)" ] || fail "two runs end in different states"
[ "$(state gpu-gpt2)" = "$(state graph)" ] || fail "a run with graphs ends in another state"

# The host's memory beside a GPU is not promised: an image of this state alone is larger than the allowance.
expect 0 "$trainer" --config gpt2.yaml "${gpu[@]}" train.steps=1 schedule.warmup=0 checkpoint.every=none model.vocab_size=65536 \
  model.hidden_size=256 train.eval_every=none log.dir=large

# Algorithms of products: found by timing once, then read; a file of another library, or one that cannot be written.
expect 0 "$trainer" --config llama.yaml "${gpu[@]}" device.heuristics=algorithms log.dir=searched
grep -qE 'device.heuristics: algorithms, [1-9][0-9]* searched' out.txt || { cat out.txt; fail "nothing searched"; }
cp algorithms first
expect 0 "$trainer" --config llama.yaml "${gpu[@]}" device.heuristics=algorithms log.dir=read
contains out.txt "device.heuristics: algorithms, 0 searched"
cmp algorithms first || fail "the file of algorithms changed"
diff <(series searched) <(series read) || fail "other losses with the same algorithms"
close gpu-llama read
sed -E 's/ \| [0-9]+ \| (f32|bf16)/ | 120000 | \1/' first > other
expect 10 "$trainer" --config llama.yaml "${gpu[@]}" device.heuristics=other log.dir=refused
contains err.txt "other: its algorithms are of "
contains err.txt "with cuBLASLt 120000, and this is "
expect 14 "$trainer" --config llama.yaml "${gpu[@]}" device.heuristics=nowhere/algorithms log.dir=refused
contains err.txt "nowhere/algorithms"

# TF32 rounds the factors of products.
expect 0 "$trainer" --config llama.yaml "${gpu[@]}" precision.tf32=true log.dir=tf32
! diff -q <(series gpu-llama) <(series tf32) > /dev/null || fail "precision.tf32 changes nothing"

# Attention in bf16 has fast kernels for some head widths only.
expect 21 "$trainer" --config gpt2.yaml "${gpu[@]}" precision.compute=bf16 log.dir=bf16
contains err.txt "no fast attention in bf16 for a head width of 8"
expect 0 "$trainer" --config gpt2.yaml "${gpu[@]}" precision.compute=bf16 device.fallback=true log.dir=bf16
contains out.txt "plain attention kernels for a head width of 8"
expect 0 "$trainer" --config gpt2.yaml "${gpu[@]}" precision.compute=bf16 model.hidden_size=64 model.num_heads=1 train.steps=4 log.dir=wide

# A machine that is unfit.
refused() {  # refused CODE SENTENCE VARIABLE=VALUE... [-- OVERRIDES...]
  local code=$1 sentence=$2 variables=()
  shift 2
  while [ $# -gt 0 ] && [ "$1" != -- ]; do variables+=("$1"); shift; done
  [ $# = 0 ] || shift
  expect "$code" env "${variables[@]}" "$trainer" --config gpt2.yaml "${gpu[@]}" log.dir=refused "$@"
  contains err.txt "$sentence"
  [ "$(grep -c '^trainer: ' err.txt)" = 1 ] || { cat err.txt; fail "wanted one sentence"; }
}
refused 21 "no GPU is visible" FAKECUDA_DEVICES=0
refused 21 "no NVIDIA driver" FAKECUDA_DRIVER=0
refused 21 "the driver is for CUDA 12.2" FAKECUDA_DRIVER=12020
refused 21 "wanted sm_80 or newer" FAKECUDA_ARCH=75
refused 21 "a run wants GPUs of one kind" FAKECUDA_ARCH=90,80
refused 20 "GiB of reserve on the GPU" FAKECUDA_MEM_MB=300
refused 21 "allocating the arena: out of memory" FAKECUDA_FAIL=cudaMalloc:1
refused 10 "parallel.comm: shm connects CPUs" X=1 -- parallel.comm=shm
