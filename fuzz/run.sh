#!/usr/bin/env bash
# Fuzzing: replays known inputs, or searches for new findings.
#
#   fuzz/run.sh replay [TARGET...]     each committed seed once, and the inputs that earlier runs found here
#   fuzz/run.sh SECONDS [TARGET...]    the same, then fuzzes each target for this many seconds
#
# Installs cargo-fuzz if it is missing. Findings are kept in fuzz/artifacts/TARGET/; copied to fuzz/seeds/TARGET/, they
# are reproduced by `fuzz/run.sh replay TARGET`. Works with stable Rust (RUSTC_BOOTSTRAP).
set -euo pipefail
cd "$(dirname "$0")"

mode=${1:-}
if ! [[ $mode == replay || $mode =~ ^[1-9][0-9]*$ ]]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
shift
if ! command -v cargo-fuzz >/dev/null; then
  echo "Installing cargo-fuzz (once, a minute)."
  cargo install cargo-fuzz --locked --quiet
fi
export RUSTC_BOOTSTRAP=1
if [[ $# -gt 0 ]]; then targets=("$@"); else mapfile -t targets < <(cargo fuzz list); fi

# The control plane and the P4 front end are compiled only for the targets that need them.
flags=
if [[ " ${targets[*]} " != *" config "* && " ${targets[*]} " != *" p4"* ]]; then flags=--no-default-features; fi
echo "Building the fuzz targets with the address sanitizer."
cargo fuzz build $flags

# Replays or fuzzes one target. Inputs that add coverage to the seeds go to corpus/, which git ignores.
run_target() {
  local target=$1 options log longest=4096
  # Documents of this format are long.
  [[ $target != bmv2_json ]] || longest=32768
  mkdir -p "corpus/$target"
  if [[ $mode == replay ]]; then
    options=(-runs=0)
  else
    options=(-max_total_time="$mode" -print_final_stats=1)
  fi
  log=$(mktemp)
  if cargo fuzz run $flags "$target" "corpus/$target" "seeds/$target" -- \
    -max_len=$longest -timeout=20 -rss_limit_mb=2048 -verbosity=1 "${options[@]}" >"$log" 2>&1; then
    echo "== $target: $(find "seeds/$target" "corpus/$target" -type f | wc -l) inputs, then $mode"
    grep -E '^(#[0-9]+\s+(DONE|INITED)|stat::(number_of_executed_units|average_exec_per_sec|new_units_added))' "$log" | tail -4
    rm -f "$log"
  else
    cat "$log" >&2
    rm -f "$log"
    echo "== $target: FAILED; see above and fuzz/artifacts/$target/" >&2
    return 1
  fi
}
export mode flags
export -f run_target
# One target for each CPU at a time.
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_target {}'
echo "Fuzzing: ${#targets[@]} targets without findings."
