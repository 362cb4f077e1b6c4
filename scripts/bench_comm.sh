#!/usr/bin/env bash
# Collectives between local processes, beside Open MPI's and Gloo's where Debian's libopenmpi-dev and libgloo-dev are installed.
#   scripts/bench_comm.sh [--ranks N] [--max 64MiB] [--json]
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/release
[ -x $build/trainer ] || { bash scripts/setup; bash scripts/build release -DTRAINER_TESTS=OFF; }

against=()
add() {  # NAME HEADER COMPILER FLAGS...
  local name=$1 header=$2
  shift 2
  if ! "$1" -E -x c++ - <<< "#include <$header>" > /dev/null 2>&1; then
    echo "$name: <$header> is missing (apt-get install lib$name-dev), so it is left out" >&2
    return
  fi
  local program=$build/comm_$name
  [ $program -nt "scripts/bench/$name.cpp" ] && [ $program -nt scripts/bench/harness.h ] ||
    "$1" -O3 -march=native -std=c++17 "scripts/bench/$name.cpp" -o $program "${@:2}"
  against+=("$name")
}
add openmpi mpi.h mpicxx
add gloo gloo/allreduce.h g++ -lgloo -lpthread
list=$(IFS=,; echo "${against[*]}")
exec $build/trainer bench comm ${list:+--against "$list"} "$@"
