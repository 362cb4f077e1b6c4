#!/usr/bin/env bash
# Every config is planned, and has the parameters that were published for it.
source "$(dirname "$0")/common.sh"
while read -r config parameters; do
  expect 0 "$trainer" plan --json --config "$tests/../configs/$config.yaml"
  found=$(sed -nE 's/.*"parameters": ([0-9]+).*/\1/p' out.txt)
  [ "$found" = "$parameters" ] || fail "$config: wanted $parameters parameters, found $found"
  sum=$(sed -nE '/"bytes"/,/}/ s/.*"(weights|master|gradients|moments|activations|staging|scratch)": ([0-9]+).*/\2/p' out.txt | awk '{s += $1} END {printf "%.0f", s}')
  arena=$(sed -nE 's/.*"arena_bytes": ([0-9]+).*/\1/p' out.txt)
  [ "$sum" = "$arena" ] || fail "$config: the classes sum to $sum, the arena has $arena"
done <<'EOF'
gpt2-124m 124439808
gpt2-1558m 1557611200
llama2-7b 6738415616
llama3-8b 8030261248
llama3-70b 70553706496
llama3-405b 405853388800
qwen3-8b 8190735360
qwen3-32b 32762123264
mistral-7b 7241732096
shakespeare-char 809856
quickstart 9670720
EOF
[ "$(ls "$tests/../configs" | wc -l)" = 11 ] || fail "a config is not in the list above"
# The text of a program parses, line by line, and says the same every time.
expect 0 "$trainer" plan --text --config "$tests/../configs/quickstart.yaml"
cp out.txt first.txt
expect 0 "$trainer" plan --text --config "$tests/../configs/quickstart.yaml"
diff first.txt out.txt > /dev/null || fail "two plans of one spec differ"
contains out.txt "forward"
