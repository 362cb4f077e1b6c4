#!/usr/bin/env bash
# A rank is killed, anywhere: the others name it and end with 15 within a second, nothing is left behind, and the run goes
# on from what was saved. 50 kills over ranks and phases, some of them at a random moment. `bash kill_ranks_test.sh TRAINER`
source "$(dirname "$0")/common.sh"
prepare
small_spec llama > spec.yaml
ranks=4
run=(timeout 60 "$trainer" --config spec.yaml --ranks $ranks parallel.tp=2 parallel.zero=2 train.micro_batch=2
  checkpoint.every=3 train.eval_every=none log.tensorboard=false)
expect 0 "${run[@]}" log.dir=whole train.steps=12 schedule.warmup=2

shared_before=$(ls /dev/shm | sort)
nothing_left() {
  [ "$(ls /dev/shm | sort)" = "$shared_before" ] || { ls /dev/shm; fail "$1: something is left in /dev/shm"; }
  if pgrep -f "$PWD/spec.yaml|--config spec.yaml.*log.dir=$2" > /dev/null; then fail "$1: a process is left"; fi
}

kills=0
killed() {  # killed WHAT RANK: the run's exit code, and who is named
  grep -qE "rank $2( \\(.*\\))? (died|was killed)" err.txt || { cat err.txt; fail "$1: rank $2 is not named"; }
  nothing_left "$1" "$3"
  kills=$((kills + 1))
}

# Phases of a step and of a save; the coordinator's own phases belong to rank 0.
for phase in step_begin step_end snapshot_begin shard_write shard_synced vote save_end; do
  for rank in 0 1 2 3; do
    dir=$phase-$rank
    TRAINER_FAIL="$phase@step=6,rank=$rank:kill" expect 15 "${run[@]}" log.dir="$dir" train.steps=12 schedule.warmup=2
    killed "$phase of rank $rank" $rank "$dir"
  done
done
for phase in vote_counted manifest_write manifest_renamed step_renamed gc_begin; do
  dir=$phase-0
  TRAINER_FAIL="$phase@step=6,rank=0:kill" expect 15 "${run[@]}" log.dir="$dir" train.steps=12 schedule.warmup=2
  killed "$phase of rank 0" 0 "$dir"
done

# At a random moment, in the middle of collectives.
for trial in $(seq 17); do
  rank=$((RANDOM % ranks)) dir=random-$trial
  "${run[@]}" log.dir="$dir" train.steps=4000 schedule.warmup=2 checkpoint.every=none > out.txt 2> err.txt &
  launcher=$!
  until [ -s "$dir/metrics.jsonl" ]; do sleep 0.02; kill -0 $launcher 2> /dev/null || fail "the run ended by itself"; done
  sleep "0.0$((RANDOM % 10))"
  victim=
  for p in $(pgrep -f -- "log.dir=$dir "); do
    if tr '\0' '\n' < "/proc/$p/environ" 2> /dev/null | grep -qx "TRAINER_LOCAL_RANK=$rank"; then victim=$p; fi
  done
  [ -n "$victim" ] || fail "no process of rank $rank"
  begin=$(date +%s%N)
  kill -9 "$victim"
  code=0
  wait $launcher || code=$?
  [ $code = 15 ] || { cat err.txt; fail "random kill of rank $rank: wanted exit code 15, found $code"; }
  milliseconds=$((($(date +%s%N) - begin) / 1000000))
  [ $milliseconds -lt 1000 ] || fail "random kill of rank $rank: the others took $milliseconds ms"
  killed "random kill $trial of rank $rank" $rank "$dir"
done
[ $kills -ge 50 ] || fail "only $kills kills"

# What was interrupted goes on to the same losses.
for dir in step_end-2 shard_write-1 vote-3 manifest_write-0 step_renamed-0; do
  expect 0 "${run[@]}" log.dir="$dir" train.steps=12 schedule.warmup=2
  diff <(series whole) <(series "$dir") || fail "$dir: other losses after the resume"
done
