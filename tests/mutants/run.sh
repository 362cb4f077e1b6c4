#!/usr/bin/env bash
# Puts each bug of mutants.txt into its file and runs the test that must find it, under three orders of the emulated
# device's threads and streams: a mutant is caught when one of them fails. Every test must pass on the original first.
#   tests/mutants/run.sh [BUILD_DIR] [NAME...]     BUILD_DIR: a configured build of the project (build/release)
# Sources stay as they are: a changed copy is compiled, and linked in front of the libraries that hold the original.
# Exit code 1: a mutant survived, did not build, or its text is not in its file exactly once.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
[ $# = 0 ] || shift
work=$build/mutants
list=$root/tests/mutants/mutants.txt
limit=300  # seconds of a test; one that hangs has found the mutant
jobs=$(($(nproc) < 2 ? 1 : 2))

# NAME KIND FILE CHANGE TEST into the variables of these names; fields are between ' | '.
read_fields() {
  local line=$1 field
  for field in name kind file change; do
    printf -v "$field" %s "${line%%' | '*}"
    line=${line#*' | '}
  done
  test=$line
}

# Puts the change into a copy of the file, under a folder that comes first among the includes.
change_copy() {  # FILE CHANGE FOLDER
  mkdir -p "$3/$(dirname "$1")"
  perl -0777 -e '
    my ($file, $change, $to) = @ARGV;
    my ($old, $new) = $change =~ /^(.*?) =>(?: (.*))?$/ or die "no change: $change\n";
    my $pattern = join "\\s+", map { quotemeta } split " ", $old;
    open my $in, "<", $file or die "$file: $!\n";
    my $text = <$in>;
    my $count = () = $text =~ /$pattern/g;
    die "the text is in the file $count times: $old\n" if $count != 1;
    $new //= "";
    $text =~ s/$pattern/$new/;
    open my $out, ">", $to or die "$to: $!\n";
    print $out $text;' "$root/$1" "$2" "$3/$1"
}

# Compiles SOURCE as the build does, but from the copy, with its headers first, and fast; its warnings concern nobody.
compile() {  # PROGRAM SOURCE FOLDER
  local source=$root/$2 command
  [ ! -e "$3/$2" ] || source=$3/$2
  command=$(grep -F -m1 -- " -c $root/$2" "$work/$1.commands") || { echo "no command compiles $2 for $1"; return 1; }
  command=${command%% -MD *}
  (cd "$build" && eval "${command/ -I/ -I$3 -I} -O1 -w -c $source -o $3/mutant.o")
}
link() {  # PROGRAM FOLDER
  local command
  command=$(tail -n 1 "$work/$1.commands")
  (cd "$build" && eval "${command/ -o $1 / $2/mutant.o -o $2/$1 }")
}
# TEST is as in the list, [SETTING=value] PROGRAM: FILTER.
program_of() { local words=${1%%:*}; echo "${words##* }"; }
passes() {  # FOLDER TEST SEED LOG
  local words=${2%%:*} program
  program=$(program_of "$2")
  (cd "$build" && env ${words%"$program"} CUEMU_SEED="$3" FAKECUDA_SEED="$3" timeout "$limit" "$1/$program" -w NoTests "${2#*: }") > "$4" 2>&1
}

# One line of the table: the seed that caught the mutant, or what went wrong.
try_mutant() {  # LINE
  local name kind file change test program folder source seed
  read_fields "$1"
  case $test in equivalent:*) result "$name" "$kind" "$file" equivalent; return ;; esac
  program=$(program_of "$test") folder=$work/$name source=${file##*> } file=${file%% > *}
  rm -rf "$folder"
  mkdir -p "$folder"
  if ! { change_copy "$file" "$change" "$folder" && compile "$program" "$source" "$folder" && link "$program" "$folder"; } \
      > "$folder/build.log" 2>&1; then
    result "$name" "$kind" "$file" "did not build: $(head -n 1 "$folder/build.log")"
    return
  fi
  for seed in 1 2 3; do
    passes "$folder" "$test" "$seed" "$folder/test.log" 2> /dev/null && continue  # bash tells of aborts
    rm -f "$folder/$program"
    result "$name" "$kind" "$file" "caught, order $seed"
    return
  done
  result "$name" "$kind" "$file" SURVIVED
}
result() { printf '%-32s %-10s %-44s %s\n' "$@" | tee "$work/results/$1"; }

# The lines of the names given, or all.
chosen_lines() {
  local line name
  grep -v -e '^#' -e '^$' "$list" | while IFS= read -r line; do
    name=${line%%' | '*}
    if [ $# = 0 ] || grep -qFx -- "$name" <<< "$(printf '%s\n' "$@")"; then printf '%s\n' "$line"; fi
  done
}

# Builds the programs, notes how, and passes their tests.
prepare() {  # LINES
  local tests program test
  tests=$(sed 's/.* | //' <<< "$1" | grep -v '^equivalent:' | sort -u)
  for program in $(sed 's/:.*//; s/.* //' <<< "$tests" | sort -u); do
    cmake --build "$build" --target "$program" > "$work/build.log" 2>&1 || { tail -n 40 "$work/build.log"; exit 1; }
    (cd "$build" && ninja -t commands "$program") > "$work/$program.commands"
  done
  while IFS= read -r test; do
    passes "$build" "$test" 1 "$work/original.log" ||
      { echo "fails without a mutant: $test"; tail -n 20 "$work/original.log"; exit 1; }
  done <<< "$tests"
}

rm -rf "$work/results"
mkdir -p "$work/results"
lines=$(chosen_lines "$@")
[ -n "$lines" ] || { echo "no mutant of this name"; exit 1; }
prepare "$lines"
while IFS= read -r line; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
  try_mutant "$line" &
done <<< "$lines"
wait
count() { cat "$work"/results/* | grep -c "$1" || true; }
total=$(wc -l <<< "$lines") caught=$(count ' caught, order') equivalent=$(count ' equivalent$')
echo "$total mutants: $caught caught, $equivalent equivalent, $(count ' SURVIVED$') survived, $(count ' did not build') did not build"
[ $((caught + equivalent)) = "$total" ]
