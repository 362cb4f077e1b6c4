#!/usr/bin/env bash
# `trainer bench` on an emulated GPU, at sizes that it can do: `bash gpu_bench_test.sh TRAINER`.
source "$(dirname "$0")/../run/common.sh"
prepare
small=(--device cuda --roof-size 96)
# rows NAME...: each is a row of the table, with a figure above zero and its share of the roof.
rows() {
  local row
  for row in "$@"; do
    grep -F -- "$row" out.txt | awk '{for (i = 2; i <= NF; ++i) if ($i == "%" && $(i - 1) > 0) found = 1} END {exit !found}' ||
      { cat out.txt; fail "no figure beside its roof: $row"; }
  done
}
expect 0 "$trainer" bench matmul "${small[@]}" --rows 64 --hidden 64 --ffn 128 --vocab 100
grep -qE '^device: .*sm_[0-9]+.*CUDA' err.txt || { cat err.txt; fail "not the GPU"; }
[ "$(grep -c '^device:' err.txt)" = 1 ] || fail "the device was chosen more than once"
rows "bf16 roof" "qkv forward [64, 192, 64]" "fc proj weight gradient" "head forward [16, 100, 64]"
expect 0 "$trainer" bench matmul "${small[@]}" --rows 64 --hidden 64 --ffn 128 --vocab 100 --dtype fp32
expect 0 "$trainer" bench attention "${small[@]}" --batch 2 --seq-len 65 --heads 2 --kv-heads 1 --head-dim 64
rows "B=2 T=65 H=2/1 D=64 forward" "B=2 T=65 H=2/1 D=64 backward"
expect 0 "$trainer" bench attention "${small[@]}" --batch 1 --seq-len 33 --heads 1 --head-dim 32
contains err.txt "plain attention kernels for a head width of 32"
for family in gpt2 llama; do
  expect 0 "$trainer" bench block "${small[@]}" --family $family --batch 1 --seq-len 32 --hidden 128 --heads 2 --ffn 160 --trace trace.json
  rows "the layer, " "forward attention: " "forward feed_forward: "
  contains trace.json '"traceEvents"'
done
small_spec llama > llama.yaml
expect 0 "$trainer" bench step --config llama.yaml --roof-size 96 --steps 2 device.kind=cuda device.heuristics=algorithms
[ "$(grep -c '^device:' err.txt)" = 1 ] || fail "the device was chosen more than once"
contains err.txt "device.heuristics: algorithms, "
rows "6N + 12 L C T, best" "products, attention in full, best" "products, attention as the mask leaves it, best" "arena"
grep -qE '^memory of the GPU beside the arena.* 512\.00 ' out.txt || fail "no memory beside the arena, with its reserve"

# What does not fit together is one sentence.
refused() {  # refused SENTENCE OPTIONS...
  local sentence=$1
  shift
  expect 2 "$trainer" bench "$@"
  contains err.txt "$sentence"
}
refused "--roof-size: wanted a multiple of 48, found 50" matmul --device cuda --roof-size 50
refused "--device: wanted auto, cpu or cuda, found 'gpu'" matmul --device gpu
refused "naive runs on a CPU only" block "${small[@]}" --attention naive --hidden 64 --heads 1 --seq-len 16 --batch 1
refused "--kv-heads: wanted a divisor of 3, found 2" attention "${small[@]}" --batch 1 --heads 3 --kv-heads 2

# A CPU is still measured, where it is asked for.
expect 0 "$trainer" bench attention --device cpu --roof-size 96 --batch 1 --seq-len 32 --heads 2 --head-dim 16
contains err.txt "device: cpu, "
