#!/usr/bin/env bash
# Peers on the same task, net, T and B, each in a virtual environment of its own (their pins do not agree):
#   benchmarks/peers/run.sh [--seconds 60] [--rounds 1] [--only sb3-a2c,...] [--json FILE] [--install]
# Clearl is measured before each of them, so that what else the machine does hits both alike. With 60 seconds a round
# takes about 15 minutes. Only the packages of what is measured are installed; --install stops after that. FILE is by
# default peers.json in PEERS_DIR. Variables: PEERS_DIR, where the environments and the results are (build/peers); PYTHON,
# which makes the environments (python3.11); CLEARL_PYTHON, which has clearl.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"
out="${PEERS_DIR:-$root/build/peers}"
ours="${CLEARL_PYTHON:-$root/.venv/bin/python}"
seconds=60 rounds=1 only="sb3-a2c,sb3-ppo,sb3-a2c-cheetah,sb3-ppo-cheetah,rllib-impala,sample-factory" install_only= json=
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds="$2"; shift 2 ;;
    --rounds) rounds="$2"; shift 2 ;;
    --only) only="$2"; shift 2 ;;
    --json) json="$2"; shift 2 ;;
    --install) install_only=1; shift ;;
    *) echo "unknown option: $1" >&2; exit 2 ;;
  esac
done

torch="torch>=2.8,<2.14"
# The engine that clearl has: the same robot costs a different time in another one.
engine="$("$ours" -c 'from importlib.metadata import version; print("==" + version("mujoco"))' 2> /dev/null || true)"
declare -A packages=(
  [stable-baselines3]="stable-baselines3 ale-py opencv-python-headless gymnasium[mujoco] mujoco$engine"
  [rllib]="ray[rllib] ale-py opencv-python-headless"
  [sample-factory]="sample-factory[atari] opencv-python-headless"
)
declare -A venv_of=([sb3-a2c]=stable-baselines3 [sb3-ppo]=stable-baselines3
  [sb3-a2c-cheetah]=stable-baselines3 [sb3-ppo-cheetah]=stable-baselines3 [rllib-impala]=rllib [sample-factory]=sample-factory)

install() {
  local venv="$out/venv-$1"
  [ -e "$venv/.installed" ] && return
  "${PYTHON:-python3.11}" -m venv "$venv"
  # shellcheck disable=SC2086  # a list of packages
  "$venv/bin/pip" install --quiet "$torch" ${packages[$1]} 2> "$venv/install.log" || return
  if [ "$1" = sample-factory ]; then
    # Its ale-py is too old to bring the games, and the site that its installer fetches them from is not always there.
    local games
    games="$("$out/venv-stable-baselines3/bin/python" -c 'import ale_py.roms as r; print(r.__path__[0])')"
    "$venv/bin/ale-import-roms" "$games" > "$venv/games.log" 2>&1 || return
  fi
  touch "$venv/.installed"
}

# measure PYTHON NAME: one line in the file, whatever happens.
measure() {
  local limit=$((4 * seconds + 240)) lines code=0
  lines="$(wc -l < "$out/measured.jsonl")"
  timeout -k 10 "$limit" "$1" "$here/measure.py" "$2" --seconds "$seconds" --into "$out/measured.jsonl" \
    > "$out/$2.log" 2>&1 || code=$?
  if [ "$(wc -l < "$out/measured.jsonl")" -eq "$lines" ]; then
    failed "$2" "ended with code $code, at most $limit s were given"
  fi
  tail -n 1 "$out/measured.jsonl" | cut -c 1-200
}

failed() {
  printf '{"name": "%s", "error": "does not run: %s"}\n' "$1" "$2" >> "$out/measured.jsonl"
}

mkdir -p "$out"
for peer in stable-baselines3 rllib sample-factory; do  # Sample Factory takes its games from the first
  wanted=
  for name in ${only//,/ }; do
    case "${venv_of[$name]}-$peer" in "$peer-$peer" | sample-factory-stable-baselines3) wanted=1 ;; esac
  done
  [ -z "$wanted" ] || install "$peer" || echo "$peer does not install; see $out/venv-$peer/*.log" >&2
done
[ -n "$install_only" ] && exit

: > "$out/measured.jsonl"
cd "$root"
for ((round = 0; round < rounds; round++)); do
  for name in ${only//,/ }; do
    venv="$out/venv-${venv_of[$name]}"
    case "$name" in *-cheetah) measure "$ours" clearl-cheetah ;; *) measure "$ours" clearl ;; esac
    if [ -e "$venv/.installed" ]; then
      measure "$venv/bin/python" "$name"
    else
      failed "$name" "does not install: $(tail -n 1 "$venv"/*.log 2> /dev/null | tr -cd '[:alnum:] .:=/-' | cut -c 1-200)"
    fi
  done
done
"$ours" "$here/compare.py" "$out/measured.jsonl" --json "${json:-$out/peers.json}"
