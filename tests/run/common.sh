# What the tests of the binary share. A test is a bash script: `bash X_test.sh TRAINER`; it ends with 0, or says what is wrong.
set -euo pipefail
trainer=$(realpath "$1")
tests=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
work=$(mktemp -d "${TMPDIR:-/tmp}/trainer_run_test.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; exit 1; }
# expect CODE COMMAND...: runs it, output to out.txt and err.txt
expect() {
  local wanted=$1 code=0
  shift
  "$@" > out.txt 2> err.txt || code=$?
  [ "$code" = "$wanted" ] || { cat out.txt err.txt >&2; fail "wanted exit code $wanted, found $code: $*"; }
}
contains() { grep -qF -- "$2" "$1" || { cat "$1" >&2; fail "$1 does not contain: $2"; }; }
# "step loss_hex grad_norm_hex" of every training line; of a repeated step the last line counts.
series() {
  sed -nE 's/.*"kind":"step","step":([0-9]+),.*"loss_hex":"([^"]*)".*"grad_norm_hex":"([^"]*)".*/\1 \2 \3/p' "$1/metrics.jsonl" |
    awk '{line[$1] = $0} END {for (step in line) print line[step]}' | sort -n
}
# The same steps' losses and gradient norms, to 1e-5: close A B.
close() {
  local part='s/.*"kind":"step","step":([0-9]+),"loss":([^,]*),.*"grad_norm":([^,]*),.*/\1 \2 \3/p'
  paste -d ' ' <(sed -nE "$part" "$1/metrics.jsonl") <(sed -nE "$part" "$2/metrics.jsonl") |
    awk '{ok = $1 == $4; for (i = 2; i <= 3; i++) {d = $i / $(i + 3) - 1; ok = ok && d < 1e-5 && d > -1e-5}
          if (!ok) {print; bad = 1}} END {exit bad || NR == 0}' >&2 || fail "$2: not the losses of $1"
}
field() { sed -nE "s/.*\"$2\":\"?([^,\"}]*)\"?[,}].*/\1/p" "$1"; }

# A corpus of bytes that any machine has, and a small model on it.
prepare() {
  head -c 60000 "$tests/data/tinyshakespeare.txt" > corpus.txt
  "$trainer" data pack --tokenizer bytes --out corpus corpus.txt > /dev/null
}
small_spec() {  # small_spec FAMILY
  cat <<YAML
model: {family: $1, num_layers: 3, hidden_size: 32, num_heads: 4, ffn_hidden_size: 64, vocab_size: 257, max_seq_len: 32}
data: {tokenizer: bytes, train: [{path: corpus}], valid: {split: 0.9}, seq_len: 32, seed: 3}
train: {steps: 24, global_batch: 8, micro_batch: 4, seed: 1, clip: 1.0, eval_every: 8 steps, eval_sequences: 16}
optimizer: {lr: 3.0e-3}
schedule: {kind: cosine, warmup: 4 steps, final_lr: 3.0e-4}
precision: {compute: fp32}
checkpoint: {every: 6 steps}
log: {dir: run}
YAML
}
