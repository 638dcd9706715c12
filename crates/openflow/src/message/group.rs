//! Groups: sets of buckets of actions.

use crate::action::{Action, walk_list};
use crate::error::ErrorCode;
use crate::message::Form;
use crate::oxm::Oxm;
use crate::property::{Padded16, Property, properties};
use crate::version::{PortNo, Version, group, vendor};
use crate::wire::{Coder, Reader, Record, Step, Text, Writer, numbers};

numbers! {
    /// What to do with groups.
    pub enum GroupModCommand: u16 / u16 else GmfcBadCommand {
        /// Adds a group.
        #[default]
        Add = 0,
        /// Changes a group.
        Modify = 1,
        /// Removes a group, or all.
        Delete = 2,
        /// Adds buckets, since version 1.5.
        InsertBucket = 3,
        /// Removes buckets, since version 1.5.
        RemoveBucket = 5,
        /// Adds or changes a group (Open vSwitch).
        AddOrModify = 0x8000,
    }
}

numbers! {
    /// How a group chooses buckets.
    pub enum GroupKind: u8 / u8 else GmfcBadType {
        /// All buckets.
        #[default]
        All = 0,
        /// One bucket, by weight or hash.
        Select = 1,
        /// The only bucket.
        Indirect = 2,
        /// The first live bucket.
        FastFailover = 3,
    }
}

properties! {
    /// A property of a bucket.
    pub enum BucketProperty {
        /// Share of the traffic of a select group.
        0 => Weight(Padded16),
        /// Port whose state the bucket depends on.
        1 => WatchPort(PortNo),
        /// Group whose state the bucket depends on.
        2 => WatchGroup(u32),
    }
}

/// A bucket.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Bucket {
    /// The bucket's id, since version 1.5.
    pub id: u32,
    /// What it does.
    pub actions: Vec<Action>,
    /// Properties. Before version 1.5 there is one each of weight, watched port and watched group.
    pub properties: Vec<BucketProperty>,
}

/// Ids of buckets.
pub mod bucket {
    /// The last id.
    pub const MAX: u32 = 0xffff_ff00;
    /// The first bucket.
    pub const FIRST: u32 = 0xffff_fffd;
    /// The last bucket.
    pub const LAST: u32 = 0xffff_fffe;
    /// All buckets.
    pub const ALL: u32 = 0xffff_ffff;
}

impl Bucket {
    /// Share of the traffic of a select group.
    pub fn weight(&self) -> Option<u16> {
        self.properties.iter().find_map(|property| match property {
            BucketProperty::Weight(weight) => Some(weight.value),
            _ => None,
        })
    }

    /// Port whose state the bucket depends on; [`PortNo::ANY`]: none.
    pub fn watch_port(&self) -> PortNo {
        let port = self.properties.iter().find_map(|property| match property {
            BucketProperty::WatchPort(port) => Some(*port),
            _ => None,
        });
        port.unwrap_or(PortNo::ANY)
    }

    /// Group whose state the bucket depends on; [`group::ANY`]: none.
    pub fn watch_group(&self) -> u32 {
        let group = self.properties.iter().find_map(|property| match property {
            BucketProperty::WatchGroup(group) => Some(*group),
            _ => None,
        });
        group.unwrap_or(group::ANY)
    }

    fn walk_11<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(0, ErrorCode::GmfcBadBucket, |c| {
            let mut weight = self.weight().unwrap_or_default();
            let mut port = self.watch_port();
            let mut group = self.watch_group();
            c.pad(2)?;
            c.u16(&mut weight)?;
            c.record(&mut port)?;
            c.u32(&mut group)?;
            c.pad(4)?;
            self.properties = vec![
                BucketProperty::Weight(Padded16::new(weight)),
                BucketProperty::WatchPort(port),
                BucketProperty::WatchGroup(group),
            ];
            walk_list(c, &mut self.actions)
        })
    }

    fn walk_15<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(0, ErrorCode::GmfcBadBucket, |c| {
            c.pad(2)?;
            let len = c.length()?;
            c.u32(&mut self.id)?;
            c.measured(len, ErrorCode::GmfcBadBucket, |c| walk_list(c, &mut self.actions))?;
            c.list(&mut self.properties)
        })
    }
}

/// Buckets in the form of version 1.5 or an earlier one.
struct Buckets<'a> {
    list: &'a mut Vec<Bucket>,
    since_15: bool,
}

impl Buckets<'_> {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        let since_15 = self.since_15;
        let one = |bucket: &mut Bucket, c: &mut C| {
            if since_15 { bucket.walk_15(c) } else { bucket.walk_11(c) }
        };
        if !C::READS {
            return self.list.iter_mut().try_for_each(|bucket| one(bucket, c));
        }
        while c.more() {
            let mut bucket = Bucket::default();
            one(&mut bucket, c)?;
            self.list.push(bucket);
        }
        Ok(())
    }
}

/// How a select group chooses buckets (Netronome's extension, as Open vSwitch has it).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SelectionMethod {
    /// The method's name: `hash` or `dp_hash`.
    pub method: Text,
    /// The method's parameter.
    pub parameter: u64,
    /// Fields that are hashed, each with the bits that matter as its value.
    pub fields: Vec<Oxm>,
}

const SELECTION_METHOD: u32 = 1;
const METHOD_LEN: usize = 16;

impl Record for SelectionMethod {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.pad(4)?;
        c.text(&mut self.method, METHOD_LEN)?;
        c.u64(&mut self.parameter)?;
        c.list(&mut self.fields)
    }
}

impl SelectionMethod {
    /// The method that a group's property states, or the code that refuses it. `None`: the property states none.
    pub fn from_property(property: &Property) -> Option<Result<Self, ErrorCode>> {
        let (vendor::NETRONOME | vendor::NETRONOME_MISSPELT, SELECTION_METHOD, content) =
            property.as_experimenter()?
        else {
            return None;
        };
        let mut reader = Reader::new(content, Version::V1_5, ErrorCode::BpcBadLen);
        let mut method = SelectionMethod::default();
        Some(match method.walk(&mut reader) {
            Ok(()) if method.method.0.len() == METHOD_LEN => Err(ErrorCode::BpcBadValue),
            Ok(()) => Ok(method),
            Err(fault) => Err(crate::error::DecodeError::from(fault).code),
        })
    }

    /// The property that states the method.
    pub fn to_property(&self) -> Property {
        let mut writer = Writer::new(Version::V1_5);
        // What does not fit is left out; the fields of a flow's hash are far fewer.
        let _ = self.clone().walk(&mut writer);
        Property::experimenter(vendor::NETRONOME, SELECTION_METHOD, &writer.into_bytes())
    }

    fn check(&self, kind: GroupKind) -> Result<(), ErrorCode> {
        let hash = self.method.0 == b"hash";
        if kind != GroupKind::Select || !hash && self.method.0 != b"dp_hash" {
            return Err(ErrorCode::BpcBadValue);
        }
        if !hash && !self.fields.is_empty() {
            return Err(ErrorCode::BpcBadValue);
        }
        for (at, oxm) in self.fields.iter().enumerate() {
            let earlier = self.fields.get(..at).unwrap_or_default();
            let field = oxm.field().ok_or(ErrorCode::BmcBadField)?;
            if oxm.mask.is_some() {
                return Err(ErrorCode::BmcBadMask);
            }
            if !field.has_length(oxm.value.len()) {
                return Err(ErrorCode::BmcBadLen);
            }
            if earlier.iter().any(|other| other.field().is_some_and(|other| other.id == field.id)) {
                return Err(ErrorCode::BmcDupField);
            }
        }
        Ok(())
    }
}

/// Changes a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct GroupMod {
    /// What to do.
    pub command: GroupModCommand,
    /// How the group chooses buckets.
    pub kind: GroupKind,
    /// The group.
    pub group: u32,
    /// Where buckets are inserted, or which are removed: a bucket's id or one of [`bucket`]. Since version 1.5.
    pub command_bucket: u32,
    /// Buckets.
    pub buckets: Vec<Bucket>,
    /// Properties, since version 1.5.
    pub properties: Vec<Property>,
}

impl GroupMod {
    pub(crate) fn walk_form<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        c.record(&mut self.command)?;
        let since_15 = form == Form::Nicira || c.version() >= Version::V1_5;
        let buckets_commands = [GroupModCommand::InsertBucket, GroupModCommand::RemoveBucket];
        c.refuse_if(!since_15 && buckets_commands.contains(&self.command), ErrorCode::GmfcBadCommand)?;
        c.record(&mut self.kind)?;
        c.pad(1)?;
        c.u32(&mut self.group)?;
        let mut buckets = Buckets { list: &mut self.buckets, since_15 };
        if !since_15 {
            return buckets.walk(c);
        }
        let len = c.length()?;
        c.pad(2)?;
        c.u32(&mut self.command_bucket)?;
        c.measured(len, ErrorCode::BrcBadLen, |c| {
            c.reporting(ErrorCode::GmfcBadBucket, |c| buckets.walk(c))
        })?;
        c.list(&mut self.properties)
    }

    fn check_bucket(&self, bucket: &Bucket) -> Result<(), ErrorCode> {
        if bucket.watch_port().to_16_bits().is_none() {
            return Err(ErrorCode::GmfcBadWatch);
        }
        let inserts = self.command == GroupModCommand::InsertBucket;
        if self.kind != GroupKind::Select && !inserts && bucket.weight().is_some_and(|weight| weight > 0) {
            return Err(ErrorCode::GmfcInvalidGroup);
        }
        let watches = bucket.watch_port() != PortNo::ANY || bucket.watch_group() != group::ANY;
        match self.kind {
            GroupKind::All | GroupKind::Indirect if watches => Err(ErrorCode::GmfcWatchUnsupported),
            GroupKind::FastFailover if !watches => Err(ErrorCode::GmfcInvalidGroup),
            _ => Ok(()),
        }
    }

    /// Refuses wrong ids of buckets, in the form of version 1.5.
    fn check_bucket_ids(&self) -> Result<(), ErrorCode> {
        let one = self.command_bucket <= bucket::MAX;
        let end = matches!(self.command_bucket, bucket::FIRST | bucket::LAST);
        match self.command {
            GroupModCommand::InsertBucket if !one && !end => return Err(ErrorCode::GmfcUnknownBucket),
            GroupModCommand::RemoveBucket if !one && !end && self.command_bucket != bucket::ALL => {
                return Err(ErrorCode::GmfcUnknownBucket);
            }
            GroupModCommand::InsertBucket | GroupModCommand::RemoveBucket => {}
            _ if self.command_bucket != bucket::ALL => return Err(ErrorCode::GmfcBadBucket),
            _ => {}
        }
        let mut ids: Vec<u32> = self.buckets.iter().map(|bucket| bucket.id).collect();
        ids.sort_unstable();
        let twice = ids.windows(2).any(|pair| pair.first() == pair.last());
        match twice || ids.last().is_some_and(|last| *last > bucket::MAX) {
            true => Err(ErrorCode::GmfcBadBucket),
            false => Ok(()),
        }
    }

    /// Refuses a change that no switch accepts, as Open vSwitch does.
    pub(crate) fn check(&self, version: Version, form: Form) -> Result<(), ErrorCode> {
        let since_15 = form == Form::Nicira || version >= Version::V1_5;
        if since_15 {
            self.check_bucket_ids()?;
        }
        let removes = self.command == GroupModCommand::Delete;
        if self.group > group::MAX && !removes {
            return Err(ErrorCode::GmfcInvalidGroup);
        }
        if self.kind == GroupKind::Indirect && !removes && self.buckets.len() != 1 {
            return Err(ErrorCode::GmfcInvalidGroup);
        }
        if self.command == GroupModCommand::RemoveBucket && !self.buckets.is_empty() {
            return Err(ErrorCode::GmfcBadBucket);
        }
        for bucket in &self.buckets {
            bucket.actions.iter().try_for_each(|action| action.check(version))?;
            crate::property::check_all(&bucket.properties)?;
            self.check_bucket(bucket)?;
        }
        self.properties.iter().try_for_each(|property| match SelectionMethod::from_property(property) {
            Some(method) => method?.check(self.kind),
            None => Err(property.refusal()),
        })
    }
}

/// A group's description.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct GroupDesc {
    /// How the group chooses buckets.
    pub kind: GroupKind,
    /// The group.
    pub group: u32,
    /// Buckets.
    pub buckets: Vec<Bucket>,
    /// Properties, since version 1.5.
    pub properties: Vec<Property>,
}

impl GroupDesc {
    fn walk_as<C: Coder>(&mut self, c: &mut C, since_15: bool) -> Step {
        c.entry(0, ErrorCode::BrcBadLen, |c| {
            c.pad(2)?;
            c.record(&mut self.kind)?;
            c.pad(1)?;
            c.u32(&mut self.group)?;
            let mut buckets = Buckets { list: &mut self.buckets, since_15 };
            if !since_15 {
                return buckets.walk(c);
            }
            let len = c.length()?;
            c.pad(6)?;
            c.measured(len, ErrorCode::GmfcBadBucket, |c| buckets.walk(c))?;
            c.list(&mut self.properties)
        })
    }
}

impl Record for GroupDesc {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        // Version 1.0 has it as an extension in the form of 1.5.
        let since_15 = matches!(c.version(), Version::V1_0 | Version::V1_5);
        self.walk_as(c, since_15)
    }
}
