# one-way.sh: sourced by measurements of traffic from one memif port to the other: the generator on CPU 1, one switch at
# a time on CPU 0 (testbed.sh), whose counters are read around the measured time.
#
# A script has $mswitch, $generator, $seconds and set_up's $dir; starts a switch, whose sockets are $folder/v0 and v1;
# calls `traffic`, then `work_of`. `wrong` tells what fails a run, if anything.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # between scripts that source each other

wrong=''

now() { date +%s.%N; }

# start_mswitch LOGIC: with two ports, and no entry; `static` forwards from v0 to v1.
start_mswitch() {
  logic=$1
  rm -rf "$dir/ours"
  mkdir "$dir/ours"
  {
    printf '[[bridge]]\nname = "br0"\nlogic = "%s"\n' "$1"
    case $1 in
      openflow) printf '[bridge.openflow]\nfail-mode = "secure"\n' ;;
      static) printf 'params = { v0 = "v1" }\n' ;;
    esac
    local i
    for i in 0 1; do
      printf '[[bridge.port]]\nname = "v%s"\ntype = "memif"\npath = "%s/ours/v%s"\n' "$i" "$dir" "$i"
      case $1 in
        openflow) printf 'openflow-port = %s\n' $((i + 1)) ;;
        p4:*) printf 'p4-port = %s\n' $((i + 1)) ;;
      esac
    done
  } >"$dir/ours/config.toml"
  "${first[@]}" "$mswitch" daemon --socket "$dir/ours/ctl" --config "$dir/ours/config.toml" --workers 0 2>"$dir/ours/log" &
  ours=$!
  waits_for 10 "$mswitch" status --socket "$dir/ours/ctl" || fail "mswitch did not start: $(tail -3 "$dir/ours/log")"
}

# traffic NAME OPTION...: runs the generator with these packets; once the switch has settled, reads its counters around
# `seconds`, sets `span` to the time between and `pps` to the rate received, which is told in thousands of packets a
# second: lower rates are the switch's. The generator's report is $dir/report.json.
traffic() {
  local told name=$1
  shift
  "${first[@]}" "$generator" send --cpu 1 --port "memif:$folder/v0" --port "memif:$folder/v1" --queues 2 --ring 2048 \
    --one-way --announce no --order uniform "$@" --warm-up 0.1 --seconds 1000 \
    --connect 20 >"$dir/report.json" 2>"$dir/generator.log" &
  client=$!
  # A line a second.
  waits_for 60 told_or_over || true
  if kill -0 "$client" 2>/dev/null; then
    settle "$name"
    told=$(wc -l <"$dir/generator.log")
    "before_$name"
    span=$(now)
    sleep "$seconds"
    "after_$name"
    span=$(jq -n "$(now) - $span")
    # The last line of this time.
    waits_for 3 told_more "$((told + seconds))" || true
    kill -INT "$client" 2>/dev/null || true
  fi
  wait "$client" || wrong="the generator failed: $(tail -1 "$dir/generator.log")"
  client=''
  if [ -z "$wrong" ]; then
    pps=$(tail -n "+$((told + 1))" "$dir/generator.log" | head -n "$seconds" |
      sed -n 's/^sending:.*received \([0-9.]*\) Mpps.*/\1/p' |
      awk '{ sum += $1 } END { printf "%.0f", NR ? sum / NR * 1e6 : 0 }')
  fi
}
told_or_over() { grep -q '^sending:' "$dir/generator.log" || ! kill -0 "$client" 2>/dev/null; }
told_more() { [ "$(wc -l <"$dir/generator.log")" -ge "$1" ]; }

# settle NAME: a second; for mswitch, until packets run code that is specialised for the entries, if they ever do, or
# 10 s are over; for Open vSwitch, which makes a flow of its datapath for what it meets and raises their limit slowly,
# until their number has changed by less than 1 % in 2 s, or a minute is over.
settle() {
  local earlier=-1000 flows_now=0 deadline=$((SECONDS + 60))
  sleep 1
  case $1 in
    mswitch) [ "$logic" = static ] || waits_for 10 specialised || true ;;
    ovs)
      while [ $(((flows_now - earlier) ** 2 * 10000)) -gt $((flows_now ** 2)) ] && [ "$SECONDS" -lt "$deadline" ]; do
        earlier=$flows_now
        sleep 2
        flows_now=$(datapath_flows)
      done
      ;;
  esac
}
# Programs that no code can be specialised for say `no: REASON`.
specialised() {
  ask logic show br0 | jq -e 'any(.tables[].rows[].cells;
    (.[0] | startswith("specialised for the ")) and (.[1] | . == "yes" or startswith("no: ")))' >/dev/null
}
datapath_flows() { ctl upcall/show | sed -n 's/.*(current \([0-9]*\)).*/\1/p' | head -1; }

before_mswitch() { ask worker show >"$dir/workers.0"; }
after_mswitch() { ask worker show >"$dir/workers.1"; }
before_ovs() { ctl dpif-netdev/pmd-stats-show >"$dir/pmd.0"; }
after_ovs() { ctl dpif-netdev/pmd-stats-show >"$dir/pmd.1"; }

# work_of NAME: cycles per packet, and what tells why, as JSON.
work_of() {
  if [ "$1" = mswitch ]; then
    jq -nc --slurpfile a "$dir/workers.0" --slurpfile b "$dir/workers.1" '
      def grown(f): ([$b[0].workers[] | f] | add) - ([$a[0].workers[] | f] | add);
      {packets: grown(.packets), cycles: (grown(.busy_cycles) / grown(.packets)), batch: (grown(.packets) / grown(.batches)),
       busy: (grown(.busy_cycles) / grown(.elapsed_cycles))}'
  else
    jq -nc --argjson a "$(pmd "$dir/pmd.0")" --argjson b "$(pmd "$dir/pmd.1")" '
      def grown($name): $b[$name] - $a[$name];
      grown("packets received") as $packets | grown("processing cycles") as $busy | grown("megaflow hits") as $mega |
      {$packets, cycles: ($busy / $packets), busy: ($busy / ($busy + grown("idle cycles"))),
       simple_hits: (grown("simple match hits") / $packets), emc_hits: (grown("emc hits") / $packets),
       megaflow_hits: ($mega / $packets),
       subtables: (if $mega > 0 then
           ($b["avg. subtable lookups per megaflow hit"] * $b["megaflow hits"] -
            $a["avg. subtable lookups per megaflow hit"] * $a["megaflow hits"]) / $mega
         else 0 end),
       upcalls: ((grown("miss with success upcall") + grown("miss with failed upcall")) / $packets)}'
  fi
}

# pmd FILE: what pmd-stats-show said of the first thread, as JSON.
pmd() {
  sed '/^main thread/,$d' "$1" | jq -R 'capture("^ *(?<key>[^:]*): *(?<value>[0-9.]+)") | .value |= tonumber' |
    jq -cs from_entries
}

# Three digits, as figures differ by orders of magnitude.
# shellcheck disable=SC2016 # for jq to expand
jq_digits='
  def digits: if . <= 0 then 0 else pow(10; 2 - (log10 | floor)) as $n | (. * $n | round) / $n end;
  def show: "\(.median | digits) (\(.min | digits) to \(.max | digits))";'
