#!/usr/bin/env bash
# --ranks N: exit codes, signals, and that nothing outlives a parent that was killed. `bash launch_test.sh LAUNCH_MAIN`
source "$(dirname "$0")/common.sh"
launch_main=$trainer
shm_before=$(ls -A /dev/shm)

# Every rank has its place, and the cores are shared where there are enough.
expect 0 "$launch_main" meet --ranks 2
[ "$(sort out.txt | cut -d' ' -f1-5)" = "--ranks rank 0/2 local 0/2
--ranks rank 1/2 local 1/2" ] || { cat out.txt; fail "wanted two places"; }
cores=$(nproc)
if [ "$cores" -ge 2 ]; then
  [ "$(grep -c "cores $((cores / 2))\$" out.txt)" = 2 ] || { cat out.txt; fail "wanted $((cores / 2)) cores for each"; }
fi
expect 0 "$launch_main" meet --ranks 9
[ "$(grep -c 'met 9' out.txt)" = 9 ] || fail "wanted nine ranks"

# A killed rank: 15, and it is named by all others. A failed one: its own exit code.
expect 15 "$launch_main" kill 1 --ranks 3
grep -qE "^trainer: rank 1 \(pid [0-9]+\) was killed by signal 9" err.txt || { cat err.txt; fail "the killed rank is not named"; }
for rank in 0 2; do
  grep -qE "^\[rank $rank\] .*rank 1 \(host .*, pid [0-9]+\) died" err.txt || { cat err.txt; fail "rank $rank does not name rank 1"; }
done
expect 15 "$launch_main" kill 0 --ranks 3
expect 11 "$launch_main" end 2 11 --ranks 3
contains err.txt "[rank 2] launch_main: as asked"

wait_for() {  # COMMAND...: true within 5 s
  for _ in $(seq 500); do if "$@"; then return 0; fi; sleep 0.01; done
  fail "waited 5 s for: $*"
}
ready() { grep -q ready wait.txt; }
gone() { ! kill -0 "$@" 2> /dev/null; }
begin() {  # starts three ranks that wait for a signal
  : > wait.txt
  "$launch_main" wait --ranks 3 > wait.txt 2> err.txt &
  parent=$!
  wait_for ready
}

# Signals reach every rank.
for signal in TERM USR1; do
  begin
  kill -$signal $parent
  code=0
  wait $parent || code=$?
  [ $code = 17 ] || { cat err.txt; fail "after SIG$signal wanted 17, found $code"; }
done
# ^C in a terminal reaches them once, by the terminal.
: > wait.txt
code=0
(wait_for ready && printf '\003' && sleep 1) | script -qefc "exec '$launch_main' wait --ranks 3" wait.txt > /dev/null || code=$?
[ $code = 17 ] || { cat wait.txt; fail "after ^C wanted 17, found $code"; }

# kill -9 of the parent: no orphan.
begin
children=$(pgrep -P $parent)
[ "$(wc -w <<< "$children")" = 3 ] || fail "wanted three children, found: $children"
kill -9 $parent
for child in $children; do wait_for gone "$child"; done

# A rank that hangs when another has failed is ended.
if [ "${TRAINER_FULL:-}" ]; then
  begin
  read -r first second _ <<< "$(pgrep -P $parent | xargs)"
  kill -STOP "$first"
  kill -9 "$second"
  code=0
  wait $parent || code=$?
  [ $code = 15 ] || fail "with a rank that hangs wanted 15, found $code"
  contains err.txt "still ran 10 s after another had failed: killed"
fi

[ "$(ls -A /dev/shm)" = "$shm_before" ] || fail "something is left in /dev/shm"
# Ranks of its own, where a launcher has started several already.
WORLD_SIZE=2 RANK=0 expect 2 "$launch_main" meet --ranks 2
contains err.txt "WORLD_SIZE"
