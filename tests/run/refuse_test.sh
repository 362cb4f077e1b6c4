#!/usr/bin/env bash
# Bad input: the right exit code, and a message that says where.
source "$(dirname "$0")/common.sh"
prepare
small_spec gpt2 > spec.yaml
expect 2 "$trainer"
expect 2 "$trainer" --nonsense
expect 10 "$trainer" --config spec.yaml model.num_layer=2
contains err.txt "num_layers"
expect 10 "$trainer" --config spec.yaml parallel.cp=2
contains err.txt "not built yet"
expect 10 "$trainer" --config spec.yaml --ranks 3 parallel.dp=2
contains err.txt "trainer: [mesh] parallel.dp 2 needs 2 ranks, the world has 3"
expect 2 env WORLD_SIZE=2 "$trainer" --config spec.yaml
contains err.txt "RANK is missing"
expect 11 "$trainer" --config spec.yaml data.train='[{path: nowhere}]'
contains err.txt "nowhere"
expect 10 "$trainer" --config spec.yaml model.vocab_size=100
head -c 100 corpus.txt > short.txt
"$trainer" data pack --tokenizer bytes --out short short.txt > /dev/null
expect 11 "$trainer" --config spec.yaml data.train='[{path: short}]' log.dir=short
# A gradient that is not finite names the step; the weights stay those of the step before.
TRAINER_FAIL="gradient@step=5:nan" expect 19 "$trainer" --config spec.yaml log.dir=nan
contains err.txt "step 5"
expect 19 "$trainer" --config spec.yaml optimizer.lr=1e30 schedule.final_lr=0 train.clip=none log.dir=explodes
grep -qE "layers|h\.[0-9]|head|embedding|weight" err.txt || { cat err.txt; fail "no layer is named"; }
contains err.txt "sequences"
# A second run in the same directory.
TRAINER_FAIL="step_begin:delay=200" "$trainer" --config spec.yaml log.dir=busy > /dev/null 2>&1 &
first=$!
until [ -s busy/metrics.jsonl ]; do sleep 0.02; kill -0 $first || fail "the first run ended by itself"; done
expect 13 "$trainer" --config spec.yaml log.dir=busy
contains err.txt "$first"
kill -9 $first
wait $first || true  # the lock goes with the process, and kill does not wait for that
expect 0 "$trainer" --config spec.yaml log.dir=busy train.steps=8
# A failpoint that does not exist is no failpoint.
TRAINER_FAIL="nowhere:kill" expect 2 "$trainer" --config spec.yaml

# Worlds that the spec does not fit: one sentence, from one process.
refused_world() {  # refused_world WANTED ARGUMENTS...
  local wanted=$1
  shift
  expect 10 "$trainer" --config fit.yaml "$@"
  contains err.txt "$wanted"
  [ "$(wc -l < err.txt)" = 1 ] || { cat err.txt; fail "wanted one line"; }
}
small_spec llama > fit.yaml
refused_world "a multiple of micro_batch 4 x dp 3 (12 sequences), found 8; the next one is 12" --ranks 3
refused_world "parallel.dp 2 needs 2 ranks, the world has 3: set dp to 3 or auto" --ranks 3 parallel.dp=2
refused_world "use a multiple of 3" --ranks 4 parallel.tp=3
refused_world "but dp is 1" --ranks 2 parallel.tp=2 parallel.zero=1
refused_world "the nearest legal value is 4" --ranks 8 parallel.tp=8
