#!/usr/bin/env bash
# Peers on the same task, net, T and B, in a virtual environment of their own: benchmarks/peers/run.sh [--seconds 60] ...
# Installs from the package index into build/peers (one environment for each peer: their pins do not agree).
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"
python="${PYTHON:-python3.11}"
out="$root/build/peers"
mkdir -p "$out"

declare -A packages=(
  [stable-baselines3]="stable-baselines3[extra] ale-py opencv-python-headless"
  [rllib]="ray[rllib] torch ale-py opencv-python-headless"
  [sample-factory]="sample-factory ale-py opencv-python-headless"
)
for peer in stable-baselines3 rllib sample-factory; do
  venv="$out/venv-$peer"
  if [ ! -e "$venv/.installed" ]; then
    "$python" -m venv "$venv"
    # shellcheck disable=SC2086  # a list of packages
    if ! "$venv/bin/pip" install --quiet ${packages[$peer]}; then
      echo "{\"peer\": \"$peer\", \"error\": \"does not install\"}" > "$out/$peer.json"
      continue
    fi
    touch "$venv/.installed"
  fi
  "$venv/bin/python" "$here/measure.py" "$peer" --json "$out/$peer.json" "$@" || true
done
"$root/.venv/bin/python" "$here/measure.py" clearl --json "$out/clearl.json" "$@"
"$root/.venv/bin/python" "$here/compare.py" "$out" --json "$out/peers.json"
