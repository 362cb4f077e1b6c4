#!/usr/bin/env bash
# kill -9 at random moments, ten times over: the resumed series is the uninterrupted one, hex for hex. So it is after signals.
source "$(dirname "$0")/common.sh"
prepare
small_spec llama > spec.yaml
options=(model.dropout=0.1 model.num_kv_heads=2 train.steps=60 checkpoint.every=4)
expect 0 "$trainer" --config spec.yaml "${options[@]}" log.dir=whole
seed=${SEED:-$$}
echo "seed $seed"
RANDOM=$seed
for kill in 1 2 3 4 5 6 7 8 9 10; do
  step=$((RANDOM % 7 + 1 + 6 * (kill - 1)))
  point=$(printf 'step_begin\nstep_end\nshard_write\nmanifest_write\nstep_renamed\n' | sed -n "$((RANDOM % 5 + 1))p")
  code=0
  TRAINER_FAIL="$point@step=$step:kill" "$trainer" --config spec.yaml "${options[@]}" log.dir=killed > out.txt 2> err.txt || code=$?
  [ $code = 137 ] || [ $code = 0 ] || { cat out.txt err.txt; fail "kill at $point of step $step: exit code $code"; }
done
expect 0 "$trainer" --config spec.yaml "${options[@]}" log.dir=killed
diff <(series whole) <(series killed) || fail "the killed run differs (seed $seed)"
[ "$(field whole/checkpoints/step-60/MANIFEST.json state_hash)" = "$(field killed/checkpoints/step-60/MANIFEST.json state_hash)" ] || fail "the states differ"

# Signals, at a place that the moment decides.
for signal in TERM INT USR1; do
  TRAINER_FAIL="step_begin:delay=30" "$trainer" --config spec.yaml "${options[@]}" log.dir=signalled > out.txt 2>&1 &
  process=$!
  sleep 0.5
  kill -$signal $process
  code=0
  wait $process || code=$?
  [ $code = 17 ] || [ $code = 0 ] || { cat out.txt; fail "SIG$signal: exit code $code"; }
done
expect 0 "$trainer" --config spec.yaml "${options[@]}" log.dir=signalled
contains signalled/events.jsonl '"event":"preempted"'
diff <(series whole) <(series signalled) || fail "the signalled run differs"
