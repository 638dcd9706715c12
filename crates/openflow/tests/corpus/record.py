#!/usr/bin/env python3
"""Records what Open vSwitch puts on the wire, as a corpus for this crate's tests.

Usage: record.py DIRECTORY

Starts ovsdb-server and ovs-vswitchd with dummy devices in a temporary directory, runs ovs-ofctl commands against the
bridge through a proxy, and writes every message in both directions, in hexadecimal and without repetitions, to
DIRECTORY/openflow1N.hex, one file per version. Needs Open vSwitch (Debian: openvswitch-switch); no running switch is
touched.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

FLOWS = """
in_port=1,actions=output:2
in_port=LOCAL,actions=NORMAL
priority=7,dl_src=00:11:22:33:44:55,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=flood
dl_vlan=9,dl_vlan_pcp=3,actions=strip_vlan,ALL
vlan_tci=0,actions=mod_vlan_vid:7,mod_vlan_pcp:2,in_port
vlan_tci=0x1000/0x1000,actions=drop
arp,arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/8,actions=controller:128
arp,arp_sha=00:01:02:03:04:05,arp_tha=00:00:00:00:00:00,actions=local
ip,nw_src=10.0.0.0/24,nw_dst=192.168.1.1,nw_tos=32,actions=mod_nw_src:1.2.3.4,mod_nw_dst:4.3.2.1,mod_nw_tos:16,output:1
tcp,tp_src=80,tp_dst=0x1000/0xf000,actions=mod_tp_src:8080,mod_tp_dst:81,dec_ttl,output:1
tcp,tcp_flags=+syn-ack,actions=drop
udp,tp_dst=53,actions=set_queue:3,output:1,pop_queue
sctp,tp_src=5,actions=enqueue:1:7
icmp,icmp_type=8,icmp_code=0,actions=mod_nw_ttl:3,dec_ttl(1,2,3)
icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::1,nd_sll=00:01:02:03:04:05,actions=drop
icmp6,icmp_type=136,nd_tll=00:01:02:03:04:05,actions=drop
ipv6,ipv6_src=2001:db8::/32,ipv6_dst=::1,ipv6_label=0x12345,actions=drop
ip,ip_frag=later,nw_ecn=1,nw_ttl=64,actions=drop
ip,ip_frag=first,actions=fin_timeout(idle_timeout=3)
mpls,mpls_label=100,mpls_tc=3,mpls_bos=1,actions=pop_mpls:0x0800,dec_ttl
ip,actions=push_mpls:0x8847,set_field:7->mpls_label,set_mpls_ttl(9),set_mpls_tc(2),dec_mpls_ttl
ip,actions=push_vlan:0x8100,set_field:4099->vlan_vid,set_field:2->vlan_pcp
tun_id=0x1234,tun_src=1.1.1.1,tun_dst=2.2.2.2,tun_flags=oam,actions=set_tunnel:5,set_tunnel64:0x123456789abc
tun_ipv6_src=::1,tun_ipv6_dst=::2,tun_gbp_id=3,tun_gbp_flags=4,actions=drop
reg0=1,reg1=0x10/0xf0,reg15=7,actions=load:0x1234->NXM_NX_REG3[0..15],move:NXM_NX_REG0[]->NXM_NX_REG1[]
xreg0=0x12,xxreg3=0x12345678901234567890,metadata=5/0xf,actions=set_field:9->xreg1,set_field:5/0xff->reg3,set_field:7->metadata
pkt_mark=7,dp_hash=1/3,recirc_id=0,conj_id=9,actions=set_field:1->pkt_mark,set_field:2/0xf->pkt_mark
ct_state=+trk+new-est,ct_zone=5,ct_mark=1/1,ct_label=0x10,ip,actions=ct(commit,zone=5,exec(set_field:1->ct_mark,set_field:2->ct_label))
ct_state=+est,ct_nw_src=1.2.3.4,ct_nw_dst=1.2.0.0/16,ct_nw_proto=6,ct_tp_src=1,ct_tp_dst=2,ip,actions=ct(table=3,zone=NXM_NX_REG4[0..15])
ip,actions=ct(commit,nat(src=10.0.0.1-10.0.0.9:100-200,random)),ct(nat),ct(commit,force,alg=ftp,nat(dst=1.1.1.1,hash,persistent)),ct_clear
ipv6,actions=ct(commit,nat(src=fe80::1-fe80::9))
actions=resubmit:5,resubmit(,3),resubmit(7,4),resubmit(,5),exit
ct_state=+trk+est,ip,actions=resubmit(1,2,ct)
actions=learn(table=3,idle_timeout=5,hard_timeout=6,priority=7,cookie=0x123,send_flow_rem,delete_learned,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],output:NXM_OF_IN_PORT[])
actions=learn(table=4,limit=9,result_dst=NXM_NX_REG8[0],eth_type=0x800,NXM_OF_IP_SRC[]=0x0a000001,load:0x5->NXM_NX_REG1[0..3],fin_idle_timeout=2,fin_hard_timeout=3,tcp_dst=80,nw_proto=6)
conj_id=3,actions=drop
ip,nw_src=9.9.9.9,actions=conjunction(3,1/2)
tcp,tp_dst=99,actions=conjunction(3,2/2),conjunction(4,1/3)
actions=note:00.11.22.33.44.55.66.77,output:1
actions=multipath(symmetric_l4,50,hrw,4,0,NXM_NX_REG5[0..7]),multipath(eth_src,1,modulo_n,2,0,NXM_NX_REG0[])
actions=bundle(eth_src,0,hrw,ofport,members:4,8),bundle_load(symmetric_l3l4,60,active_backup,ofport,NXM_NX_REG0[0..31],members:1,2,3)
actions=controller(max_len=99,reason=invalid_ttl,id=7),controller(userdata=00.11.22,pause),controller(userdata=01,meter_id=3,max_len=9)
actions=output:NXM_NX_REG1[5..10],output(port=1,max_len=100)
actions=clone(set_field:1->reg1,clone(output:2),output:1),output:3
actions=sample(probability=12345,collector_set_id=23456,obs_domain_id=34567,obs_point_id=45678)
actions=sample(probability=1,collector_set_id=2,obs_domain_id=3,obs_point_id=4,sampling_port=5,egress)
actions=sample(probability=1,collector_set_id=2,obs_domain_id=3,obs_point_id=4,sampling_port=5)
actions=check_pkt_larger(1500)->NXM_NX_REG0[3],check_pkt_larger(900)->reg1[0]
actions=push:NXM_NX_REG0[],push:NXM_OF_ETH_SRC[0..15],pop:NXM_NX_REG2[0..15],pop:NXM_NX_REG3[]
table=1,cookie=0x1122334455667788,idle_timeout=10,hard_timeout=20,send_flow_rem,actions=write_metadata:0x5/0xff,goto_table:2
table=2,actions=write_actions(output:1,group:5),clear_actions,apply_actions(output:2),goto_table:9
table=3,actions=meter:1,output:1
table=4,importance=5,no_packet_counts,no_byte_counts,reset_counts,check_overlap,priority=5,actions=group:5
table=5,tun_metadata0=0x1234,actions=set_field:0x12->tun_metadata1,delete_field:tun_metadata0
table=6,ip,actions=encap(nsh(md_type=1)),set_field:0x123456->nsh_spi,encap(ethernet),output:1
table=6,nsh,nsh_si=254,nsh_spi=1,nsh_flags=1,nsh_mdtype=1,nsh_np=3,nsh_c1=1,nsh_ttl=7,actions=decap(),dec_nsh_ttl
table=6,eth_type=0x894f,nsh_c4=5/0xff,actions=drop
table=7,actset_output=1,actions=output:in_port
table=8,tun_erspan_ver=1,tun_erspan_idx=7,tun_erspan_dir=1,tun_erspan_hwid=3,actions=drop
table=8,tun_gtpu_flags=1,tun_gtpu_msgtype=255,actions=drop
table=9,icmp6,icmp_type=135,icmp_code=0,nd_reserved=7,nd_options_type=1,actions=drop
""".strip().splitlines()

GROUPS = """
group_id=1,type=all,bucket=output:1,bucket=output:2
group_id=2,type=select,bucket=weight:10,output:1,bucket=weight:20,output:2
group_id=3,type=indirect,bucket=output:3
group_id=4,type=ff,bucket=watch_port:1,output:1,bucket=watch_group:1,output:2
group_id=5,type=select,selection_method=hash,selection_method_param=7,fields(ip_src,ip_dst,tcp_src=0xff00),bucket=bucket_id:1,output:1
group_id=6,type=select,selection_method=dp_hash,bucket=bucket_id:7,weight:3,actions=set_field:1->reg0,output:1
""".strip().splitlines()

METERS = """
meter=1,pktps,bands=type=drop,rate=100
meter=2,kbps,burst,stats,bands=type=drop,rate=1000,burst_size=200,type=dscp_remark,rate=500,prec_level=1,burst_size=5
meter=controller,pktps,bands=type=drop,rate=9
""".strip().splitlines()

PACKET = "50540000000a50540000000908004500002800000000400600000a0000010a00000200500051000000000000000050000000000000000000"

COMMANDS = (
    [["del-flows"], ["del-groups"], ["del-meters"]]
    + [["add-tlv-map", "{class=0xffff,type=0,len=4}->tun_metadata0,{class=0xffff,type=1,len=8}->tun_metadata1"]]
    + [["dump-tlv-map"]]
    + [["add-meter", meter] for meter in METERS]
    + [["mod-meter", METERS[0]], ["dump-meters"], ["dump-meter", "meter=1"], ["meter-stats"], ["meter-features"]]
    + [["add-group", group] for group in GROUPS]
    + [["mod-group", GROUPS[0]], ["--may-create", "mod-group", "group_id=9,type=all"]]
    + [["insert-buckets", "group_id=6,command_bucket_id=last,bucket=bucket_id:8,output:2"]]
    + [["insert-buckets", "group_id=6,command_bucket_id=first,bucket=bucket_id:9,output:2"]]
    + [["remove-buckets", "group_id=6,command_bucket_id=9"]]
    + [["dump-groups"], ["dump-groups", "2"], ["dump-group-stats"], ["dump-group-features"]]
    + [["add-flow", flow] for flow in FLOWS]
    + [["dump-flows"], ["dump-flows", "table=1"], ["dump-flows", "cookie=0x11/0xff"], ["dump-flows", "out_port=2"]]
    + [["--no-stats", "dump-flows", "ip"], ["dump-aggregate"], ["dump-aggregate", "ip"]]
    + [["mod-flows", "ip,actions=output:3"], ["--strict", "mod-flows", FLOWS[0]]]
    + [["mod-flows", "cookie=1/-1,ip,actions=output:3"]]
    + [["--strict", "del-flows", "in_port=1"], ["del-flows", "cookie=0x11/-1"], ["del-flows", "out_port=2,ip"]]
    + [["del-flows", "out_group=2"]]
    + [["--bundle", "add-flow", "in_port=3,actions=output:1"], ["--bundle", "del-flows", "in_port=3"]]
    + [["bundle", "BUNDLE"]]
    + [["show"], ["dump-desc"], ["dump-tables"], ["dump-table-features"], ["dump-table-desc"]]
    + [["dump-ports"], ["dump-ports", "p1"], ["dump-ports-desc"], ["dump-ports-desc", "p2"]]
    + [["queue-stats"], ["queue-get-config", "p1"], ["queue-get-config", "any"]]
    + [["mod-port", "p1", "no-flood"], ["mod-port", "p1", "down"], ["mod-port", "p1", "up"]]
    + [["mod-table", "3", "evict"], ["mod-table", "3", "noevict"], ["mod-table", "3", "vacancy:20,80"]]
    + [["get-frags"], ["set-frags", "drop"], ["set-frags", "normal"], ["probe"], ["ping"]]
    + [["packet-out", "in_port=1 packet=" + PACKET + " actions=output:2,controller"]]
    + [["packet-out", "in_port=controller,reg0=5 packet=" + PACKET + " actions=resubmit(,0)"]]
    + [["ct-flush-zone", "5"]]
    + [["ct-flush", "zone=5", "ct_nw_src=10.0.0.1,ct_nw_proto=6,ct_tp_src=1"]]
    + [["add-flow", "table=254,in_port=77,reg0=1,nw_src=1.2.3.4,actions=drop"]]
    + [["del-tlv-map"]]
)

# Longer messages repeat what shorter ones have: descriptions of 254 tables, statistics of 254 tables.
MAX_LENGTH = 2600

MONITORS = (
    [],
    ["--packet-in-format=standard"],
    ["--packet-in-format=nxt_packet_in"],
    ["--packet-in-format=nxt_packet_in2"],
    ["watch:"],
)


class Proxy:
    """Passes messages between a client and the switch, and records them."""

    def __init__(self, path, target):
        self.target, self.messages = target, {}
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            switch = socket.socket(socket.AF_UNIX)
            switch.connect(self.target)
            for source, sink in ((client, switch), (switch, client)):
                threading.Thread(target=self.relay, args=(source, sink), daemon=True).start()

    def relay(self, source, sink):
        pending = b""
        try:
            while data := source.recv(65536):
                pending += data
                while len(pending) >= 4 and len(pending) >= (length := int.from_bytes(pending[2:4], "big")) >= 8:
                    message, pending = pending[:length], pending[length:]
                    self.record(message)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def record(self, message):
        if len(message) > MAX_LENGTH:
            return
        # Transaction ids tell messages apart that are the same otherwise.
        self.messages.setdefault(message[:4] + message[8:], message)


def write_texts(directory):
    """Writes what ovs-ofctl prints for each recorded flow-mod and list of flows: the message and its text."""
    with open(directory + "/flow_mods.txt", "w") as file:
        for minor in range(6):
            with open("%s/openflow1%d.hex" % (directory, minor)) as messages:
                for line in messages:
                    message = bytes.fromhex(line)
                    extension = message[1] == 4 and message[8:16].hex() == "000023200000000d"
                    if message[0] != minor + 1 or not (message[1] == 14 or extension):
                        continue
                    text = run("ovs-ofctl", "ofp-print", message.hex()).stdout.splitlines()
                    if text and "error" not in text[0]:
                        file.write("%s %s\n" % (message.hex(), text[0].split("): ", 1)[1]))
    with open(directory + "/flow_dumps.txt", "w") as file:
        for minor in range(6):
            with open("%s/openflow1%d.hex" % (directory, minor)) as messages:
                for line in messages:
                    message = bytes.fromhex(line)
                    reply = message[1] == (17 if minor == 0 else 19)
                    standard = message[8:10] == b"\0\1"
                    extension = minor == 0 and message[8:24].hex() == "ffff0000000023200000000000000000"
                    if message[0] == minor + 1 and reply and (standard or extension):
                        text = run("ovs-ofctl", "-m", "ofp-print", message.hex()).stdout.splitlines()[1:]
                        if text:
                            file.write("%s %s\n" % (message.hex(), "\t".join(flow.strip() for flow in text)))


def run(*command, **options):
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)


def main(directory):
    scratch = tempfile.mkdtemp(prefix="record-")
    environment = dict(os.environ, OVS_RUNDIR=scratch, OVS_LOGDIR=scratch, OVS_DBDIR=scratch, OVS_SYSCONFDIR=scratch)
    database = scratch + "/conf.db"
    schema = "/usr/share/openvswitch/vswitch.ovsschema"
    run("ovsdb-tool", "create", database, schema, env=environment)
    remote = "unix:" + scratch + "/db.sock"
    daemons = [
        subprocess.Popen(["ovsdb-server", "--remote=p" + remote, database], env=environment, stderr=subprocess.DEVNULL)
    ]
    while not os.path.exists(scratch + "/db.sock"):
        time.sleep(0.05)
    daemons.append(
        subprocess.Popen(
            ["ovs-vswitchd", "--enable-dummy=override", "--disable-system", remote],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
    )
    try:
        ports = [word for n in (1, 2, 3) for word in ("--", "add-port", "b", "p%d" % n)]
        protocols = "protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15"
        run(
            "ovs-vsctl", "--db=" + remote, "add-br", "b", "--", "set", "bridge", "b", "datapath_type=dummy", protocols,
            "fail_mode=secure", *ports, env=environment, timeout=30,
        )
        with open(scratch + "/BUNDLE", "w") as file:
            file.write("flow add in_port=5,actions=output:1\ngroup add group_id=77,type=all\nflow delete in_port=5\n")
        for minor in range(6):
            proxy = Proxy("%s/proxy%d" % (scratch, minor), scratch + "/b.mgmt")
            options = ["-O", "OpenFlow1%d" % minor, "--timeout=5"]
            failed = []
            remote_switch = "unix:%s/proxy%d" % (scratch, minor)
            monitors = []
            for extra in MONITORS:
                # In these versions Open vSwitch puts instructions where the monitor's format has actions.
                if extra == ["watch:"] and minor in (1, 2):
                    continue
                flags = [word for word in extra if word.startswith("-")]
                watch = [word for word in extra if not word.startswith("-")]
                command = ["ovs-ofctl", *options[:2], *flags, "monitor", remote_switch, "65534", *watch]
                monitors.append(
                    subprocess.Popen(
                        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                    )
                )
            time.sleep(0.5)
            for command in COMMANDS:
                words = [scratch + "/BUNDLE" if word == "BUNDLE" else word for word in command]
                at = 1 + next(i for i, word in enumerate(words) if not word.startswith("--"))
                words.insert(at, remote_switch)
                if run("ovs-ofctl", *options, *words, env=environment, timeout=30).returncode:
                    failed.append(" ".join(command))
            for monitor in monitors:
                monitor.kill()
                monitor.wait()
            with open("%s/openflow1%d.hex" % (directory, minor), "w") as file:
                for message in sorted(proxy.messages.values(), key=lambda m: (m[:2], m[8:])):
                    file.write(message.hex() + "\n")
            print("OpenFlow 1.%d: %d messages, %d commands refused" % (minor, len(proxy.messages), len(failed)))
            for command in failed:
                print("  " + command)
        write_texts(directory)
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.wait()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
