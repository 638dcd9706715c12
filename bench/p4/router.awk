# router.awk: the routing table of bench/p4.sh and bench/p4-writes.sh, always the same one, in the language of each
# switch, and packets for it. Writes to the folder `dir`:
#
#   entries.p4    next hops and `size` routes, as `mswitch p4 add` takes them
#   routes.p4     the routes alone, all by the following next hop; more.p4: as many other routes
#   flows         the same in ovs-ofctl's syntax
#   swx.routes, swx.next_hops   the same for DPDK's pipeline
#   traffic.pcap  `flows` UDP packets of 64 bytes, tagged, in turn to an address of each route
#
#   awk -v size=N -v flows=N -v dir=FOLDER -f router.awk        (with LC_ALL=C)
#
# Lengths of prefixes are as in the tables of Internet routers: most are /24, and many of them lie in shorter ones.

# random(n): a whole number from 0 to n - 1 (Park and Miller's generator).
function random(n) {
  state = state * 16807 % 2147483647
  return int(state / 2147483647 * n)
}
function between(least, most) { return least + random(most - least + 1) }
function power(exponent) { return 2 ^ exponent }
function address(value) {
  return sprintf("%d.%d.%d.%d", value / 16777216, int(value / 65536) % 256, int(value / 256) % 256, value % 256)
}
# hex(value): 32 bits; formats of some awks end at 31.
function hex(value) { return sprintf("0x%04x%04x", int(value / 65536), value % 65536) }

function prefix_length(    r) {
  r = random(100)
  return r < 60 ? 24 : r < 80 ? between(21, 23) : r < 95 ? between(17, 20) : r < 98 ? 16 : between(8, 15)
}

# prefix(): chooses a new one: sets `value` and `length_`.
function prefix(    unit) {
  do {
    length_ = prefix_length()
    unit = power(32 - length_)
    # Half of the addresses are from 512 networks, so that prefixes contain each other; none is a loopback address.
    value = random(2) ? between(11, 126) * 16777216 + random(16777216) : 2147483648 + random(512) * 65536 + random(65536)
    value = int(value / unit) * unit
  } while ((value, length_) in seen)
  seen[value, length_]
}

function route(i,    hop) {
  prefix()
  hop = random(hops)
  print "routes dst=" address(value) "/" length_ " => via(next_hop=" hop ")" >(dir "/entries.p4")
  print "routes dst=" address(value) "/" length_ " => via(next_hop=" (hop + 1) % hops ")" >(dir "/routes.p4")
  print "priority=" length_ ",ip,nw_dst=" address(value) "/" length_ ",actions=write_metadata:" hop ",goto_table:1" \
    >(dir "/flows")
  print "match " hex(value) "/" hex(4294967296 - power(32 - length_)) " action via next_hop " hop >(dir "/swx.routes")
  first[i] = value
  room[i] = power(32 - length_)
}

function next_hop(hop,    from, to, vlan) {
  from = sprintf("02:00:00:01:00:%02x", hop)
  to = sprintf("02:00:00:02:00:%02x", hop)
  vlan = 100 + hop
  print "next_hops next_hop=" hop " => forward_tagged(port=2, vlan=" vlan ", src=" from ", dst=" to ")" \
    >(dir "/entries.p4")
  print "table=1,metadata=" hop ",vlan_tci=0x1000/0x1000,ip,actions=set_field:" from "->eth_src,set_field:" to "->eth_dst,set_field:" \
    4096 + vlan "->vlan_vid,dec_ttl,output:2" >(dir "/flows")
  gsub(":", "", from)
  gsub(":", "", to)
  print "match " hop " action forward_tagged port 1 vlan " vlan " src 0x" from " dst 0x" to >(dir "/swx.next_hops")
}

function bytes(list,    n, part, i) {
  n = split(list, part, " ")
  for (i = 1; i <= n; i++) printf "%c", part[i] + 0 >pcap
}
function word(value) { printf "%c%c", int(value / 256), value % 256 >pcap }

function packet(i,    to, sum) {
  to = first[i % size] + random(room[i % size])
  # Time, captured and full length.
  bytes("0 0 0 0 0 0 0 0 64 0 0 0 64 0 0 0")
  bytes("2 0 0 0 0 15 2 0 0 0 0 1 129 0 0 10 8 0 69 0 0 46")
  word(i % 65536)
  bytes("64 0 64 17")
  sum = 17664 + 46 + i % 65536 + 16384 + 16401 + 198 * 256 + 18 + i % 65536 + int(to / 65536) + to % 65536
  while (sum > 65535) sum = int(sum / 65536) + sum % 65536
  word(65535 - sum)
  bytes("198 18")
  word(i % 65536)
  word(int(to / 65536))
  word(to % 65536)
  word(20000)
  bytes("0 9 0 26 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0")
}

BEGIN {
  state = 20190907
  hops = 64
  pcap = dir "/traffic.pcap"
  for (hop = 0; hop < hops; hop++) next_hop(hop)
  for (i = 0; i < size; i++) route(i)
  bytes("212 195 178 161 2 0 4 0 0 0 0 0 0 0 0 0 255 255 0 0 1 0 0 0")
  for (i = 0; i < flows; i++) packet(i)
  for (i = 0; i < size; i++) {
    prefix()
    print "routes dst=" address(value) "/" length_ " => via(next_hop=" random(hops) ")" >(dir "/more.p4")
  }
}
