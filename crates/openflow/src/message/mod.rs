//! Messages: headers, kinds, and the room of each kind.
//!
//! The table in this module says under which number each version knows a kind of message, in the standard or as Nicira's
//! or ONF's extension. A [`Message`] keeps its [`Form`], so that it encodes to the bytes it came from.
//!
//! Decoding checks a message's structure. What a switch refuses besides, [`Message::check`] tells: a client decodes what
//! it does not understand, a switch replies with an error.

mod bundle;
mod features;
mod flow;
mod group;
mod hello;
mod meter;
mod nicira;
mod packet;
mod port;
mod queue;
mod role;
pub(crate) mod table;

pub use bundle::{BundleAdd, BundleControl, BundleControlKind, BundleFlags, RequestForward};
pub use features::{Capabilities, FeaturesReply, SwitchConfig};
pub use flow::{FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, cookie_field, cookie_of};
pub(crate) use flow::{check_match, is_cookie};
pub use group::{
    Bucket, BucketProperty, GroupDesc, GroupKind, GroupMod, GroupModCommand, SelectionMethod, bucket,
};
pub use hello::{Hello, HelloElement, VersionBitmap, Versions};
pub use meter::{Band, BandKind, MeterConfig, MeterFlags, MeterMod, MeterModCommand};
pub use nicira::{
    CtFlush, CtFlushProperty, FlowModTableId, Id16, TlvMap, TlvTableCommand, TlvTableMod, TlvTableReply,
};
pub use packet::{PacketIn, PacketIn2, PacketOut, PacketProperty};
pub use port::{
    EthernetPort, OpticalPort, OpticalSettings, Port, PortConfig, PortMod, PortModProperty, PortProperty,
    PortReason, PortState, PortStatus,
};
pub use queue::{Queue, QueueGetConfigReply, QueueGetConfigRequest, QueueProperty, QueueRate};
pub use role::{AsyncMasks, AsyncProperties, AsyncProperty, Role, RoleMessage, RoleStatus};
pub use table::{
    FieldIds, TableConfig, TableDesc, TableFeature, TableFeatures, TableIds, TableMod, TableModProperty,
    TableStatus, TypeId, TypeIds, Vacancy, Words,
};

use crate::error::{DecodeError, EncodeError, ErrorCode, ErrorMessage, Fault};
use crate::matching::Match;
use crate::multipart::{Multipart, Reply, Request};
use crate::version::Version::{self, V1_0, V1_1, V1_2, V1_3, V1_4, V1_5};
use crate::version::vendor;
use crate::wire::{Coder, Reader, Record, Step, Writer};

/// Bytes of a header.
pub const HEADER: usize = 8;
/// Type of extensions' messages.
const EXPERIMENTER: u8 = 4;

/// A message's header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// The version's number.
    pub version: u8,
    /// The message's type.
    pub kind: u8,
    /// The message's length, with its header.
    pub length: u16,
    /// The transaction id.
    pub xid: u32,
}

impl Header {
    /// Reads the header of a complete message.
    ///
    /// # Errors
    /// `OFPBRC_BAD_LEN` if `message` is shorter than a header, or its length differs from the header's.
    pub fn decode(message: &[u8]) -> Result<Self, DecodeError> {
        let wrong = DecodeError { code: ErrorCode::BrcBadLen, at: 2 };
        let header = Header::peek(message).ok_or(wrong)?;
        if usize::from(header.length) != message.len() {
            return Err(wrong);
        }
        Ok(header)
    }

    /// Reads the header at the start of a stream; `None`: more bytes are needed.
    ///
    /// The message is complete when [`Header::length`] bytes are there. A length below [`HEADER`] is an error.
    pub fn peek(stream: &[u8]) -> Option<Self> {
        let [version, kind, l1, l2, x1, x2, x3, x4] = *stream.first_chunk()?;
        let length = u16::from_be_bytes([l1, l2]);
        Some(Header { version, kind, length, xid: u32::from_be_bytes([x1, x2, x3, x4]) })
    }
}

/// Who defines a message's layout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Form {
    /// The standard.
    #[default]
    Standard,
    /// Nicira.
    Nicira,
    /// The Open Networking Foundation, between versions of its standard.
    Onf,
}

impl Form {
    fn vendor(self) -> u32 {
        match self {
            Form::Standard => 0,
            Form::Nicira => vendor::NICIRA,
            Form::Onf => vendor::ONF,
        }
    }
}

/// Numbers of a kind of message: who defines it, first and last version, number.
type Number = (Form, Version, Version, u32);

macro_rules! bodies {
    ($($(#[$doc:meta])* $kind:ident $(($content:ty))? $(walks $walk:ident)? = [$($number:expr),+];)*) => {
        /// A message's content.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Body {
            $($(#[$doc])* $kind $(($content))?,)*
            /// An extension's message of unknown kind: who defines it, and what follows.
            Experimenter(u32, Vec<u8>),
        }

        impl Body {
            /// The numbers under which versions know the kind.
            fn numbers(&self) -> &'static [Number] {
                match self {
                    $(bodies!(@pattern $kind $(($content))?) => &[$($number),+],)*
                    Body::Experimenter(..) => &[],
                }
            }

            /// The kind with a number, with its fields zero.
            fn blank(form: Form, version: Version, number: u32) -> Option<Self> {
                $(if [$($number),+].iter().any(|n| is(n, form, version, number)) {
                    return Some(bodies!(@blank $kind $(($content))?));
                })*
                None
            }

            fn walk_content<C: Coder>(&mut self, c: &mut C, form: &mut Form) -> Step {
                match self {
                    $(bodies!(@bind $kind content $(($content))?) => {
                        bodies!(@walk c form content $(($content))? $($walk)?)
                    })*
                    Body::Experimenter(_, body) => c.rest(body),
                }
            }
        }
    };
    (@pattern $kind:ident ($content:ty)) => { Body::$kind(_) };
    (@pattern $kind:ident) => { Body::$kind };
    (@blank $kind:ident ($content:ty)) => { Body::$kind(Default::default()) };
    (@blank $kind:ident) => { Body::$kind };
    (@bind $kind:ident $bound:ident ($content:ty)) => { Body::$kind($bound) };
    (@bind $kind:ident $bound:ident) => { Body::$kind };
    (@walk $c:ident $form:ident $bound:ident) => { Ok(()) };
    (@walk $c:ident $form:ident $bound:ident ($content:ty)) => { $c.record($bound) };
    (@walk $c:ident $form:ident $bound:ident ($content:ty) rest) => { $c.rest($bound) };
    (@walk $c:ident $form:ident $bound:ident ($content:ty) form) => { $bound.walk_form($c, *$form) };
    (@walk $c:ident $form:ident $bound:ident ($content:ty) multipart) => { $bound.walk_form($c, $form) };
}

fn is((whose, first, last, known): &Number, form: Form, version: Version, number: u32) -> bool {
    *known == number && *whose == form && (*first..=*last).contains(&version)
}

use Form::{Nicira as N, Onf as O, Standard as S};

bodies! {
    /// The first message, with the versions that a side speaks.
    Hello(Hello) = [(S, V1_0, V1_5, 0)];
    /// A refusal.
    Error(ErrorMessage) = [(S, V1_0, V1_5, 1)];
    /// Asks whether the other side is alive.
    EchoRequest(Vec<u8>) walks rest = [(S, V1_0, V1_5, 2)];
    /// Repeats a request's content.
    EchoReply(Vec<u8>) walks rest = [(S, V1_0, V1_5, 3)];
    /// Asks for the switch's features.
    FeaturesRequest = [(S, V1_0, V1_5, 5)];
    /// The switch's features.
    FeaturesReply(FeaturesReply) = [(S, V1_0, V1_5, 6)];
    /// Asks for the switch's configuration.
    GetConfigRequest = [(S, V1_0, V1_5, 7)];
    /// The switch's configuration.
    GetConfigReply(SwitchConfig) = [(S, V1_0, V1_5, 8)];
    /// Changes the switch's configuration.
    SetConfig(SwitchConfig) = [(S, V1_0, V1_5, 9)];
    /// A packet for a controller.
    PacketIn(PacketIn) walks form = [(S, V1_0, V1_5, 10), (N, V1_0, V1_5, 17)];
    /// A packet for a controller, as properties.
    PacketIn2(PacketIn2) = [(N, V1_0, V1_5, 30)];
    /// A flow has gone.
    FlowRemoved(FlowRemoved) walks form = [(S, V1_0, V1_5, 11), (N, V1_0, V1_5, 14)];
    /// A port has changed.
    PortStatus(PortStatus) = [(S, V1_0, V1_5, 12)];
    /// A packet from a controller.
    PacketOut(PacketOut) = [(S, V1_0, V1_5, 13)];
    /// Changes flows.
    FlowMod(Box<FlowMod>) walks form = [(S, V1_0, V1_5, 14), (N, V1_0, V1_5, 13)];
    /// Changes a group.
    GroupMod(GroupMod) walks form = [(S, V1_1, V1_5, 15), (N, V1_0, V1_0, 31)];
    /// Changes a port's configuration.
    PortMod(PortMod) = [(S, V1_0, V1_0, 15), (S, V1_1, V1_5, 16)];
    /// Changes a table's configuration.
    TableMod(TableMod) = [(S, V1_1, V1_5, 17)];
    /// Asks for a list.
    MultipartRequest(Multipart<Request>) walks multipart = [(S, V1_0, V1_0, 16), (S, V1_1, V1_5, 18)];
    /// A list, or part of it.
    MultipartReply(Multipart<Reply>) walks multipart = [(S, V1_0, V1_0, 17), (S, V1_1, V1_5, 19)];
    /// Asks to be told when all earlier messages have been processed.
    BarrierRequest = [(S, V1_0, V1_0, 18), (S, V1_1, V1_5, 20)];
    /// All earlier messages have been processed.
    BarrierReply = [(S, V1_0, V1_0, 19), (S, V1_1, V1_5, 21)];
    /// Asks for a port's queues.
    QueueGetConfigRequest(QueueGetConfigRequest) = [(S, V1_0, V1_0, 20), (S, V1_1, V1_3, 22)];
    /// A port's queues.
    QueueGetConfigReply(QueueGetConfigReply) = [(S, V1_0, V1_0, 21), (S, V1_1, V1_3, 23)];
    /// Asks for a role.
    RoleRequest(RoleMessage) walks form = [(S, V1_2, V1_5, 24), (N, V1_0, V1_5, 10)];
    /// The role.
    RoleReply(RoleMessage) walks form = [(S, V1_2, V1_5, 25), (N, V1_0, V1_5, 11)];
    /// Asks which asynchronous messages are sent.
    GetAsyncRequest = [(S, V1_3, V1_5, 26)];
    /// Which asynchronous messages are sent.
    GetAsyncReply(AsyncMasks) = [(S, V1_3, V1_3, 27)];
    /// Which asynchronous messages are sent, as properties.
    GetAsyncReply2(AsyncProperties) = [(S, V1_4, V1_5, 27)];
    /// Chooses asynchronous messages.
    SetAsync(AsyncMasks) = [(S, V1_3, V1_3, 28), (N, V1_0, V1_5, 19)];
    /// Chooses asynchronous messages, as properties.
    SetAsync2(AsyncProperties) = [(S, V1_4, V1_5, 28), (N, V1_0, V1_3, 27)];
    /// Changes a meter.
    MeterMod(MeterMod) = [(S, V1_3, V1_5, 29)];
    /// A controller's role has changed.
    RoleStatus(RoleStatus) = [(S, V1_4, V1_5, 30), (O, V1_3, V1_3, 1911)];
    /// A table has changed.
    TableStatus(TableStatus) = [(S, V1_4, V1_5, 31)];
    /// A request of another controller.
    RequestForward(RequestForward) = [(S, V1_4, V1_5, 32), (O, V1_3, V1_3, 2350), (N, V1_0, V1_2, 132)];
    /// Opens, closes, applies or drops a bundle.
    BundleControl(BundleControl) = [(S, V1_4, V1_5, 33), (O, V1_3, V1_3, 2300)];
    /// Adds a message to a bundle.
    BundleAdd(BundleAdd) = [(S, V1_4, V1_5, 34), (O, V1_3, V1_3, 2301)];
    /// Chooses the form of matches in version 1.0: 0 fixed, 2 fields.
    SetFlowFormat(u32) = [(N, V1_0, V1_0, 12)];
    /// Chooses whether flow-mods name a table in version 1.0.
    FlowModTableId(FlowModTableId) = [(N, V1_0, V1_5, 15)];
    /// Chooses the form of packet-ins: 0 standard, 1 and 2 Nicira's.
    SetPacketInFormat(u32) = [(N, V1_0, V1_5, 16)];
    /// Asks for ages in statistics of flows.
    FlowAge = [(N, V1_0, V1_5, 18)];
    /// Sets the controller's id.
    SetControllerId(Id16) = [(N, V1_0, V1_5, 20)];
    /// Ends a flow monitor.
    FlowMonitorCancel(u32) = [(N, V1_0, V1_2, 21), (O, V1_3, V1_3, 1870)];
    /// Flow monitors pause.
    FlowMonitorPaused = [(N, V1_0, V1_2, 22), (O, V1_3, V1_3, 1871)];
    /// Flow monitors go on.
    FlowMonitorResumed = [(N, V1_0, V1_2, 23), (O, V1_3, V1_3, 1872)];
    /// Changes the maps of tunnel options.
    TlvTableMod(TlvTableMod) = [(N, V1_0, V1_5, 24)];
    /// Asks for the maps of tunnel options.
    TlvTableRequest = [(N, V1_0, V1_5, 25)];
    /// The maps of tunnel options.
    TlvTableReply(TlvTableReply) = [(N, V1_0, V1_5, 26)];
    /// Resumes a paused packet.
    Resume(PacketIn2) = [(N, V1_0, V1_5, 28)];
    /// Forgets the connections of a zone.
    CtFlushZone(Id16) = [(N, V1_0, V1_5, 29)];
    /// Forgets connections.
    CtFlush(CtFlush) = [(N, V1_0, V1_5, 32)];
}

impl Body {
    fn number(&self, form: Form, version: Version) -> Option<u32> {
        let known = |n: &&Number| n.0 == form && (n.1..=n.2).contains(&version);
        self.numbers().iter().find(known).map(|n| n.3)
    }

    /// The form for a version: the standard's if it has one that can express the content.
    fn form(&self, version: Version) -> Form {
        let fields = |matching: &Match| version == V1_0 && matches!(matching, Match::Fields(_));
        let extension = match self {
            Body::FlowMod(flow) => fields(&flow.matching),
            Body::FlowRemoved(flow) => fields(&flow.matching),
            Body::MultipartRequest(Multipart { content, .. }) => match content {
                Request::Flow(request) | Request::Aggregate(request) if fields(&request.matching) => true,
                _ => return content.kind().and_then(|kind| kind.form(version)).unwrap_or_default(),
            },
            Body::MultipartReply(Multipart { content, .. }) => match content {
                Reply::Flow(_) if version == V1_0 && content.has_fields() => true,
                _ => return content.kind().and_then(|kind| kind.form(version)).unwrap_or_default(),
            },
            _ => false,
        };
        if extension {
            return Form::Nicira;
        }
        let forms = [Form::Standard, Form::Onf, Form::Nicira];
        forms.into_iter().find(|form| self.number(*form, version).is_some()).unwrap_or_default()
    }
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The version.
    pub version: Version,
    /// The transaction id: a reply has its request's.
    pub xid: u32,
    /// Who defines the layout.
    pub form: Form,
    /// The content.
    pub body: Body,
}

impl Message {
    /// A message in the standard's form, or an extension's where a version has no other.
    pub fn new(version: Version, xid: u32, body: Body) -> Self {
        Message { version, xid, form: body.form(version), body }
    }

    /// Decodes a complete message.
    ///
    /// # Errors
    /// The message's structure is wrong, or its version or type unknown. A hello of an unknown version is for
    /// [`Hello::decode_any`].
    pub fn decode(message: &[u8]) -> Result<Self, DecodeError> {
        let header = Header::decode(message)?;
        let Some(version) = Version::from_number(header.version) else {
            return Err(DecodeError { code: ErrorCode::BrcBadVersion, at: 0 });
        };
        let mut reader = Reader::new(message, version, ErrorCode::BrcBadLen);
        let mut decoded =
            Message { version, xid: header.xid, form: Form::Standard, body: Body::FeaturesRequest };
        decoded.walk(&mut reader)?;
        reader.finish()?;
        Ok(decoded)
    }

    /// Encodes the message.
    ///
    /// # Errors
    /// The version or form lacks something of the message, a value is out of its range on the wire, or the message
    /// exceeds 65,535 bytes.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.clone().into_bytes()
    }

    /// Encodes the message, without the copy that [`Message::encode`] makes.
    ///
    /// # Errors
    /// As [`Message::encode`].
    pub fn into_bytes(mut self) -> Result<Vec<u8>, EncodeError> {
        let version = self.version;
        let mut writer = Writer::new(version);
        writer
            .entry(2, ErrorCode::BrcBadLen, |writer| self.walk(writer))
            .map_err(|fault| EncodeError::new(fault, version))?;
        Ok(writer.into_bytes())
    }

    /// Refuses what no switch accepts: unknown extensions, fields, actions, instructions and properties, wrong values,
    /// masks and prerequisites.
    ///
    /// # Errors
    /// The code to reply with.
    pub fn check(&self) -> Result<(), ErrorCode> {
        let (version, form) = (self.version, self.form);
        match &self.body {
            Body::FlowMod(flow) => flow.check(version, form),
            Body::PacketOut(packet) => packet.check(version),
            Body::BundleAdd(add) => add.inner().map_err(|error| error.code)?.check(),
            Body::GroupMod(group) => group.check(version, form),
            Body::MeterMod(meter) => meter.check(),
            Body::MultipartRequest(request) => request.content.check(form),
            Body::TlvTableMod(change) => change.check(),
            Body::PortMod(port) => crate::property::check_all(&port.properties),
            Body::TableMod(table) => crate::property::check_all(&table.properties),
            Body::SetAsync2(properties) => crate::property::check_all(&properties.0),
            Body::CtFlush(flush) => crate::property::check_all(&flush.properties),
            Body::Experimenter(vendor::NICIRA | vendor::ONF, _) => Err(ErrorCode::BrcBadSubtype),
            Body::Experimenter(..) => Err(ErrorCode::BrcBadVendor),
            _ => Ok(()),
        }
    }
}

impl Record for Message {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        let version = c.version();
        let multipart = matches!(self.body, Body::MultipartRequest(_) | Body::MultipartReply(_));
        // A multipart message's form shows in its own header.
        let mut form = if multipart { Form::Standard } else { self.form };
        let mut number = match (&self.body, C::READS) {
            (_, true) | (Body::Experimenter(..), _) => 0,
            (body, false) => {
                body.number(form, version).ok_or(Fault::Inexpressible("a message of this kind"))?
            }
        };
        let plain = form == Form::Standard && !matches!(self.body, Body::Experimenter(..));
        let mut kind = if plain { number as u8 } else { EXPERIMENTER };
        let mut version_number = version.number();
        c.u8(&mut version_number)?;
        c.u8(&mut kind)?;
        c.pad(2)?;
        c.u32(&mut self.xid)?;
        if C::READS && kind != EXPERIMENTER {
            let fault = Fault::Malformed { code: ErrorCode::BrcBadType, at: 1 };
            self.body = Body::blank(Form::Standard, version, kind.into()).ok_or(fault)?;
        } else if kind == EXPERIMENTER {
            self.walk_experimenter(c, &mut form, &mut number)?;
        }
        if C::READS {
            self.form = form;
        }
        self.body.walk_content(c, &mut self.form)
    }
}

impl Message {
    /// The header of an extension's message. One of unknown kind is kept with what follows who defines it.
    fn walk_experimenter<C: Coder>(&mut self, c: &mut C, form: &mut Form, number: &mut u32) -> Step {
        if let (false, Body::Experimenter(vendor, _)) = (C::READS, &mut self.body) {
            return c.u32(vendor);
        }
        let mut vendor = form.vendor();
        c.u32(&mut vendor)?;
        if !C::READS {
            return c.u32(number);
        }
        *form = match vendor {
            vendor::NICIRA => Form::Nicira,
            vendor::ONF => Form::Onf,
            _ => Form::Standard,
        };
        if *form == Form::Standard || c.left() < 4 {
            *form = Form::Standard;
            self.body = Body::Experimenter(vendor, Vec::new());
            return Ok(());
        }
        c.u32(number)?;
        match Body::blank(*form, c.version(), *number) {
            Some(body) => self.body = body,
            // The number stays with the content, which only who defines it can tell apart.
            None => return c.refuse(ErrorCode::BrcBadSubtype),
        }
        Ok(())
    }
}
