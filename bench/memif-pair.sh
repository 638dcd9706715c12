# memif-pair.sh: sourced by measurements of mswitch alone, with one worker on CPU 0 between memif ports a and b of bridge
# br0, logic `static`, and memif-check on CPU 1 as both clients.
#
# A script calls `start_pair [TOOL...]`, which fails without these tools, and then has $mswitch, $check and $dir; at the
# end, the daemon is stopped and $dir removed. MSWITCH and MEMIF_CHECK name the binaries (default: those of
# `cargo build --release --workspace --bins`).
# shellcheck shell=bash
# shellcheck disable=SC2034 # used by scripts that source this

mswitch=${MSWITCH:-target/release/mswitch}
check=${MEMIF_CHECK:-target/release/memif-check}
daemon='' client=''

start_pair() {
  local program
  for program in "$mswitch" "$check" jq "$@"; do
    command -v "$program" >/dev/null || { echo "${0##*/}: $program is missing; make bench installs and builds it" >&2; exit 1; }
  done
  dir=$(mktemp -d)
  trap 'for pid in $client $daemon; do kill "$pid" 2>/dev/null || true; done; rm -rf "$dir"' EXIT
  {
    printf '[[bridge]]\nname = "br0"\nlogic = "static"\n'
    printf '[[bridge.port]]\nname = "a"\ntype = "memif"\npath = "%s/memif"\nid = 0\n' "$dir"
    printf '[[bridge.port]]\nname = "b"\ntype = "memif"\npath = "%s/memif"\nid = 1\n' "$dir"
  } >"$dir/config.toml"
  export MSWITCH_SOCKET=$dir/socket
  "$mswitch" daemon --config "$dir/config.toml" --workers 0 2>"$dir/log" &
  daemon=$!
  until "$mswitch" status >/dev/null 2>&1; do kill -0 "$daemon"; sleep 0.05; done
}

# clients OPTION...: starts both clients, which send as fast as they can.
clients() {
  "$check" run --port "$dir/memif,id=0" --port "$dir/memif,id=1" --rate max --allow-loss --cpu 1 --poll "$@" \
    >"$dir/client.log" 2>&1 &
  client=$!
}
