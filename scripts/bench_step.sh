#!/usr/bin/env bash
# Tokens per second of whole training steps, each beside the roof of the same run; with --torch also PyTorch's, and the ratio.
#   scripts/bench_step.sh [--torch] [--steps N] [CASE...]      cases: gpt2-bf16 gpt2-fp32 six-bf16 char-fp32 (default: all)
set -euo pipefail
cd "$(dirname "$0")/.."
torch=0 steps=5 cases=()
while [ $# -gt 0 ]; do
  case $1 in
    --torch) torch=1 ;;
    --steps) steps=$2; shift ;;
    *) cases+=("$1") ;;
  esac
  shift
done
[ ${#cases[@]} -gt 0 ] || cases=(gpt2-bf16 gpt2-fp32 six-bf16 char-fp32)
trainer=build/release/trainer
[ -x $trainer ] || { bash scripts/setup; bash scripts/build release -DTRAINER_TESTS=OFF; }
spec=$(mktemp --suffix=.yaml)
trap 'rm -f "$spec"' EXIT

# layers heads width vocabulary batch tokens precision
shape() {
  case $1 in
    gpt2-bf16) echo 12 12 768 50257 4 1024 bf16 ;;
    gpt2-fp32) echo 12 12 768 50257 4 1024 fp32 ;;
    six-bf16) echo 6 6 384 8192 16 256 bf16 ;;
    char-fp32) echo 4 4 128 65 12 64 fp32 ;;
    *) echo "unknown case: $1" >&2; exit 2 ;;
  esac
}
value() { sed -nE "/\"name\": \"$1\"/,/\"value\"/ s/.*\"value\": ([0-9.]+).*/\1/p"; }

printf '%-10s %12s %12s %10s %10s %9s %9s' case best median GFLOP/s roof 'of roof' outside
[ $torch = 1 ] && printf ' %12s %12s %7s' torch compiled ratio
printf '\n'
for case in "${cases[@]}"; do
  read -r layers heads width vocab batch tokens precision <<< "$(shape "$case")"
  cat > "$spec" <<YAML
model: {family: gpt2, num_layers: $layers, hidden_size: $width, num_heads: $heads, vocab_size: $vocab, max_seq_len: $tokens}
data: {tokenizer: none, train: [{path: none}], seq_len: $tokens}
train: {steps: 1, global_batch: $batch, micro_batch: $batch}
precision: {compute: $precision}
YAML
  json=$($trainer bench step --json --steps "$steps" --config "$spec" 2> /dev/null)
  best=$(value 'tokens per second, best' <<< "$json")
  median=$(value 'tokens per second, median' <<< "$json")
  flops=$(value '6N . 12 L C T, best' <<< "$json")
  outside=$(value 'outside kernels, median' <<< "$json")
  roof=$(sed -nE 's/.*"roof": ([0-9.]+).*/\1/p' <<< "$json" | head -n 1)
  awk -v c="$case" -v b="$best" -v m="$median" -v f="$flops" -v r="$roof" -v o="$outside" \
    'BEGIN {printf "%-10s %12.1f %12.1f %10.1f %10.1f %8.1f%% %8.1f%%", c, b, m, f, r, 100 * f / r, o}'
  if [ $torch = 1 ]; then
    tuned="glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4000000000:glibc.malloc.trim_threshold=40000000000:glibc.malloc.top_pad=268435456"
    run_torch() { GLIBC_TUNABLES=$tuned python3 scripts/bench_torch.py "$layers" "$heads" "$width" "$vocab" "$batch" "$tokens" "$precision" --steps "$steps" "$@" 2> /dev/null | awk '{print $1}'; }
    eager=$(run_torch || true)
    compiled=$(run_torch --compile || true)
    awk -v e="$eager" -v c="$compiled" -v b="$best" 'BEGIN {t = (e + 0 > c + 0) ? e : c; printf(" %12s %12s %7s", (e == "") ? "-" : e, (c == "") ? "-" : c, (t + 0 > 0) ? sprintf("%.2f", b / t) : "-")}'
  fi
  printf '\n'
done
