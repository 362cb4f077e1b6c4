#!/usr/bin/env bash
# However ranks are started, they train the same model to the same losses, hex for hex. `bash ranks_test.sh TRAINER`
source "$(dirname "$0")/common.sh"
slurm="$tests/../scripts/local_slurm"
prepare
small_spec llama > spec.yaml
layout=(parallel.tp=2 parallel.sequence_parallel=true parallel.zero=2 train.steps=8 schedule.warmup=2 train.micro_batch=2)

expect 0 "$trainer" --config spec.yaml --ranks 4 "${layout[@]}" log.dir=local
series local > wanted
[ "$(wc -l < wanted)" = 8 ] || fail "wanted 8 steps, found $(wc -l < wanted)"
grep -q '"comm_bytes":{"gather":[1-9][0-9]*,"reduce":[1-9][0-9]*,"tp":[1-9]' local/metrics.jsonl || fail "nothing was moved"
same() { series "$1" | diff wanted - || fail "$1: other losses than with --ranks"; }

port=$((21000 + $$ % 8000))
start_four() {
  local rank pids=() code=0
  for rank in 0 1 2 3; do
    WORLD_SIZE=4 RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" &
    pids+=($!)
  done
  for rank in 0 1 2 3; do wait "${pids[rank]}" || code=$?; done
  return $code
}
expect 0 start_four "$trainer" --config spec.yaml "${layout[@]}" log.dir=variables
same variables

if command -v mpirun > /dev/null; then
  expect 0 mpirun --allow-run-as-root --oversubscribe -n 4 "$trainer" --config spec.yaml "${layout[@]}" log.dir=mpi
  same mpi
else
  echo "skipped: no mpirun (Debian: openmpi-bin)"
fi

# One rank sums in another order, so its losses are close, not equal.
expect 0 "$trainer" --config spec.yaml train.steps=8 schedule.warmup=2 log.dir=one
close one local

if ! command -v srun > /dev/null || [ "$(id -u)" != 0 ]; then
  echo "skipped: no srun (Debian: slurm-client slurmctld slurmd munge slurm-wlm-basic-plugins), or not root"
  exit 0
fi
trap '"$slurm" stop "$work/slurm"; rm -rf "$work"' EXIT
"$slurm" start "$work/slurm" 1 4 $((17000 + $$ % 2000))
expect 0 "$slurm" run "$work/slurm" srun -n 4 "$trainer" --config spec.yaml "${layout[@]}" log.dir=slurm
same slurm
PATH="$(dirname "$trainer"):$PATH" expect 0 "$slurm" run "$work/slurm" sbatch -n 4 --wait -o batch.txt \
  "$tests/../scripts/train.sbatch" spec.yaml "${layout[@]}" log.dir=batch
same batch
