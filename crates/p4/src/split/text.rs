//! Source text of split programs.

use std::fmt::Write;

use super::{CPU, ETHERTYPE, Part, Parts, address};

/// The program of a card that has P.
pub(super) fn card(parts: &Parts, ports: &[u32], link: u32) -> String {
    let Parts { headers, metadata, calls: [parser, _, ingress, egress, ..], .. } = parts;
    let [parser, ingress, egress] = [parser, ingress, egress].map(construct);
    let (first, again) =
        if parts.recirculates { ("again", again(parts.classes)) } else { ("own", String::new()) };
    let source = source(parts.classes);
    let local = ports.iter().fold(String::new(), |mut text, port| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "            {port}: linecard_stay();");
        text
    });
    format!(
        "{head}{text}
{carrier}
// Valid in packets from the link, and never sent.
header linecard_arrival_t {{
    bit<8> unused;
}}

struct linecard_headers_t {{
    linecard_arrival_t arrival;
    linecard_carrier_t carrier;
    {headers} inner;
}}

parser linecard_Parser(packet_in packet, out linecard_headers_t hdr, inout {metadata} meta,
                       inout standard_metadata_t std) {{
    {parser}
    state start {{
        transition select((bit<9>) std.ingress_port) {{
            {link}: arrived;
            default: {first};
        }}
    }}
    state arrived {{
        hdr.arrival.setValid();
        packet.extract(hdr.carrier);
        transition accept;
    }}{again}
    state own {{
        inner.apply(packet, hdr.inner, meta, std);
        transition accept;
    }}
}}

// A packet from the link has been through ingress and egress: it only leaves.
control linecard_Ingress(inout linecard_headers_t hdr, inout {metadata} meta, inout standard_metadata_t std) {{
    {ingress}
{arrivals}
    apply {{
        if (hdr.arrival.isValid()) {{
            linecard_arrivals.apply();
        }} else {{
            inner.apply(hdr.inner, meta, std);
        }}
    }}
}}

control linecard_Egress(inout linecard_headers_t hdr, inout {metadata} meta, inout standard_metadata_t std) {{
    {egress}

    action linecard_stay() {{
        hdr.carrier.setInvalid();
    }}

    action linecard_carry() {{
        hdr.carrier.setValid();
        hdr.carrier.destination = linecard_address + (bit<48>) (bit<9>) std.egress_port;
        hdr.carrier.source = {source};
        hdr.carrier.type = linecard_type;
    }}

    // Ports of this card; all others are behind the link.
    @hidden
    table linecard_local {{
        key = {{ (bit<9>) std.egress_port: exact @name(\"egress_port\"); }}
        actions = {{ linecard_stay; linecard_carry; }}
        const default_action = linecard_carry();
        const entries = {{
{local}        }}
    }}

    apply {{
        if (hdr.arrival.isValid()) {{
            hdr.carrier.setInvalid();
        }} else {{
            // First, for the egress may end in `exit`.
            linecard_local.apply();
            inner.apply(hdr.inner, meta, std);
        }}
    }}
}}

{rest}",
        head = head(parts.port_type),
        text = parts.text,
        carrier = carrier(),
        arrivals = arrivals(ports, parts.port_type, parts.classes),
        rest = rest(parts, "if (!hdr.arrival.isValid()) "),
    )
}

/// A packet that passes again as it was deparsed, perhaps with a carrier: it was recirculated (4), and then perhaps
/// cloned from ingress (1) or resubmitted (6).
fn again(classes: bool) -> String {
    let source = if classes { format!("first.source & ~(48w7 << {CLASS})") } else { "first.source".into() };
    format!(
        "
    state again {{
        transition select(std.instance_type, std.packet_length) {{
            (1, 14 .. 0xffffffff): deparsed;
            (4, 14 .. 0xffffffff): deparsed;
            (6, 14 .. 0xffffffff): deparsed;
            default: own;
        }}
    }}
    state deparsed {{
        linecard_carrier_t first = packet.lookahead<linecard_carrier_t>();
        transition select(first.type, {source} == linecard_address + (bit<48>) (bit<9>) std.ingress_port) {{
            (linecard_type, true): peel;
            default: own;
        }}
    }}
    state peel {{
        packet.advance(112);
        std.packet_length = std.packet_length - 14;
        transition own;
    }}"
    )
}

/// Lowest bit of the class in a carrier's source.
const CLASS: u32 = 12;

/// A carrier's source: the port that the packet comes from, and the class that P has chosen, if it may choose one.
fn source(classes: bool) -> String {
    let class = if classes { format!(" + ((bit<48>) std.priority << {CLASS})") } else { String::new() };
    format!("linecard_address + (bit<48>) (bit<9>) std.ingress_port{class}")
}

/// The program of the CPU: P, with carriers around all that comes and goes.
pub(super) fn cpu(parts: &Parts, link: u32) -> String {
    let Parts { headers, metadata, calls: [parser, _, ingress, egress, ..], .. } = parts;
    let [parser, ingress, egress] = [parser, ingress, egress].map(construct);
    let (port, source) = (port_cast(parts.port_type), source(parts.classes));
    format!(
        "{head}{text}
{carrier}
struct linecard_headers_t {{
    linecard_carrier_t carrier;
    {headers} inner;
}}

// All packets come in carriers from the link, port {link}; the carrier's source is the port that they came from.
parser linecard_Parser(packet_in packet, out linecard_headers_t hdr, inout {metadata} meta,
                       inout standard_metadata_t std) {{
    {parser}
    state start {{
        packet.extract(hdr.carrier);
        std.ingress_port = {port}(bit<9>) hdr.carrier.source;
        std.packet_length = std.packet_length - 14;
        inner.apply(packet, hdr.inner, meta, std);
        transition accept;
    }}
}}

control linecard_Ingress(inout linecard_headers_t hdr, inout {metadata} meta, inout standard_metadata_t std) {{
    {ingress}
    apply {{
        // The fabric may bring packets for others until it has learned where they are. A recirculated packet has
        // the destination that it got here.
        if (hdr.carrier.type == linecard_type
            && (std.instance_type != 0 || hdr.carrier.destination == linecard_address + {CPU})) {{
            inner.apply(hdr.inner, meta, std);
        }} else {{
            mark_to_drop(std);
        }}
    }}
}}

control linecard_Egress(inout linecard_headers_t hdr, inout {metadata} meta, inout standard_metadata_t std) {{
    {egress}
    apply {{
        // First, for the egress may end in `exit`.
        hdr.carrier.setValid();
        hdr.carrier.destination = linecard_address + (bit<48>) (bit<9>) std.egress_port;
        hdr.carrier.source = {source};
        hdr.carrier.type = linecard_type;
        inner.apply(hdr.inner, meta, std);
    }}
}}

{rest}",
        head = head(parts.port_type),
        text = parts.text,
        carrier = carrier(),
        rest = rest(parts, ""),
    )
}

/// The parts of P beside parser, ingress and egress, on a condition, and `main`.
fn rest(parts: &Parts, condition: &str) -> String {
    let Parts { metadata, calls: [_, verify, _, _, compute, deparser], .. } = parts;
    let [verify, compute, deparser] = [verify, compute, deparser].map(construct);
    format!(
        "control linecard_Verify(inout linecard_headers_t hdr, inout {metadata} meta) {{
    {verify}
    apply {{
        {condition}inner.apply(hdr.inner, meta);
    }}
}}

control linecard_Compute(inout linecard_headers_t hdr, inout {metadata} meta) {{
    {compute}
    apply {{
        {condition}inner.apply(hdr.inner, meta);
    }}
}}

control linecard_Deparser(packet_out packet, in linecard_headers_t hdr) {{
    {deparser}
    apply {{
        packet.emit(hdr.carrier);
        {condition}inner.apply(packet, hdr.inner);
    }}
}}

{MAIN}"
    )
}

/// The program of a card whose packets all go to the CPU; `classes`: it may choose classes.
pub(super) fn carrying_card(ports: &[u32], link: u32, port_type: bool, classes: bool) -> String {
    let port = port_cast(port_type);
    format!(
        "{head}
{carrier}
struct linecard_headers_t {{
    linecard_carrier_t carrier;
}}

struct linecard_metadata_t {{}}

parser linecard_Parser(packet_in packet, out linecard_headers_t hdr, inout linecard_metadata_t meta,
                       inout standard_metadata_t std) {{
    state start {{
        transition select((bit<9>) std.ingress_port) {{
            {link}: arrived;
            default: accept;
        }}
    }}
    state arrived {{
        packet.extract(hdr.carrier);
        transition accept;
    }}
}}

control linecard_Verify(inout linecard_headers_t hdr, inout linecard_metadata_t meta) {{
    apply {{}}
}}

control linecard_Ingress(inout linecard_headers_t hdr, inout linecard_metadata_t meta,
                         inout standard_metadata_t std) {{
{arrivals}
    apply {{
        if ((bit<9>) std.ingress_port != {link}) {{
            std.egress_spec = {port}9w{link};
        }} else {{
            linecard_arrivals.apply();
        }}
    }}
}}

control linecard_Egress(inout linecard_headers_t hdr, inout linecard_metadata_t meta,
                        inout standard_metadata_t std) {{
    apply {{
        if ((bit<9>) std.ingress_port == {link}) {{
            hdr.carrier.setInvalid();
        }} else {{
            hdr.carrier.setValid();
            hdr.carrier.destination = linecard_address + {CPU};
            hdr.carrier.source = linecard_address + (bit<48>) (bit<9>) std.ingress_port;
            hdr.carrier.type = linecard_type;
        }}
    }}
}}

control linecard_Compute(inout linecard_headers_t hdr, inout linecard_metadata_t meta) {{
    apply {{}}
}}

control linecard_Deparser(packet_out packet, in linecard_headers_t hdr) {{
    apply {{
        packet.emit(hdr);
    }}
}}

{main}",
        head = head(port_type),
        carrier = carrier(),
        arrivals = arrivals(ports, port_type, classes),
        main = MAIN,
    )
}

/// What a card does with packets from the link.
fn arrivals(ports: &[u32], port_type: bool, classes: bool) -> String {
    let cast = port_cast(port_type);
    let entries = ports.iter().fold(String::new(), |mut text, port| {
        let _ = writeln!(
            text,
            "            (linecard_address + {port}, linecard_type): linecard_leave({cast}9w{port});"
        );
        text
    });
    let ty = if port_type { "PortId_t" } else { "bit<9>" };
    let class = if classes {
        format!("\n        std.priority = (bit<3>) (hdr.carrier.source >> {CLASS});")
    } else {
        String::new()
    };
    format!(
        "
    action linecard_leave({ty} port) {{
        std.egress_spec = port;{class}
    }}

    action linecard_stray() {{
        mark_to_drop(std);
    }}

    // Packets for ports of this card; the fabric may bring others until it has learned where they are.
    @hidden
    table linecard_arrivals {{
        key = {{ hdr.carrier.destination: exact; hdr.carrier.type: exact; }}
        actions = {{ linecard_leave; linecard_stray; }}
        const default_action = linecard_stray();
        const entries = {{
{entries}        }}
    }}
"
    )
}

const MAIN: &str = "V1Switch(linecard_Parser(), linecard_Verify(), linecard_Ingress(), linecard_Egress(), \
                    linecard_Compute(), linecard_Deparser()) main;
";

/// Includes; the version of v1model in which ports have a type of their own, if P uses that.
fn head(port_type: bool) -> String {
    let version = if port_type { "#define V1MODEL_VERSION 20200408\n" } else { "" };
    format!("{version}#include <core.p4>\n#include <v1model.p4>\n")
}

/// Declarations of the carrier.
fn carrier() -> String {
    let base = address(0).iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    format!(
        "
// In front of packets between cards: source and destination are the ports that they come from and go to. The source's
// bits from 12 on are the packet's class.
header linecard_carrier_t {{
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}}

const bit<16> linecard_type = {ETHERTYPE:#06x};
const bit<48> linecard_address = {base:#014x};
"
    )
}

/// The cast from a number to a port.
fn port_cast(port_type: bool) -> &'static str {
    if port_type { "(PortId_t) " } else { "" }
}

/// The declaration of a part inside of the card's: controllers know it by the name that it has in P.
fn construct(part: &Part) -> String {
    let Part { name, call } = part;
    format!("@name(\".{name}\") {call} inner;")
}
