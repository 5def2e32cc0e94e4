#!/bin/sh
# The whole cycle on one scenario: plan, review, verify, apply to the simulated cluster, plan again.
# usage: demo.sh GPUPLAN SCENARIO FOLDER
set -eu
gpuplan=$1 scenario=$2 folder=$3
rm -rf "$folder"
mkdir -p "$folder"

say() { printf '\n$ gpuplan %s\n' "$*"; }
run() { say "$@"; "$gpuplan" "$@"; }

run plan "$scenario" -o "$folder/plan.json" --report "$folder/plan.html"
run diff "$folder/plan.json"
run verify "$folder/plan.json" "$scenario"
run apply "$folder/plan.json" --executor simulated --auto-approve \
    --state "$folder/cluster.db" --audit "$folder/audit.jsonl"
run audit verify "$folder/audit.jsonl"
run snapshot --from simulated --state "$folder/cluster.db" -o "$folder/after.json"
run plan "$folder/after.json" --policy "$scenario/policy.yaml" --detailed-exitcode
