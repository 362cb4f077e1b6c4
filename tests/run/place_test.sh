#!/usr/bin/env bash
# Every launcher's ranks find their place and each other: RANK and WORLD_SIZE, mpirun, srun. `bash place_test.sh LAUNCH_MAIN`
source "$(dirname "$0")/common.sh"
launch_main=$trainer
slurm="$tests/../scripts/local_slurm"

# four LAUNCHER: out.txt has four ranks of one host that met.
four() {
  local rank
  for rank in 0 1 2 3; do
    grep -qE "^$1 rank $rank/4 local $rank/4 .* met 4 " out.txt || { cat out.txt err.txt; fail "$1: rank $rank of 4 is missing"; }
  done
}

port=$((21000 + $$ % 8000))
start_four() {
  local rank pids=() code=0
  for rank in 0 1 2 3; do
    WORLD_SIZE=4 RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$launch_main" "$@" &
    pids+=($!)
  done
  for rank in 0 1 2 3; do wait "${pids[rank]}" || code=$?; done
  return $code
}
expect 0 start_four meet
four "RANK and WORLD_SIZE"
expect 15 start_four kill 1
[ "$(grep -cE 'rank 1 \(host .*, pid [0-9]+\) died' err.txt)" = 3 ] || { cat err.txt; fail "wanted three ranks that name rank 1"; }

if command -v mpirun > /dev/null; then
  expect 0 mpirun --allow-run-as-root --oversubscribe -n 4 "$launch_main" meet
  four "Open MPI"
else
  echo "skipped: no mpirun (Debian: openmpi-bin)"
fi

if ! command -v srun > /dev/null || [ "$(id -u)" != 0 ]; then
  echo "skipped: no srun (Debian: slurm-client slurmctld slurmd munge slurm-wlm-basic-plugins), or not root"
  exit 0
fi
trap '"$slurm" stop "$work/slurm"; rm -rf "$work"' EXIT
slurm_port=$((17000 + $$ % 2000))
"$slurm" start "$work/slurm" 1 4 $slurm_port
on_slurm() { "$slurm" run "$work/slurm" "$@"; }
expect 0 on_slurm srun -n 4 "$launch_main" meet
four Slurm
# The batch script itself is no rank: alone there it is refused; --ranks is its own launcher, srun and mpirun are others.
on_slurm sbatch -n 2 --wait -o batch.txt --wrap "'$launch_main' place; echo code \$?
  '$launch_main' meet --ranks 2; srun '$launch_main' meet" > /dev/null
contains batch.txt "SLURM_NTASKS asks for 2 tasks"
contains batch.txt "code 2"
contains batch.txt "--ranks rank 1/2 local 1/2"
contains batch.txt "Slurm rank 1/2 local 1/2"
"$slurm" stop "$work/slurm"

# Uneven tasks on three nodes.
"$slurm" start "$work/slurm" 3 4 $slurm_port
expect 0 on_slurm srun -N 3 -n 7 -m block "$launch_main" meet
[ "$(grep -c 'met 7' out.txt)" = 7 ] || { cat out.txt err.txt; fail "wanted seven ranks"; }
[ $(($(sed -nE 's/.* local 0\/([0-9]+) .*/\1/p' out.txt | paste -sd+))) = 7 ] || { cat out.txt; fail "the nodes' tasks do not add up to 7"; }
if command -v mpirun > /dev/null; then
  # mpirun's daemons are a step of one task per node, whose variables its ranks inherit.
  on_slurm sbatch -N 2 -n 6 --wait -o batch.txt --wrap "mpirun --allow-run-as-root -n 2 '$launch_main' meet" > /dev/null
  [ "$(grep -c 'Open MPI rank ./2 .* met 2' batch.txt)" = 2 ] || { cat batch.txt; fail "wanted two ranks of mpirun in a Slurm job"; }
fi
