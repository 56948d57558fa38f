#!/usr/bin/env bash
# Regenerates the protobuf modules with the pinned, old toolchain, whose output loads under
# protobuf 4 to 7. Usage: protos/generate.sh [OUTPUT_ROOT]   (default: this checkout)
set -euo pipefail
cd "$(dirname "$0")/.."
tools=.venv-protos
pins=("grpcio-tools==1.62.3" "setuptools<81")
if [ ! -x "$tools/bin/python" ] || ! "$tools/bin/python" -c 'import grpc_tools' 2>/dev/null; then
    "${PYTHON:-python3}" -m venv "$tools"
    "$tools/bin/pip" install --quiet "${pins[@]}"
fi
output=${1:-typings}
mkdir -p "$output"
"$tools/bin/python" -W ignore -m grpc_tools.protoc --proto_path=typings \
    --python_out="$output" --pyi_out="$output" --grpc_python_out="$output" \
    foedus/protos/v1/{common,session,transfer,enrolment,operations}.proto
rm -f "$output/foedus/protos/v1/common_pb2_grpc.py"  # no service there
