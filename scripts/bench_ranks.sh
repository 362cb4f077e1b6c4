#!/usr/bin/env bash
# Two ranks against one that uses the same cores: tokens/s of a real run in each layout, in turns, best of all steps but
# the first.
#   scripts/bench_ranks.sh [--config CONFIG] [--steps N] [--rounds N] [section.key=value ...]
#   default: configs/gpt2-124m.yaml, 4 sequences of 1,024 tokens a step, 3 steps, 1 round
set -euo pipefail
cd "$(dirname "$0")/.."
config=configs/gpt2-124m.yaml steps=3 rounds=1
while [ $# -gt 0 ]; do
  case $1 in
    --config) config=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    *) break ;;
  esac
done
trainer=$PWD/build/release/trainer
[ -x "$trainer" ] || { echo "no $trainer: run scripts/build first" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/trainer_bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$trainer" data pack --tokenizer bytes --out "$work/corpus" tests/data/tinyshakespeare.txt > /dev/null
base=(data.tokenizer=bytes "data.train=[{path: $work/corpus}]" train.global_batch=4 train.steps="$steps"
  schedule.warmup=0 train.eval_every=none checkpoint.every=none log.tensorboard=false)
grep -q split "$config" || base+=("data.valid=[{path: $work/corpus}]")

# "tokens/s, share of the step in exposed communication, MiB moved" of the best step.
best() {
  sed -nE 's/.*"tokens_per_second":([^,]*),.*"step_seconds":([^,]*),.*"exposed_comm":([^,]*),.*"comm_bytes":\{"gather":([0-9]+),"reduce":([0-9]+),"tp":([0-9]+).*/\1 \2 \3 \4 \5 \6/p' "$@" |
    sort -rn | head -1 | awk '{printf "%s %.1f %.1f %.1f %.1f", $1, 100 * $3 / $2, $4 / 1048576, $5 / 1048576, $6 / 1048576}'
}
layouts=("1||4" "2|dp: 2|2" "2|dp: 2, zero: 1|2" "2|dp: 2, zero: 3|2" "2|tp: 2|4" "2|tp: 2, sequence_parallel: true|4")
for round in $(seq "$rounds"); do
  for i in "${!layouts[@]}"; do
    IFS='|' read -r ranks parallel micro <<< "${layouts[i]}"
    overrides=(train.micro_batch="$micro" log.dir="$work/$i-$round")
    [ -z "$parallel" ] || overrides+=("parallel={$parallel}")
    "$trainer" --config "$config" --ranks "$ranks" "${base[@]}" "${overrides[@]}" "$@" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    # The first step is left out: caches are cold.
    sed -i '/"step":1,/d' "$work/$i-$round/metrics.jsonl"
    rm -rf "$work/$i-$round/checkpoints"
  done
done
printf '%-36s %10s %7s %9s %12s %12s %12s\n' "$(basename "$config" .yaml)" tokens/s ratio 'exposed %' 'gather MiB' 'reduce MiB' 'tp MiB'
for i in "${!layouts[@]}"; do
  IFS='|' read -r ranks parallel micro <<< "${layouts[i]}"
  read -r rate exposed gather reduce tp <<< "$(best "$work/$i-"*/metrics.jsonl)"
  [ "$i" = 0 ] && one=$rate
  printf '%-36s %10.1f %7.2f %9s %12s %12s %12s\n' "${parallel:-one rank}" "$rate" "$(awk "BEGIN {print $rate / $one}")" "$exposed" "$gather" "$reduce" "$tp"
done
