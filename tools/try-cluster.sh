#!/usr/bin/env bash
# Start docs/cluster.yaml, as it stands, on three hosts that exist for as long as this takes: namespaces of this machine
# with the addresses of the file, each with its own processes, home, /tmp and sshd. Nothing of it can be reached from
# outside, and nothing outside from there: packages come from a directory of wheels made beforehand.
# For root on Linux with iproute2, openssh-server, rsync and python3-venv:   tools/try-cluster.sh [settings of clearl run]
set -euo pipefail
cd "$(dirname "$0")/.."
yaml=docs/cluster.yaml python=.venv/bin/python
read -r user hosts < <("$python" - "$yaml" <<'PY'
import sys, yaml
told = yaml.safe_load(open(sys.argv[1]))
print(told["auth"]["ssh_user"], told["provider"]["head_ip"], *told["provider"]["worker_ips"])
PY
)
place=$(mktemp -d /var/tmp/clearl-cluster.XXXX)
chmod 755 "$place"
lan=clearl-lan
mine=$place/launcher
launch() { # with a ~/.ssh and a ~/.ray of its own: ssh does not go by $HOME
    ip netns exec "$lan" env PATH="$PWD/.venv/bin:$PATH" unshare --mount bash -c \
        'mount --bind "$0/.ssh" ~/.ssh && mount --bind "$0/.ray" ~/.ray && exec "$@"' "$mine" "$@"
}

end() {
    status=$?
    set +e
    kill $(cat "$place"/*.pid) 2>/dev/null
    sleep 1
    for host in $hosts; do ip netns del "clearl-$host"; done
    ip netns del "$lan"
    [ -z "${made_user:-}" ] || { pkill -KILL -u "$user"; sleep 1; userdel "$user"; rmdir "/home/$user"; }
    rm -rf "$place"
    exit $status
}
trap end EXIT

"$python" -m pip wheel --quiet --wheel-dir "$place/wheels" '.[ray,minatar]' ./distributions/minatar-fast
id "$user" >/dev/null 2>&1 || { useradd --no-create-home --home-dir "/home/$user" --shell /bin/bash --password '*' "$user"; made_user=1; }
mkdir -p "/home/$user" /run/sshd ~/.ssh ~/.ray "$mine/.ssh" "$mine/.ray"
ssh-keygen -q -t ed25519 -N '' -f "$mine/.ssh/id_ed25519"
ssh-keygen -q -t ed25519 -N '' -f "$place/host_key"

ip netns add "$lan"
ip -n "$lan" link set lo up
ip -n "$lan" link add br0 type bridge
ip -n "$lan" address add "$(sed 's/[0-9]*$/2/' <<<"${hosts%% *}")/24" dev br0
ip -n "$lan" link set br0 up
for host in $hosts; do
    space=clearl-$host link=veth${host##*.} home=$place/home-$host
    ip netns add "$space"
    ip -n "$lan" link add "$link" type veth peer name eth0 netns "$space"
    ip -n "$lan" link set "$link" master br0 up
    ip -n "$space" address add "$host/24" dev eth0
    ip -n "$space" link set eth0 up
    ip -n "$space" link set lo up
    mkdir -p "$home/.ssh" "$home/.config/pip"
    cp "$mine/.ssh/id_ed25519.pub" "$home/.ssh/authorized_keys"
    printf '[global]\nno-index = true\nfind-links = %s\ndisable-pip-version-check = true\n' "$place/wheels" >"$home/.config/pip/pip.conf"
    chown -R "$user" "$home"
    printf '127.0.0.1 localhost\n%s %s\n' "$host" "$space" >"$place/hosts-$host" # Ray asks for its own name
    ip netns exec "$space" unshare --pid --mount --ipc --uts --fork --kill-child --mount-proc bash -c "
        hostname '$space' && mount -t tmpfs tmpfs /tmp && chmod 1777 /tmp && mount -t tmpfs tmpfs /dev/shm &&
        chmod 1777 /dev/shm && mount --bind '$place/hosts-$host' /etc/hosts && mount --bind '$home' '/home/$user' &&
        exec /usr/sbin/sshd -D -e -f /dev/null -h '$place/host_key' -o UsePAM=no -o PasswordAuthentication=no" \
        >"$place/sshd-$host.log" 2>&1 &
    echo $! >"$place/$host.pid"
done
sleep 2

launch ray get-auth-token --generate >/dev/null
launch ray up --yes --no-config-cache "$yaml"
count='import ray; ray.init(logging_level="ERROR"); print("nodes:", sum(node["Alive"] for node in ray.nodes()))'
until launch ray exec "$yaml" "RAY_AUTH_MODE=token RAY_ADDRESS=auto ~/clearl-venv/bin/python -c '$count'" | tee /dev/stderr |
    grep -q "nodes: $(wc -w <<<"$hosts")"; do sleep 5; done
launch ray exec "$yaml" "RAY_AUTH_MODE=token ~/clearl-venv/bin/clearl run --runtime ray --address auto --out runs/mine $*"
launch ray exec "$yaml" '~/clearl-venv/bin/python -c "import json; print(json.load(open(\"runs/mine/meta.json\"))[\"status\"])"'
launch ray down --yes "$yaml"
