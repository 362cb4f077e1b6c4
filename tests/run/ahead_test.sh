#!/usr/bin/env bash
# Updates that do not wait for the world give the losses of those that do. `bash ahead_test.sh TRAINER`
source "$(dirname "$0")/common.sh"
prepare
small_spec llama > spec.yaml
run=(--config spec.yaml --ranks 2 parallel.pp=2 parallel.pipeline.schedule=zb_h2 train.micro_batch=1 train.steps=40 schedule.warmup=2)
ahead=(parallel.pipeline.post_validation=true)

# A clip that is never reached, and one that is: the norm has a peak at steps 22 and 23.
clip=1.5
expect 0 "$trainer" "${run[@]}" train.clip=1000 log.dir=waits
expect 0 "$trainer" "${run[@]}" "${ahead[@]}" train.clip=1000 log.dir=ahead
diff <(series waits) <(series ahead) || fail "other losses where nothing is clipped"
expect 0 "$trainer" "${run[@]}" train.clip="$clip" log.dir=clipped
expect 0 "$trainer" "${run[@]}" "${ahead[@]}" train.clip="$clip" log.dir=refused
diff <(series clipped) <(series refused) || fail "other losses where updates are taken back (train.clip=$clip)"
grep -qE "^[1-9][0-9]* updates were taken back" out.txt || { cat out.txt; fail "no update was taken back at train.clip=$clip"; }

# An evaluation, a save and a death in between.
expect 0 "$trainer" "${run[@]}" train.clip="$clip" train.eval_every=7 checkpoint.every=9 log.dir=plain
TRAINER_FAIL="step_end@step=31,rank=1:kill" expect 15 "$trainer" "${run[@]}" "${ahead[@]}" train.clip="$clip" train.eval_every=7 checkpoint.every=9
expect 0 "$trainer" "${run[@]}" "${ahead[@]}" train.clip="$clip" train.eval_every=7 checkpoint.every=9
diff <(series plain) <(series run) || fail "other losses after a resume"
