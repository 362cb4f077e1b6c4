#!/usr/bin/env bash
# Ranks on three hosts, which are network namespaces behind a bridge, each with a host name of its own, train to the
# losses of ranks on one host, hex for hex; a rank killed on one host is named on all. `bash hosts_test.sh TRAINER`
source "$(dirname "$0")/common.sh"
hosts=3 ranks=4
host_of=(0 0 1 2)
net() { echo "trainer-$$-$1"; }  # the namespace of a host, or of the bridge between them
# Not `ip -n`, which also remounts / and so needs it to be a mount.
inside() { nsenter --net="/var/run/netns/$(net "$1")" "${@:2}"; }
mountpoint -q /run/netns && was_mounted=1 || was_mounted=0  # the first `ip netns add` mounts it, and nothing unmounts it
if ! ip netns add "$(net bridge)" 2> /dev/null; then
  echo "skipped: no network namespaces (needs root and iproute2)"
  exit 0
fi
clean() {
  local name
  for name in bridge $(seq 0 $((hosts - 1))); do ip netns del "$(net "$name")" 2> /dev/null || true; done
  [ $was_mounted = 1 ] || [ -n "$(ls -A /run/netns)" ] || umount /run/netns
  rm -rf "$work"
}
trap clean EXIT
inside bridge ip link add br0 type bridge
inside bridge ip link set br0 up
for host in $(seq 0 $((hosts - 1))); do
  ip netns add "$(net "$host")"
  inside "$host" ip link set lo up
  inside "$host" ip link add eth0 type veth peer name "port$host" netns "$(net bridge)"
  inside "$host" ip addr add "10.83.0.$((10 + host))/24" dev eth0
  inside "$host" ip link set eth0 up
  inside bridge ip link set "port$host" master br0 up
done

# start ARGUMENTS...: the ranks, each on its host; their process ids in `pids`, their messages in err.RANK
start() {
  local rank
  pids=()
  for rank in $(seq 0 $((ranks - 1))); do
    WORLD_SIZE=$ranks RANK=$rank MASTER_ADDR=10.83.0.10 MASTER_PORT=29500 \
      nsenter --net="/var/run/netns/$(net "${host_of[rank]}")" unshare --uts \
      bash -c 'hostname "$0"; exec "$@"' "host${host_of[rank]}" "$trainer" "$@" > "out.$rank" 2> "err.$rank" &
    pids+=($!)
  done
}
ends_with() {  # ends_with CODE RANK
  local code=0
  wait "${pids[$2]}" || code=$?
  [ "$code" = "$1" ] || { tail -n 5 err.*; fail "rank $2: wanted exit code $1, found $code"; }
}

prepare
small_spec llama > spec.yaml
for layout in "tp=2 parallel.sequence_parallel=true parallel.zero=2" "zero=3" "dp=2 parallel.tp=2 parallel.zero_shard=1"; do
  read -ra overrides <<< "parallel.$layout train.steps=8 schedule.warmup=2 train.micro_batch=2 checkpoint.every=none"
  rm -rf one many
  expect 0 "$trainer" --config spec.yaml --ranks $ranks "${overrides[@]}" log.dir=one
  start --config spec.yaml "${overrides[@]}" log.dir=many
  for rank in $(seq 0 $((ranks - 1))); do ends_with 0 "$rank"; done
  [ "$(series many | wc -l)" = 8 ] || fail "$layout: wanted 8 steps"
  diff <(series one) <(series many) || fail "$layout: other losses on three hosts than on one"
done
# Without shared memory within the host: the same again.
rm -rf many
expect 0 "$trainer" --config spec.yaml --ranks $ranks "${overrides[@]}" parallel.comm=tcp log.dir=many
diff <(series one) <(series many) || fail "other losses over the loopback device"

# Shared memory alone does not reach another host.
start --config spec.yaml parallel.comm=shm train.micro_batch=2 checkpoint.every=none log.dir=refused
for rank in $(seq 0 $((ranks - 1))); do ends_with 15 "$rank"; done
contains err.0 "parallel.comm: shm, but 2 of 4 ranks are on this host (host0)"

# Sums go from host to host in rank order, so ranks must not be dealt out to the hosts in turn.
placement=("${host_of[@]}")
host_of=(0 1 0 1)
start --config spec.yaml train.micro_batch=2 checkpoint.every=none log.dir=dealt
for rank in $(seq 0 $((ranks - 1))); do ends_with 15 "$rank"; done
contains err.3 "rank 2 is on a host of earlier ranks"
host_of=("${placement[@]}")

# A rank of the last host is killed: the others, on all hosts, name it within a second.
start --config spec.yaml parallel.zero=2 train.micro_batch=2 train.steps=1000000 checkpoint.every=none log.dir=killed
for _ in $(seq 600); do
  if [ -s killed/metrics.jsonl ]; then break; fi
  sleep 0.1
done
[ -s killed/metrics.jsonl ] || { tail -n 5 err.*; fail "no step within a minute"; }
sleep 0.3
begin=$(date +%s%N)
kill -9 "${pids[3]}"
for rank in 0 1 2; do ends_with 15 "$rank"; done
took=$((($(date +%s%N) - begin) / 1000000))
[ $took -lt 1000 ] || fail "the others ended $took ms after the kill, wanted less than a second"
for rank in 0 1 2; do
  grep -qE 'rank 3 \(host host2, pid [0-9]+\) died' "err.$rank" || { cat "err.$rank"; fail "rank $rank does not name rank 3"; }
done
