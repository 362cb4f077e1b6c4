#!/usr/bin/env bash
# A run's trace and the plan's on a clock have the same tracks and the same instructions. `bash trace_test.sh TRAINER`
source "$(dirname "$0")/common.sh"
prepare
small_spec llama > spec.yaml
layout=(parallel.pp=2 parallel.pipeline.schedule=zb_h1 train.micro_batch=1 train.steps=4 schedule.warmup=2 checkpoint.every=none)
expect 0 "$trainer" --config spec.yaml --ranks 2 "${layout[@]}" log.dir=plain
[ ! -e plain/trace.json ] || fail "a trace that nobody asked for"
expect 0 "$trainer" --config spec.yaml --ranks 2 "${layout[@]}" log.trace=true
diff <(series plain) <(series run) || fail "tracing changes losses"
expect 0 "$trainer" plan --config spec.yaml --world 2 "${layout[@]}" --trace planned.json

tracks() { grep '"ph":"M"' "$1" | sort; }
diff <(tracks planned.json) <(tracks run/trace.json) || fail "other tracks in the run than in the plan"
# Calls of blocks and messages, by rank and lane; what takes no time on the clock is not in its trace.
calls() { sed -nE 's/.*"name":"((forward|recompute|backward|send|recv)[^"]*)".*"ph":"X","pid":([0-9]+),"tid":([0-9]+).*/\3 \4 \1/p' "$1" | sort; }
[ "$(calls planned.json | wc -l)" -gt 100 ] || fail "hardly any calls in the plan's trace"
diff <(calls planned.json) <(calls run/trace.json) || fail "other calls in the run than in the plan"
# Durations are a run's: all positive, and none longer than the run.
sed -nE 's/.*"dur":([0-9.]+).*/\1/p' run/trace.json | awk '!($1 > 0 && $1 < 60e6) {bad = 1} END {exit bad || NR < 100}' || fail "durations"
# Both as one picture; a file that is no trace, and a run of another plan, are refused.
expect 0 "$trainer" plan --config spec.yaml --world 2 "${layout[@]}" --svg both.svg --beside run/trace.json
[ "$(grep -c '>rank 1, stage 1<' both.svg)" = 2 ] || fail "not two panels of two ranks: $(cat both.svg)"
contains both.svg ">on the clock of h100: "
contains both.svg ">in a run: "
expect 2 "$trainer" plan --config spec.yaml --world 2 "${layout[@]}" --svg no.svg --beside corpus.json
contains err.txt "corpus.json: wanted a trace as log.trace writes it"
expect 2 "$trainer" plan --config spec.yaml --world 2 "${layout[@]}" parallel.pipeline.schedule=1f1b --svg no.svg --beside run/trace.json
contains err.txt "not a run of this plan"
[ ! -e no.svg ] || fail "a picture of what was refused"
