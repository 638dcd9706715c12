//! Multipart messages: requests for lists, and replies that may span several messages.
//!
//! The table in this module says under which number each version knows a request and its reply, in the standard or as an
//! extension. Version 1.0 calls them statistics.

mod flows;
mod monitor;
mod stats;

pub use flows::{Aggregate, FlowEntry, FlowStatsEntry, FlowStatsRequest};
pub use monitor::{FlowEvent, FlowUpdate, MonitorFlags, MonitorRequest};
pub use stats::{
    Counter, Desc, EthernetErrors, GroupFeatures, GroupStats, IpfixStats, MeterFeatures, MeterStats,
    PortStats, PortStatsProperty, QueueStats, TableStats,
};

use crate::error::{ErrorCode, Fault};
use crate::message::{Form, GroupDesc, MeterConfig, Port, Queue, TableDesc, TableFeatures};
use crate::version::Version::{self, V1_0, V1_1, V1_2, V1_3, V1_4, V1_5};
use crate::version::{PortNo, vendor};
use crate::wire::{Coder, Record, Step};

/// Multipart type of experimenters.
const EXPERIMENTER: u16 = 0xffff;

/// Numbers of a multipart type: who defines it, first and last version, number.
type Number = (Form, Version, Version, u32);

/// A kind of multipart message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The switch.
    Desc,
    /// Flows.
    Flow,
    /// Sums over flows.
    Aggregate,
    /// Statistics of tables.
    Table,
    /// Statistics of ports.
    PortStats,
    /// Statistics of queues.
    Queue,
    /// Statistics of groups.
    Group,
    /// Groups.
    GroupDesc,
    /// What groups the switch supports.
    GroupFeatures,
    /// Statistics of meters.
    Meter,
    /// Meters.
    MeterConfig,
    /// What meters the switch supports.
    MeterFeatures,
    /// What tables can do.
    TableFeatures,
    /// Ports.
    PortDesc,
    /// Tables.
    TableDesc,
    /// Queues.
    QueueDesc,
    /// Changes of flows.
    FlowMonitor,
    /// Statistics of flows, without the flows.
    FlowStats,
    /// Statistics of a bridge's IPFIX export.
    IpfixBridge,
    /// Statistics of the IPFIX exports of sampled packets.
    IpfixFlow,
}

const KINDS: &[(Kind, &[Number])] = &[
    (Kind::Desc, &[(Form::Standard, V1_0, V1_5, 0)]),
    (Kind::Flow, &[(Form::Standard, V1_0, V1_5, 1), (Form::Nicira, V1_0, V1_0, 0)]),
    (Kind::Aggregate, &[(Form::Standard, V1_0, V1_5, 2), (Form::Nicira, V1_0, V1_0, 1)]),
    (Kind::Table, &[(Form::Standard, V1_0, V1_5, 3)]),
    (Kind::PortStats, &[(Form::Standard, V1_0, V1_5, 4)]),
    (Kind::Queue, &[(Form::Standard, V1_0, V1_5, 5)]),
    (Kind::Group, &[(Form::Standard, V1_1, V1_5, 6), (Form::Nicira, V1_0, V1_0, 7)]),
    (Kind::GroupDesc, &[(Form::Standard, V1_1, V1_5, 7), (Form::Nicira, V1_0, V1_0, 8)]),
    (Kind::GroupFeatures, &[(Form::Standard, V1_2, V1_5, 8), (Form::Nicira, V1_0, V1_1, 9)]),
    (Kind::Meter, &[(Form::Standard, V1_3, V1_5, 9)]),
    (Kind::MeterConfig, &[(Form::Standard, V1_3, V1_5, 10)]),
    (Kind::MeterFeatures, &[(Form::Standard, V1_3, V1_5, 11)]),
    (Kind::TableFeatures, &[(Form::Standard, V1_3, V1_5, 12)]),
    (Kind::PortDesc, &[(Form::Standard, V1_0, V1_5, 13)]),
    (Kind::TableDesc, &[(Form::Standard, V1_4, V1_5, 14)]),
    (Kind::QueueDesc, &[(Form::Standard, V1_4, V1_5, 15)]),
    (
        Kind::FlowMonitor,
        &[(Form::Standard, V1_4, V1_5, 16), (Form::Onf, V1_3, V1_3, 1870), (Form::Nicira, V1_0, V1_2, 2)],
    ),
    (Kind::FlowStats, &[(Form::Standard, V1_5, V1_5, 17)]),
    (Kind::IpfixBridge, &[(Form::Nicira, V1_0, V1_5, 3)]),
    (Kind::IpfixFlow, &[(Form::Nicira, V1_0, V1_5, 4)]),
];

impl Kind {
    fn with_number(form: Form, version: Version, number: u32) -> Option<Self> {
        KINDS.iter().find_map(|(kind, numbers)| {
            let known = |n: &&Number| n.0 == form && (n.1..=n.2).contains(&version) && n.3 == number;
            numbers.iter().find(known).map(|_| *kind)
        })
    }

    fn number(self, form: Form, version: Version) -> Option<u32> {
        let (_, numbers) = KINDS.iter().find(|(kind, _)| *kind == self)?;
        let number = numbers.iter().find(|n| n.0 == form && (n.1..=n.2).contains(&version))?;
        Some(number.3)
    }

    /// The form in which a version knows the kind; the standard's, if it has one.
    pub(crate) fn form(self, version: Version) -> Option<Form> {
        [Form::Standard, Form::Onf, Form::Nicira]
            .into_iter()
            .find(|form| self.number(*form, version).is_some())
    }
}

/// Content of a multipart message: one per kind, or one that is unknown.
pub(crate) trait Content: Default {
    /// The kind; `None`: unknown.
    fn kind(&self) -> Option<Kind>;
    /// Content of a kind, with its fields zero.
    fn blank(kind: Kind, version: Version) -> Self;
    /// The unknown kind: experimenter and content.
    fn unknown(&mut self) -> Option<(&mut u32, &mut Vec<u8>)>;
    /// Content of an unknown kind: who defines it.
    fn of_unknown(experimenter: u32) -> Self;
    /// The content behind the header.
    fn walk_content<C: Coder>(&mut self, c: &mut C, form: Form) -> Step;
}

/// Flags and content of a multipart message.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Multipart<T> {
    /// More messages of the same list follow.
    pub more: bool,
    /// The content.
    pub content: T,
}

#[expect(private_bounds, reason = "only the two contents of this module are meant")]
impl<T: Content> Multipart<T> {
    /// Walks the header, which tells the form, and the content.
    pub(crate) fn walk_form<C: Coder>(&mut self, c: &mut C, form: &mut Form) -> Step {
        let version = c.version();
        let mut number = match (self.content.kind(), C::READS) {
            (Some(kind), false) => {
                kind.number(*form, version).ok_or(Fault::Inexpressible("a multipart message of this form"))?
            }
            _ => 0,
        };
        let standard = *form == Form::Standard && self.content.kind().is_some();
        let mut kind = if standard { number as u16 } else { EXPERIMENTER };
        let mut flags = u16::from(self.more);
        c.u16(&mut kind)?;
        c.u16(&mut flags)?;
        // No other flag is defined.
        self.more = flags & 1 == 1;
        if version > V1_0 {
            c.pad(4)?;
        }
        let mut known = true;
        if kind != EXPERIMENTER {
            *form = Form::Standard;
            number = kind.into();
        } else {
            known = self.walk_experimenter(c, form, &mut number)?;
        }
        if let (false, Some((_, body))) = (known, self.content.unknown()) {
            return c.rest(body);
        }
        if C::READS {
            let Some(kind) = Kind::with_number(*form, version, number) else {
                return c.refuse(ErrorCode::BrcBadStat);
            };
            self.content = T::blank(kind, version);
        }
        self.content.walk_content(c, *form)
    }

    /// The header of an extension's multipart message, and whether its kind is known. One of an unknown experimenter is
    /// kept.
    fn walk_experimenter<C: Coder>(&mut self, c: &mut C, form: &mut Form, number: &mut u32) -> Step<bool> {
        let mut experimenter = match form {
            Form::Onf => vendor::ONF,
            _ => vendor::NICIRA,
        };
        if let (false, Some((unknown, _))) = (C::READS, self.content.unknown()) {
            c.u32(unknown)?;
            return Ok(false);
        }
        c.u32(&mut experimenter)?;
        if C::READS {
            *form = match experimenter {
                vendor::NICIRA => Form::Nicira,
                vendor::ONF => Form::Onf,
                _ => Form::Standard,
            };
            if *form == Form::Standard {
                self.content = T::of_unknown(experimenter);
                return Ok(false);
            }
        }
        c.u32(number)?;
        if C::READS && Kind::with_number(*form, c.version(), *number).is_none() {
            return c.refuse(ErrorCode::BrcBadSubtype);
        }
        if c.version() == V1_0 {
            c.pad(4)?;
        }
        Ok(true)
    }
}

macro_rules! contents {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$doc:meta])* $kind:ident $(($content:ty))? $(walks $walk:ident)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$doc])* $kind $(($content))?,)*
            /// An experimenter's: its id, and what follows.
            Unknown(u32, Vec<u8>),
        }

        impl Default for $name {
            fn default() -> Self {
                $name::Unknown(0, Vec::new())
            }
        }

        impl Content for $name {
            fn kind(&self) -> Option<Kind> {
                match self {
                    $(contents!(@pattern $name $kind $(($content))?) => Some(Kind::$kind),)*
                    $name::Unknown(..) => None,
                }
            }

            fn blank(kind: Kind, _version: Version) -> Self {
                match kind {
                    $(Kind::$kind => contents!(@blank $name $kind $(($content))?),)*
                }
            }

            fn unknown(&mut self) -> Option<(&mut u32, &mut Vec<u8>)> {
                match self {
                    $name::Unknown(experimenter, body) => Some((experimenter, body)),
                    _ => None,
                }
            }

            fn of_unknown(experimenter: u32) -> Self {
                $name::Unknown(experimenter, Vec::new())
            }

            fn walk_content<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
                let _ = form;
                match self {
                    $(contents!(@bind $name $kind content $(($content))?) => {
                        contents!(@walk c form content $(($content))? $($walk)?)
                    })*
                    $name::Unknown(_, body) => c.rest(body),
                }
            }
        }
    };
    (@pattern $name:ident $kind:ident ($content:ty)) => { $name::$kind(_) };
    (@pattern $name:ident $kind:ident) => { $name::$kind };
    (@blank $name:ident $kind:ident ($content:ty)) => { $name::$kind(Default::default()) };
    (@blank $name:ident $kind:ident) => { $name::$kind };
    (@bind $name:ident $kind:ident $bound:ident ($content:ty)) => { $name::$kind($bound) };
    (@bind $name:ident $kind:ident $bound:ident) => { $name::$kind };
    (@walk $c:ident $form:ident $bound:ident) => { Ok(()) };
    (@walk $c:ident $form:ident $bound:ident ($content:ty)) => { $c.record($bound) };
    (@walk $c:ident $form:ident $bound:ident ($content:ty) list) => { $c.list($bound) };
    (@walk $c:ident $form:ident $bound:ident ($content:ty) form) => { $bound.walk_form($c, $form) };
    (@walk $c:ident $form:ident $bound:ident ($content:ty) forms) => { walk_forms($c, $form, $bound) };
}

/// An entry whose layout depends on who defines the message.
trait Formed: Default {
    fn walk_formed<C: Coder>(&mut self, c: &mut C, form: Form) -> Step;
}

impl Formed for FlowEntry {
    fn walk_formed<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        self.walk_form(c, form)
    }
}
impl Formed for FlowUpdate {
    fn walk_formed<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        self.walk_form(c, form)
    }
}
impl Formed for MonitorRequest {
    fn walk_formed<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        self.walk_form(c, form)
    }
}

fn walk_forms<C: Coder, T: Formed>(c: &mut C, form: Form, items: &mut Vec<T>) -> Step {
    if !C::READS {
        return items.iter_mut().try_for_each(|item| item.walk_formed(c, form));
    }
    while c.more() {
        let mut item = T::default();
        item.walk_formed(c, form)?;
        items.push(item);
    }
    Ok(())
}

/// Asks for ports: their statistics or, since version 1.5, descriptions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PortRequest(
    /// The port; [`PortNo::ANY`]: all.
    pub PortNo,
);

impl Default for PortRequest {
    fn default() -> Self {
        PortRequest(PortNo::ANY)
    }
}

impl Record for PortRequest {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.port(&mut self.0)?;
        c.pad(if c.version() == V1_0 { 6 } else { 4 })
    }
}

/// Asks for descriptions of ports: all of them before version 1.5.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortDescRequest(
    /// The port; [`PortNo::ANY`]: all.
    pub PortRequest,
);

impl Record for PortDescRequest {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        if c.version() >= V1_5 { c.record(&mut self.0) } else { Ok(()) }
    }
}

/// Asks for queues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueRequest {
    /// The port; [`PortNo::ALL`] in version 1.0, else [`PortNo::ANY`]: all.
    pub port: PortNo,
    /// The queue, or all.
    pub queue: u32,
}

impl Record for QueueRequest {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.port(&mut self.port)?;
        if c.version() == V1_0 {
            c.pad(2)?;
        }
        c.u32(&mut self.queue)
    }
}

/// Asks for a group or a meter, or all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct IdRequest(
    /// The group or meter.
    pub u32,
);

impl Record for IdRequest {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u32(&mut self.0)?;
        c.pad(4)
    }
}

/// Asks for descriptions of groups: all of them in versions 1.1 to 1.4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupDescRequest(
    /// The group, or all.
    pub u32,
);

impl Default for GroupDescRequest {
    fn default() -> Self {
        GroupDescRequest(crate::version::group::ALL)
    }
}

impl Record for GroupDescRequest {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        if (V1_1..=V1_4).contains(&c.version()) {
            return Ok(());
        }
        c.u32(&mut self.0)?;
        c.pad(4)
    }
}

contents! {
    /// A request for a list.
    pub enum Request {
        /// The switch.
        Desc,
        /// Flows.
        Flow(FlowStatsRequest) walks form,
        /// Sums over flows.
        Aggregate(FlowStatsRequest) walks form,
        /// Statistics of tables.
        Table,
        /// Statistics of ports.
        PortStats(PortRequest),
        /// Statistics of queues.
        Queue(QueueRequest),
        /// Statistics of groups.
        Group(IdRequest),
        /// Groups.
        GroupDesc(GroupDescRequest),
        /// What groups the switch supports.
        GroupFeatures,
        /// Statistics of meters.
        Meter(IdRequest),
        /// Meters.
        MeterConfig(IdRequest),
        /// What meters the switch supports.
        MeterFeatures,
        /// What tables can do; nonempty: what they are to do.
        TableFeatures(Vec<TableFeatures>) walks list,
        /// Ports.
        PortDesc(PortDescRequest),
        /// Tables.
        TableDesc,
        /// Queues.
        QueueDesc(QueueRequest),
        /// Changes of flows.
        FlowMonitor(Vec<MonitorRequest>) walks forms,
        /// Statistics of flows, without the flows.
        FlowStats(FlowStatsRequest) walks form,
        /// Statistics of a bridge's IPFIX export.
        IpfixBridge,
        /// Statistics of the IPFIX exports of sampled packets.
        IpfixFlow,
    }
}

contents! {
    /// A reply with a list, or part of it.
    pub enum Reply {
        /// The switch.
        Desc(Box<Desc>),
        /// Flows.
        Flow(Vec<FlowEntry>) walks forms,
        /// Sums over flows.
        Aggregate(Aggregate),
        /// Statistics of tables.
        Table(Vec<TableStats>) walks list,
        /// Statistics of ports.
        PortStats(Vec<PortStats>) walks list,
        /// Statistics of queues.
        Queue(Vec<QueueStats>) walks list,
        /// Statistics of groups.
        Group(Vec<GroupStats>) walks list,
        /// Groups.
        GroupDesc(Vec<GroupDesc>) walks list,
        /// What groups the switch supports.
        GroupFeatures(GroupFeatures),
        /// Statistics of meters.
        Meter(Vec<MeterStats>) walks list,
        /// Meters.
        MeterConfig(Vec<MeterConfig>) walks list,
        /// What meters the switch supports.
        MeterFeatures(MeterFeatures),
        /// What tables can do.
        TableFeatures(Vec<TableFeatures>) walks list,
        /// Ports.
        PortDesc(Vec<Port>) walks list,
        /// Tables.
        TableDesc(Vec<TableDesc>) walks list,
        /// Queues.
        QueueDesc(Vec<Queue>) walks list,
        /// Changes of flows.
        FlowMonitor(Vec<FlowUpdate>) walks forms,
        /// Statistics of flows, without the flows.
        FlowStats(Vec<FlowStatsEntry>) walks list,
        /// Statistics of a bridge's IPFIX export.
        IpfixBridge(IpfixStats),
        /// Statistics of the IPFIX exports of sampled packets.
        IpfixFlow(Vec<IpfixStats>) walks list,
    }
}

impl<T: Record> Record for Box<T> {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        (**self).walk(c)
    }
}

impl Request {
    /// The kind of list; `None`: an experimenter's.
    pub fn kind(&self) -> Option<Kind> {
        Content::kind(self)
    }

    /// Refuses a request that no switch accepts.
    pub(crate) fn check(&self, form: Form) -> Result<(), ErrorCode> {
        match self {
            Request::Flow(request) | Request::Aggregate(request) | Request::FlowStats(request) => {
                crate::message::check_match(&request.matching, form)?;
                match request.out_port.to_16_bits() {
                    Some(_) => Ok(()),
                    None => Err(ErrorCode::BacBadOutPort),
                }
            }
            Request::FlowMonitor(monitors) => monitors.iter().try_for_each(|monitor| monitor.check(form)),
            Request::TableFeatures(tables) => {
                tables.iter().try_for_each(|table| crate::property::check_all(&table.properties))
            }
            Request::Unknown(..) => Err(ErrorCode::BrcBadVendor),
            _ => Ok(()),
        }
    }
}

impl Reply {
    /// The kind of list; `None`: an experimenter's.
    pub fn kind(&self) -> Option<Kind> {
        Content::kind(self)
    }

    /// Whether the reply's flows have lists of fields, not fixed matches: as an extension in version 1.0.
    pub(crate) fn has_fields(&self) -> bool {
        match self {
            Reply::Flow(flows) => {
                flows.iter().any(|flow| matches!(flow.matching, crate::matching::Match::Fields(_)))
            }
            _ => false,
        }
    }
}
