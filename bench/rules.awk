# rules.awk: rule sets of bench/rules.sh, always the same ones. Writes flows in ovs-ofctl's syntax to the file `rules`,
# and traffic for them in ClassBench's format to the file `traffic`, `copies` lines a rule; the generator chooses for
# each line what the rule leaves open. Sets whose traffic has no 5-tuples of its own (port, l2) leave that file out.
#
#   awk -v set=NAME -v size=N -v copies=N -v rules=FILE -v traffic=FILE -f rules.awk

# random(n): a whole number from 0 to n - 1 (Park and Miller's generator).
function random(n) {
  state = state * 16807 % 2147483647
  return int(state / 2147483647 * n)
}
function between(least, most) { return least + random(most - least + 1) }
function power(exponent) { return 2 ^ exponent }

# address(value, length): the prefix with these leading bits.
function address(value, length_,    unit) {
  unit = power(32 - length_)
  value = int(value / unit) * unit
  return sprintf("%d.%d.%d.%d/%d", value / 16777216, int(value / 65536) % 256, int(value / 256) % 256, value % 256, length_)
}

# ones(count): leading bits that no other count has: count - 1 ones and a zero, of a field of `width` bits.
function ones(count, width) { return power(width) - power(width - count + 1) }

function flow(match_, actions) { print match_ ",actions=" actions >rules }

function packets(source, destination, port_least, port_most, protocol) {
  line[lines++] = sprintf("@%s %s %s : %s %s", source, destination, port_least, port_most, protocol)
}

# exact: 5-tuples. The source address differs; the rest is random.
function exact(i,    source, destination, from, to) {
  source = address(167772160 + i, 32)
  destination = address(3323068416 + random(131072), 32)
  from = between(1024, 65535)
  to = between(1, 65535)
  flow("udp,nw_src=" source ",nw_dst=" destination ",tp_src=" from ",tp_dst=" to, "output:2")
  packets(source, destination, from " : " from " " to, to, "0x11/0xFF")
}

# l2: destination addresses, those of the generator's stations.
function l2(i) {
  flow(sprintf("dl_dst=02:00:%02x:%02x:%02x:02", i / 65536, int(i / 256) % 256, i % 256), "output:2")
}

function l3(i,    destination) {
  destination = address(167772160 + i, 32)
  flow("ip,nw_dst=" destination, "output:2")
  packets("0.0.0.0/0", destination, "0 : 65535 0", 65535, "0x11/0xFF")
}

# masks: a mask of its own for each rule, out of prefixes of both addresses and of the destination port. No packet
# matches two of them.
function masks(i,    a, b, c, source, destination, port, unit, match_) {
  a = i % 32 + 1
  b = int(i / 32) % 32 + 1
  c = int(i / 1024) + 1
  source = address(ones(a, 32), a)
  destination = address(ones(b, 32), b)
  port = ones(c, 16)
  unit = power(16 - c)
  flow(sprintf("udp,nw_src=%s,nw_dst=%s,tp_dst=0x%x/0x%x", source, destination, port, 65536 - unit), "output:2")
  packets(source, destination, "0 : 65535 " port, port + unit - 1, "0x11/0xFF")
}

# prefix_length(): most prefixes of access lists are subnets and hosts.
function prefix_length(    r) {
  r = random(100)
  return r < 8 ? between(8, 15) : r < 20 ? 16 : r < 35 ? between(17, 23) : r < 60 ? 24 : r < 70 ? between(25, 31) : 32
}

# acl: an access list: nested prefixes, ports exact, open or in ranges, each rule before the later ones. A range needs
# several flows: one for each aligned block of it.
function acl(i,    source, destination, from, to, r, least, most, match_, unit, key) {
  do {
    from = random(100) < 25 ? 0 : prefix_length()
    to = random(100) < 8 ? 0 : prefix_length()
    if (from == 0 && to == 0) to = 24
    # Few networks, so that prefixes contain each other.
    source = address(167772160 + random(networks) * 65536 + random(65536), from)
    destination = address(3232235520 + random(networks) * 65536 + random(65536), to)
    r = random(100)
    if (r < 45) least = most = between(1, 1024)
    else if (r < 55) least = most = between(1025, 65535)
    else if (r < 62) { least = 1024; most = 65535 }
    else if (r < 68) { least = between(1, 60000); most = least + between(1, 64) }
    else { least = 0; most = 65535 }
    key = source destination " " least " " most
  } while (key in seen)
  seen[key]
  priority = 65535 - int(i * 65000 / (size > 65000 ? size : 65000))
  match_ = "priority=" priority ",udp,nw_src=" source ",nw_dst=" destination
  # A port that is open leaves the protocol open in a third of the rules.
  if (least == 0) {
    if (random(3) == 0) sub(/,udp/, ",ip", match_)
    flow(match_, "output:2")
  }
  packets(source, destination, "0 : 65535 " least, most, "0x11/0xFF")
  while (least > 0 && least <= most) {
    unit = 1
    while (least % (2 * unit) == 0 && least + 2 * unit - 1 <= most) unit *= 2
    flow(sprintf("%s,tp_dst=0x%x/0x%x", match_, least, 65536 - unit), "output:2")
    least += unit
  }
}

# pipeline: port, station, route, service, next hop; the packet carries on what it has met in its metadata.
function pipeline(i,    destination) {
  if (i == 0) {
    flow("table=0,in_port=1", "write_metadata:0x1/0xff,goto_table:1")
    flow("table=1,metadata=0x1/0xff,dl_dst=02:00:00:00:00:02", "goto_table:2")
    for (hop = 0; hop < 64; hop++) {
      flow("table=3,metadata=0x1/0xff,udp,tp_dst=" 1000 + hop, "goto_table:4")
      flow(sprintf("table=4,metadata=0x%x/0xff00", hop * 256), "output:2")
    }
  }
  destination = address((655360 + i) * 256, 24)
  flow("table=2,metadata=0x1/0xff,ip,nw_dst=" destination, sprintf("write_metadata:0x%x/0xff00,goto_table:3", i % 64 * 256))
  to = 1000 + int(i / 7) % 64
  packets("0.0.0.0/0", destination, "0 : 65535 " to, to, "0x11/0xFF")
}

BEGIN {
  state = 20190907
  networks = int(size / 50) + 4
  if (networks > 1000) networks = 1000
  for (i = 0; i < size; i++) {
    if (set == "port") flow("in_port=1", "output:2")
    else if (set == "exact") exact(i)
    else if (set == "l2") l2(i)
    else if (set == "l3") l3(i)
    else if (set == "masks") masks(i)
    else if (set == "acl") acl(i)
    else if (set == "pipeline") pipeline(i)
    else exit 1
  }
  for (copy = 0; copy < copies; copy++) for (i = 0; i < lines; i++) print line[i] >traffic
}
