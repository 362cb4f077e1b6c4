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
# A schedule by itself, without a spec: figures, a drawing, a picture, and its order, which can be read back.
expect 0 "$trainer" plan --schedule zb_h1 --stages 4 --microbatches 8 --times 1,1,1,0 --sizes 1,0.5 --json
contains out.txt '"bubble_rate": 0.1111'
contains out.txt '"makespan": 27.0'
[ "$(sed -nE '/"peak_activations"/,/\]/p' out.txt | head -5 | tr -d ' \n')" = '"peak_activations":[4.0,3.5,3.0,2.5' ] ||
  fail "peaks of zb_h1: $(cat out.txt)"
expect 0 "$trainer" plan --schedule interleaved --stages 4 --microbatches 6 --chunks 3
contains out.txt "bubble rate"
expect 0 "$trainer" plan --schedule zb_v --stages 2 --microbatches 4 --ascii --svg zb_v.svg
contains out.txt "stage 0  F0F1F2f0i0w0f1i1w1F3I0W0f2i2w2I1W1f3i3w3I2W2I3W3"
contains zb_v.svg "</svg>"
expect 0 "$trainer" plan --schedule zb_v --stages 2 --microbatches 4 --text
cp out.txt order.txt
expect 0 "$trainer" plan --schedule custom:order.txt --stages 2 --microbatches 4 --chunks 2 --text
diff order.txt out.txt > /dev/null || fail "an order is not what its own text says"
expect 10 "$trainer" plan --schedule custom:order.txt --stages 3 --microbatches 4 --chunks 2
contains err.txt "written for 2 stages"
expect 10 "$trainer" plan --schedule zb_v --stages 2 --microbatches 4 --chunks 3
contains err.txt "needs virtual_stages 2"
expect 2 "$trainer" plan
contains err.txt "wanted either --config"
