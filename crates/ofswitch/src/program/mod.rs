//! The one pipeline program of an OpenFlow bridge.
//!
//! It has no flows: 254 tables of the same keys, whose entries bring actions of their own, groups, meters, the action
//! set. What flows do is lowered into actions of these terms ([`crate::lower`]); the program itself never changes, and
//! all bridges share it.
//!
//! How a packet passes: `control` prepares variables and continues in table 0, or runs the actions of a packet-out. A
//! lookup is one block per table; `goto_table` continues in another block, `resubmit` calls it. Whoever enters a table
//! sets `match_port` first. `finish` executes the action set.

mod edits;
mod fields;
pub(crate) mod headers;
mod kept;
pub(crate) mod outputs;
mod parser;
mod stores;
pub(crate) mod terms;
mod types;
mod vars;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use openflow::field::{Field, FieldId, Prerequisite};
use pipeline::Checked;
use pipeline::ir::{
    ActionCall, ActionId, Applied, BlockId, Counter, CounterId, CounterKind, Digest, DigestId, Direction,
    Expr, Extern, ExternId, GroupTable, GroupTableId, HashKind, Item, MatchKind, Meter, MeterId, MeterUnit,
    Program, ReasonId, Selection, Stage, Stmt, Table, TableId, Type, VarId,
};

pub(crate) use edits::Edits;
pub(crate) use fields::Keys;
pub(crate) use headers::Headers;
pub(crate) use kept::Kept;
pub(crate) use vars::{STACK, TUNNEL, TUNNEL_METADATA, Vars};

use terms::{bit, both, set, var, when};

/// Flow tables.
pub const TABLES: u8 = 254;
/// Cells for bands of meters.
pub(crate) const BANDS: u32 = 65_536;
/// Bits of the values that a learned flow takes from its packet.
pub(crate) const LEARNED_BITS: u16 = 1024;
/// Entries of each table that the program permits; settings permit fewer.
const ENTRIES: u32 = 1 << 22;

/// Reasons for drops.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reasons {
    pub(crate) table_miss: ReasonId,
    pub(crate) meter: ReasonId,
    pub(crate) invalid_ttl: ReasonId,
    pub(crate) fragment: ReasonId,
    pub(crate) no_room: ReasonId,
    pub(crate) tracking: ReasonId,
    pub(crate) unsupported: ReasonId,
    pub(crate) stack: ReasonId,
    pub(crate) recursion: ReasonId,
    pub(crate) resubmits: ReasonId,
}

/// The program, and the numbers of everything in it.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) program: Checked,
    pub(crate) headers: Headers,
    pub(crate) vars: Vars,
    pub(crate) keys: Keys,
    pub(crate) stores: BTreeMap<FieldId, ActionId>,
    pub(crate) edits: Edits,
    pub(crate) copy_ttl_out: ActionId,
    pub(crate) copy_ttl_in: ActionId,
    pub(crate) output: ActionId,
    pub(crate) kept: Kept,
    pub(crate) reasons: Reasons,
    pub(crate) groups: GroupTableId,
    /// Nested action lists, each a group of one bucket: its actions run on a copy of the packet.
    pub(crate) copies: GroupTableId,
    /// How groups hash, by group.
    pub(crate) methods: TableId,
    pub(crate) run_group: BlockId,
    pub(crate) group: VarId,
    pub(crate) select_hash: VarId,
    pub(crate) meters: TableId,
    pub(crate) run_meter: BlockId,
    pub(crate) packet_rates: MeterId,
    pub(crate) byte_rates: MeterId,
    pub(crate) band_counts: CounterId,
    /// Ends the way of a packet that pauses.
    pub(crate) pause: BlockId,
    pub(crate) is_live: ExternId,
    pub(crate) learn: DigestId,
    pub(crate) sample: DigestId,
    /// Actions of packet-outs, by number.
    pub(crate) injected: TableId,
    /// Flow tables.
    pub(crate) tables: Vec<TableId>,
    pub(crate) lookups: Vec<BlockId>,
    pub(crate) miss_drop: ActionId,
    pub(crate) miss_controller: ActionId,
}

impl Layout {
    /// The layout.
    pub(crate) fn get() -> &'static Layout {
        static LAYOUT: LazyLock<Layout> = LazyLock::new(build);
        &LAYOUT
    }

    /// A flow table.
    pub(crate) fn table(&self, number: u8) -> Option<TableId> {
        self.tables.get(usize::from(number)).copied()
    }

    /// The block that looks a flow table up.
    pub(crate) fn lookup(&self, number: u8) -> Option<BlockId> {
        self.lookups.get(usize::from(number)).copied()
    }

    /// The number of a flow table.
    pub(crate) fn number(&self, id: TableId) -> Option<u8> {
        self.tables.iter().position(|table| *table == id).and_then(|at| u8::try_from(at).ok())
    }
}

/// Whether a field is one of a header that labels hide.
pub(crate) fn is_hidden_by_labels(field: &Field) -> bool {
    use Prerequisite as P;
    !matches!(field.prerequisite, P::None | P::InPort | P::VlanVid | P::Mpls | P::Pbb)
}

/// Whether a packet has no label. Headers behind labels are there for copies of TTLs, and until labels are popped
/// again.
pub(crate) fn unlabelled(h: &Headers) -> Expr {
    terms::not(terms::valid(h.label))
}

/// Whether a packet has a TTL: that of IP, or of the outermost label.
fn has_ttl(h: &Headers, id: FieldId) -> Expr {
    match id {
        FieldId::NwTtl => both(terms::either(terms::valid(h.ipv4), terms::valid(h.ipv6)), unlabelled(h)),
        _ => terms::valid(h.label),
    }
}

/// Decrements a TTL, or sends the packet to controllers and drops it. A packet without such a TTL has none to expire.
pub(crate) fn decrement(
    h: &Headers,
    id: FieldId,
    store: ActionId,
    ttl: Expr,
    drop: ReasonId,
    to_controllers: Vec<Stmt>,
) -> Stmt {
    let fine = ttl.clone().op(pipeline::ir::BinOp::Gt, bit(8, 1));
    let less = ttl.op(pipeline::ir::BinOp::Sub, bit(8, 1));
    let mut expired = to_controllers;
    expired.push(Stmt::Drop(drop));
    let less = vec![Stmt::Do(store, vec![less, bit(8, 0xff)])];
    when(has_ttl(h, id), vec![Stmt::If(fine, less, expired)])
}

fn reasons(p: &mut Program) -> Reasons {
    Reasons {
        table_miss: p.add_reason("no flow matches"),
        meter: p.add_reason("meter"),
        invalid_ttl: p.add_reason("TTL expired"),
        fragment: p.add_reason("IP fragment"),
        no_room: p.add_reason("no room for another header"),
        tracking: p.add_reason("connection tracking is not supported"),
        unsupported: p.add_reason("action is not supported"),
        stack: p.add_reason("stack overflow"),
        recursion: p.add_reason("recursion too deep"),
        resubmits: p.add_reason("too many resubmits"),
    }
}

/// The fields that select groups hash unless they say otherwise.
pub(crate) const HASHED: [FieldId; 12] = [
    FieldId::EthSrc,
    FieldId::EthDst,
    FieldId::EthType,
    FieldId::IpSrc,
    FieldId::IpDst,
    FieldId::Ipv6Src,
    FieldId::Ipv6Dst,
    FieldId::ArpSpa,
    FieldId::ArpTpa,
    FieldId::NwProto,
    FieldId::TcpSrc,
    FieldId::TcpDst,
];

/// Values of fields as they stand in the keys.
pub(crate) fn field_values(keys: &Keys, fields: impl IntoIterator<Item = FieldId>) -> Vec<Expr> {
    let value = |id| {
        let spot = keys.spot(id)?;
        let key = keys.list.get(spot.key as usize)?;
        Some(key.value.clone().slice(spot.low + spot.bits - 1, spot.low))
    };
    fields.into_iter().filter_map(value).collect()
}

/// Hashes values into a variable of 32 bits.
pub(crate) fn hash_into(to: VarId, values: Vec<Expr>) -> Stmt {
    Stmt::Hash(pipeline::ir::LValue::Var(to), HashKind::Crc32, terms::items(values))
}

fn open_table(name: &str, key: &str, value: Expr, size: u32, counted: bool) -> Table {
    let mut table = Table::new(name, size).key(key, MatchKind::Exact, value);
    table.open = true;
    table.counter = counted.then_some(CounterKind::Both);
    table
}

fn build() -> Layout {
    let mut program = Program::new("openflow");
    let p = &mut program;
    let headers = Headers::declare(p);
    let (h, vars) = (&headers, Vars::declare(p));
    let v = &vars;
    let reasons = reasons(p);
    let mut keys = Keys::new(h, v);
    let edits = edits::declare(p, h, v, reasons.no_room);
    let tags = stores::Tags { push: edits.push_vlan, pop: edits.pop_vlan };
    let stores = stores::declare(p, h, v, &keys, tags);
    let (copy_ttl_out, copy_ttl_in) = edits::copies(p, h, &stores);
    let output = outputs::declare(p, v);
    let width = |id: FieldId| match id {
        // The widths of the actions' parameters.
        FieldId::InPort => 16,
        _ => keys.spot(id).map_or(1, |spot| spot.bits),
    };
    let kept = Kept::declare(p, &stores, width);
    let (group, select_hash) =
        (p.add_var("group_id", Type::Bit(32)), p.add_var("select_hash", Type::Bit(32)));
    // A bucket is chosen by the remainder, and the low bits of a CRC are sums of few bits of what it is computed over:
    // of two buckets, consecutive addresses may all choose the same.
    let mixed = var(select_hash).op(pipeline::ir::BinOp::Mul, bit(32, 0x9e37_79b1)).slice(31, 8);
    let select = Selection { hash: HashKind::Identity, input: vec![Item::Value(mixed)] };
    for (name, size) in [("groups", ENTRIES), ("copies", ENTRIES)] {
        p.groups.push(GroupTable { name: name.to_owned(), size, select: select.clone() });
    }
    let (groups, copies) = (GroupTableId(0), GroupTableId(1));
    p.meters.push(Meter { name: "packet_rates".to_owned(), size: BANDS, unit: MeterUnit::Packets });
    p.meters.push(Meter { name: "byte_rates".to_owned(), size: BANDS, unit: MeterUnit::Bytes });
    p.counters.push(Counter { name: "bands".to_owned(), size: BANDS, kind: CounterKind::Both });
    let live = vec![(Direction::In, Type::Bit(32)), (Direction::Out, Type::Bool)];
    p.externs.push(Extern { name: "is_live".to_owned(), params: live });
    let learned = vec![Type::Bit(32), Type::Bit(LEARNED_BITS)];
    p.digests.push(Digest { name: "learn".to_owned(), types: learned });
    let sampled = [32, 32, 32, 32, 16, 8].map(Type::Bit).to_vec();
    p.digests.push(Digest { name: "sample".to_owned(), types: sampled });

    let methods = p.add_table(open_table("methods", "group", var(group), ENTRIES, false));
    let meters = p.add_table(open_table("meters", "meter", var(v.meter), BANDS, true));
    let number = var(v.kind).slice(31, 0);
    let injected = p.add_table(open_table("injected", "number", number.clone(), 64, false));
    let run_group = p.declare_block("run_group");
    let default_hash = hash_into(select_hash, field_values(&keys, HASHED));
    let choose = Applied { miss: vec![default_hash], ..Applied::default() };
    p.define_block(run_group, vec![Stmt::Apply(methods, Box::new(choose)), Stmt::Group(groups, var(group))]);
    let pause = p.declare_block("pause");
    // Nothing of the action set is executed until the packet is resumed.
    p.define_block(pause, vec![Stmt::Call(kept.clear), Stmt::Exit]);
    let run_meter = p.declare_block("run_meter");
    p.define_block(run_meter, vec![Stmt::Apply(meters, Box::default())]);

    let top = var(v.nested).equals(bit(16, 0));
    let not_resubmitted = v.is_not_resubmitted();
    let miss_drop = p.add_action("miss_drop", &[], vec![when(top, vec![Stmt::Drop(reasons.table_miss)])]);
    let sender = outputs::Sender { table: Expr::Param(0), ..outputs::Sender::nobody() };
    let to_controller = outputs::to_controller(v, bit(8, outputs::NO_MATCH.into()), None, sender, []);
    let miss_controller = p.add_action(
        "miss_controller",
        &[("table", Type::Bit(8))],
        vec![when(not_resubmitted, vec![to_controller])],
    );

    let (is_set, port) = kept.output();
    keys.add_actset_output(is_set, port);
    let (mut tables, mut lookups) = (Vec::new(), Vec::new());
    for n in 0..TABLES {
        let mut table = Table::new(&format!("table{n}"), ENTRIES);
        for key in &keys.list {
            table = table.key(key.name, MatchKind::Ternary, key.value.clone());
        }
        table.open = true;
        table.counter = Some(CounterKind::Both);
        table.timeouts = true;
        table.default_only = vec![miss_drop, miss_controller];
        table.default = Some(ActionCall { action: miss_drop, args: [].into() });
        let id = p.add_table(table);
        let block = p.declare_block(&format!("lookup{n}"));
        p.define_block(block, vec![Stmt::Apply(id, Box::default())]);
        tables.push(id);
        lookups.push(block);
    }

    let start = p.declare_block("start");
    let drops = |low: u16| var(v.kind).slice(low, low).equals(bit(1, 1));
    let fragment =
        both(drops(crate::exec::DROP_FRAGMENTS), var(v.ip_frag).op(pipeline::ir::BinOp::Ne, bit(2, 0)));
    let first = lookups.first().copied().unwrap_or(start);
    let enter = vec![set(v.match_port, var(v.in_port)), Stmt::Goto(first)];
    let inject = vec![Stmt::Apply(injected, Box::default())];
    p.define_block(
        start,
        vec![
            set(v.in_port, var(v.ingress)),
            when(fragment, vec![Stmt::Drop(reasons.fragment)]),
            Stmt::If(number.equals(bit(32, 0)), enter, inject),
        ],
    );
    let finish = p.declare_block("finish");
    let expired = || {
        let reason = bit(8, outputs::INVALID_TTL.into());
        let sender =
            outputs::Sender { table: var(kept.table), cookie: var(kept.cookie), controller: bit(16, 0) };
        vec![outputs::to_controller(v, reason, None, sender, [])]
    };
    let ttl = |id: FieldId| field_values(&keys, [id]).pop().unwrap_or_else(|| bit(8, 0));
    let dec = |id: FieldId| match stores.get(&id) {
        Some(store) => vec![decrement(h, id, *store, ttl(id), reasons.invalid_ttl, expired())],
        None => vec![],
    };
    let means = kept::Means {
        stores: &stores,
        headers: h,
        edits: &edits,
        copy_out: copy_ttl_out,
        copy_in: copy_ttl_in,
        dec_ttl: dec(FieldId::NwTtl),
        dec_mpls_ttl: dec(FieldId::MplsTtl),
        output,
        run_group,
        group,
    };
    let width = |id: FieldId| match id {
        FieldId::InPort => 16,
        _ => keys.spot(id).map_or(1, |spot| spot.bits),
    };
    p.define_block(finish, kept.execute(v, &means, width));
    let deparser = p.declare_block("emit");
    p.define_block(deparser, h.emit());
    let parser = parser::declare(p, h, v);
    p.add_stage(Stage {
        name: "bridge".to_owned(),
        parser: Some(parser),
        control: start,
        finish: Some(finish),
        deparser: Some(deparser),
        next: None,
    });
    let program = match Checked::new(program) {
        Ok(program) => program,
        // The program is the same in every build; `tests::is_valid` would fail first.
        Err(errors) => unreachable!("the bridge's program is invalid: {errors:?}"),
    };
    Layout {
        program,
        headers,
        keys,
        stores,
        edits,
        copy_ttl_out,
        copy_ttl_in,
        output,
        kept,
        reasons,
        groups,
        copies,
        methods,
        run_group,
        group,
        select_hash,
        meters,
        run_meter,
        packet_rates: MeterId(0),
        byte_rates: MeterId(1),
        band_counts: CounterId(0),
        pause,
        is_live: ExternId(0),
        learn: DigestId(0),
        sample: DigestId(1),
        injected,
        tables,
        lookups,
        miss_drop,
        miss_controller,
        vars,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_valid() {
        let layout = Layout::get();
        assert_eq!(layout.tables.len(), usize::from(TABLES));
        assert_eq!(layout.number(layout.tables[7]), Some(7));
    }

    #[test]
    fn every_matched_field_fits_its_key() {
        let keys = &Layout::get().keys;
        for field in openflow::field::FIELDS {
            let Some(spot) = keys.spot(field.id) else { continue };
            let key = &keys.list[spot.key as usize];
            assert!(spot.low + spot.bits <= key.width, "{}", field.name);
        }
    }
}
