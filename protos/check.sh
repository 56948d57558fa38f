#!/usr/bin/env bash
# Are the committed protobuf modules what the schemas generate? Regenerates them elsewhere and compares.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
protos/generate.sh "$fresh"
status=0
for committed in protos/v1/*_pb2*; do
    [ -e "$fresh/foedus/$committed" ] || { echo "$committed is generated from no schema: remove it" >&2; status=1; }
done
for generated in "$fresh"/foedus/protos/v1/*; do
    diff -u "protos/v1/$(basename "$generated")" "$generated" >&2 || status=1
done
[ "$status" -eq 0 ] || echo "the generated code is out of date: run 'make protos' and commit the result" >&2
exit "$status"
