#!/usr/bin/env bash
# scripts/gpu_check from end to end, on small models: `bash gpu_check_test.sh TRAINER`, a binary on the emulated device.
source "$(dirname "$0")/../run/common.sh"
check=$(realpath "$tests/../scripts/gpu_check")
export TRAINER=$trainer ROOF_SIZE=96
unset LLMC
cat > models <<'EOF2'
small-gpt2  gpt2  2 64 1 1 128 257 32 2
small-llama llama 2 128 2 1 96 257 32 1
EOF2
status() { sed -nE 's/^ "status": "([a-z]+)",$/\1/p' "check/$1.json"; }

expect 0 bash "$check" --out check --build nowhere --models models
for part in losses repeat matmul attention block step; do
  [ "$(status $part)" = passed ] || { cat out.txt "check/$part.log"; fail "$part: $(status $part)"; }
done
for part in kernels ranks llmc; do
  [ "$(status $part)" = skipped ] || { cat out.txt; fail "$part: wanted it skipped, found $(status $part)"; }
done
[ "$(status graph)" = passed ] || { cat check/graph.log; fail "graph: $(status graph)"; }
contains out.txt "kernels: skipped"
contains out.txt "build the target gpu_tests"
contains out.txt "one GPU: NCCL between devices cannot run"
contains out.txt "set LLMC"
for row in "small-gpt2 *qkv forward" "small-llama *B=1 T=32 H=2/1 D=64 backward" "small-gpt2 *the layer" "small-llama *tokens per second, best"; do
  grep -qE "^$row" out.txt || { cat out.txt; fail "no row '$row' in the table"; }
done
for timeline in small-gpt2 step-launches step-graph; do
  [ -s check/trace-$timeline.json ] || fail "no timeline $timeline"
done
python3 -c 'import json; r = json.load(open("check/result.json")); assert len(r["parts"]) == 12, len(r["parts"]); json.load(open("check/trace-small-gpt2.json"))'

# What has passed is not run again, unless it is named.
touch -d '1 hour ago' check/*.json
expect 0 bash "$check" --out check --build nowhere --models models --part attention
[ -n "$(find check/attention.json -mmin -30)" ] || fail "attention was not run again"
[ -z "$(find check/step.json -mmin -30)" ] || fail "step was run again"
expect 0 bash "$check" --out check --build nowhere --models models
contains out.txt "step: passed before"
[ "$(grep -c '^losses: passed before' out.txt)" = 1 ] || fail "losses were run again"

# A failure is told, and ends with 1; a carried build's tests are run, all of them. One that hangs is ended.
mkdir build
program() { printf '#!/bin/sh\n%s\n' "$2" > "build/$1" && chmod +x "build/$1"; }
program gpu_test_fragments "echo wrong at lane 3; exit 3"
program gpu_test_rows "sleep 60"
program gpu_test_matmul "echo products were tried"
LIMIT=1 expect 1 bash "$check" --out check --build build --models models --part kernels
contains out.txt "kernels: failed"
contains out.txt "gpu_test_fragments (3) gpu_test_rows (124)"
contains check/kernels.log "wrong at lane 3"
contains check/kernels.log "products were tried"
program gpu_test_fragments "exit 0"
program gpu_test_rows "exit 0"
expect 0 bash "$check" --out check --build build --models models --part kernels
contains out.txt "kernels: passed"
expect 2 bash "$check" --part nothing
contains err.txt "no part 'nothing'"

# A GPU whose losses are not the CPU's is found: the CPU is given another seed.
printf '#!/bin/sh\nfor a; do [ "$a" != device.kind=cpu ] || set -- "$@" train.seed=2; done\nexec "%s" "$@"\n' "$trainer" > other
chmod +x other
expect 1 env TRAINER="$work/other" bash "$check" --out check --build nowhere --models models --part losses
contains out.txt "differ by more than 1e-4"
