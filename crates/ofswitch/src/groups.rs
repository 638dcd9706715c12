//! Groups (OpenFlow 1.3.5, section 6.5; 1.5.1, section 6.7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openflow::action::Action;
use openflow::error::ErrorCode;
use openflow::field::FieldId;
use openflow::message::{
    Bucket, GroupDesc, GroupKind, GroupMod, GroupModCommand, SelectionMethod, bucket as bucket_id,
};
use openflow::property::Property;
use openflow::{PortNo, version};
use pipeline::ir;
use pipeline::state::{Bucket as IrBucket, Group, GroupKind as IrKind, Update};

use crate::datapath::{Datapath, Transaction, exact, exact_match};
use crate::flows::visit;
use crate::lower::{Body, Owner, bucket};
use crate::program::{HASHED, Layout, field_values, hash_into, outputs};
use crate::switch::group_mods;
use crate::uses::Object;

/// Reason of flow-removed messages: the flow's group was deleted.
pub(crate) const GROUP_DELETED: u8 = 3;

/// The module of messages in the log, after the one of Open vSwitch that has such messages.
const LOG: &str = "ofproto_dpif";

/// Bytes that a group counts at least: an empty one takes as much memory.
const LEAST_SIZE: usize = 512;

/// A group as controllers know it.
#[derive(Debug, Clone)]
pub(crate) struct GroupEntry {
    pub(crate) kind: GroupKind,
    pub(crate) buckets: Vec<Bucket>,
    pub(crate) properties: Vec<Property>,
    copies: Vec<u32>,
    learns: Vec<u32>,
    /// Whether it has a hash of its own.
    has_method: bool,
    /// Bytes of the messages that describe it.
    pub(crate) size: usize,
}

impl GroupEntry {
    /// The group's description.
    pub(crate) fn desc(&self, group: u32) -> GroupDesc {
        GroupDesc {
            kind: self.kind,
            group,
            buckets: self.buckets.clone(),
            properties: self.properties.clone(),
        }
    }

    /// The fields whose hash chooses a bucket.
    pub(crate) fn hashed(&self) -> Vec<FieldId> {
        let method = if self.has_method { chosen_method(&self.properties).ok().flatten() } else { None };
        method.map_or_else(|| HASHED.to_vec(), |method| fields_of(&method).collect())
    }

    /// Groups that its buckets' actions refer to.
    pub(crate) fn groups(&self) -> BTreeSet<u32> {
        referred(&self.buckets)
    }

    /// The same as objects.
    pub(crate) fn objects(&self) -> BTreeSet<Object> {
        self.groups().into_iter().map(Object::Group).collect()
    }
}

fn referred(buckets: &[Bucket]) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    let mut refer = |action: &Action| {
        if let Action::Group(group) = action {
            all.insert(*group);
        }
    };
    buckets.iter().for_each(|bucket| visit(&bucket.actions, &mut refer));
    all
}

/// Groups that buckets watch.
fn watched(buckets: &[Bucket]) -> impl Iterator<Item = u32> {
    buckets.iter().map(Bucket::watch_group).filter(|group| *group != version::group::ANY)
}

impl Datapath {
    /// Prepares a group-mod.
    pub(crate) fn group_mod(
        &mut self,
        request: &GroupMod,
        now: u64,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        let id = request.group;
        let before = self.model.groups().get(&id).cloned();
        match request.command {
            GroupModCommand::Add if before.is_some() => Err(ErrorCode::GmfcGroupExists),
            GroupModCommand::Modify if before.is_none() => Err(ErrorCode::GmfcUnknownGroup),
            GroupModCommand::Add | GroupModCommand::Modify | GroupModCommand::AddOrModify => {
                let mut buckets = request.buckets.clone();
                number_buckets(&mut buckets);
                self.put_group(id, request.kind, buckets, request.properties.clone(), transaction)
            }
            GroupModCommand::InsertBucket => {
                let before = before.ok_or(ErrorCode::GmfcUnknownGroup)?;
                let buckets = inserted(&before, request)?;
                self.put_group(id, before.kind, buckets, before.properties.clone(), transaction)
            }
            GroupModCommand::RemoveBucket => {
                let before = before.ok_or(ErrorCode::GmfcUnknownGroup)?;
                let buckets = removed(&before.buckets, request.command_bucket)?;
                self.put_group(id, before.kind, buckets, before.properties.clone(), transaction)
            }
            GroupModCommand::Delete if id == version::group::ALL => {
                let all = self.model.groups().keys().copied().collect();
                self.delete_groups(&all, now, transaction);
                Ok(())
            }
            GroupModCommand::Delete if id > version::group::MAX => Err(ErrorCode::GmfcInvalidGroup),
            GroupModCommand::Delete => {
                if self.model.uses().groups(Object::Group(id)).any(|other| other != id) {
                    return Err(ErrorCode::GmfcChainedGroup);
                }
                self.delete_groups(&BTreeSet::from([id]), now, transaction);
                Ok(())
            }
        }
    }

    fn put_group(
        &mut self,
        id: u32,
        kind: GroupKind,
        buckets: Vec<Bucket>,
        properties: Vec<Property>,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        let before = self.model.groups().get(&id).cloned();
        if before.is_none() && self.model.groups().len() >= self.limits.groups as usize {
            return Err(ErrorCode::GmfcOutOfGroups);
        }
        let before_len = before.as_ref().map_or(0, |before| before.buckets.len());
        let others = self.model.sums.buckets.saturating_sub(before_len);
        let too_many = buckets.len() > self.limits.buckets as usize
            || others + buckets.len() > self.limits.all_buckets as usize;
        if too_many && buckets.len() > before_len {
            return Err(ErrorCode::GmfcOutOfBuckets);
        }
        if self.loops(id, &buckets) {
            return Err(ErrorCode::GmfcLoop);
        }
        let owner = Owner { table: 0xff, cookie: outputs::NO_COOKIE, reason: outputs::GROUP };
        let (mut lowered, mut copies, mut learns) = (Vec::new(), Vec::new(), Vec::new());
        for one in &buckets {
            let list = self.lower(None, |world| bucket(world, owner, &one.actions))?;
            let (call, more_copies, more_learns) = self.install(list, transaction)?;
            copies.extend(more_copies);
            learns.extend(more_learns);
            let weight = match kind {
                GroupKind::Select => one.weight().unwrap_or(1).into(),
                _ => 1,
            };
            let watch = |nobody: bool, number| (!nobody).then_some(number);
            lowered.push(IrBucket {
                weight,
                watch_port: watch(one.watch_port() == PortNo::ANY, one.watch_port().0),
                watch_group: watch(one.watch_group() == version::group::ANY, one.watch_group()),
                call,
            });
        }
        let kinds = match kind {
            GroupKind::All => IrKind::All,
            GroupKind::Select => IrKind::Select,
            GroupKind::Indirect => IrKind::Indirect,
            GroupKind::FastFailover => IrKind::Failover,
        };
        let layout = Layout::get();
        let group = Group { kind: kinds, buckets: lowered };
        transaction.updates.push(Update::Group(layout.groups, id, Some(group)));
        if let Some(before) = &before {
            self.uninstall(&before.copies, &before.learns, transaction);
            if before.has_method {
                transaction.updates.push(Update::DeleteMatch(layout.methods, exact_match(id), 0));
            }
        }
        let method = chosen_method(&properties)?;
        let hash = method.as_ref().and_then(hash_of);
        let has_method = hash.is_some();
        if let Some(body) = hash {
            let call = self.define(body)?;
            transaction.updates.push(Update::Insert(layout.methods, exact(id, call)));
        }
        if kind == GroupKind::Select {
            log_method(id, method.as_ref(), has_method);
        }
        let mut entry = GroupEntry { kind, buckets, properties, copies, learns, has_method, size: 0 };
        entry.size = group_mods(id, &entry).iter().map(Vec::len).sum::<usize>().max(LEAST_SIZE);
        let size_before = before.as_ref().map_or(0, |before| before.size);
        let bytes = self.model.sums.bytes.saturating_sub(size_before) + entry.size;
        if entry.size > size_before && bytes > self.limits.bytes {
            return Err(ErrorCode::GmfcOutOfBuckets);
        }
        (self.model.sums.buckets, self.model.sums.bytes) = (others + entry.buckets.len(), bytes);
        self.model.put_group(id, Arc::new(entry));
        Ok(())
    }

    /// Whether a group with these buckets would be reached from itself, by actions or by what buckets watch.
    fn loops(&self, id: u32, buckets: &[Bucket]) -> bool {
        let mut todo: Vec<u32> = referred(buckets).into_iter().chain(watched(buckets)).collect();
        let mut seen = BTreeSet::new();
        while let Some(next) = todo.pop() {
            if next == id {
                return true;
            }
            if seen.insert(next)
                && let Some(entry) = self.model.groups().get(&next)
            {
                todo.extend(referred(&entry.buckets));
                todo.extend(watched(&entry.buckets));
            }
        }
        false
    }

    /// Removes those of some groups that are there, and the flows that refer to them.
    fn delete_groups(&mut self, ids: &BTreeSet<u32>, now: u64, transaction: &mut Transaction) {
        let mut removed: BTreeMap<u32, Arc<GroupEntry>> = BTreeMap::new();
        removed.extend(ids.iter().filter_map(|id| Some((*id, self.model.remove_group(*id)?))));
        let flows = self.model.flows_with(removed.keys().copied().map(Object::Group));
        flows.iter().for_each(|flow| self.remove_flow(flow, GROUP_DELETED, now, transaction));
        let layout = Layout::get();
        for (id, entry) in removed {
            self.model.sums.buckets = self.model.sums.buckets.saturating_sub(entry.buckets.len());
            self.model.sums.bytes = self.model.sums.bytes.saturating_sub(entry.size);
            transaction.updates.push(Update::Group(layout.groups, id, None));
            if entry.has_method {
                transaction.updates.push(Update::DeleteMatch(layout.methods, exact_match(id), 0));
            }
            self.uninstall(&entry.copies, &entry.learns, transaction);
        }
    }
}

/// Gives ids to buckets of versions that have none.
fn number_buckets(buckets: &mut [Bucket]) {
    if buckets.len() > 1 && buckets.iter().all(|bucket| bucket.id == 0) {
        for (at, bucket) in buckets.iter_mut().enumerate() {
            bucket.id = at as u32;
        }
    }
}

fn inserted(before: &GroupEntry, request: &GroupMod) -> Result<Vec<Bucket>, ErrorCode> {
    let exists = |id: u32| before.buckets.iter().any(|bucket| bucket.id == id);
    if request.buckets.iter().any(|bucket| exists(bucket.id)) {
        return Err(ErrorCode::GmfcBucketExists);
    }
    let at = match request.command_bucket {
        bucket_id::FIRST => 0,
        bucket_id::LAST => before.buckets.len(),
        id => {
            let found = before.buckets.iter().position(|bucket| bucket.id == id);
            found.ok_or(ErrorCode::GmfcUnknownBucket)? + 1
        }
    };
    let (head, tail) = before.buckets.split_at(at.min(before.buckets.len()));
    let buckets = [head, &request.buckets, tail].concat();
    // The request may state another kind, whose rules its check has followed.
    let watches =
        |bucket: &Bucket| bucket.watch_port() != PortNo::ANY || bucket.watch_group() != version::group::ANY;
    match before.kind {
        GroupKind::Indirect if buckets.len() != 1 => Err(ErrorCode::GmfcInvalidGroup),
        GroupKind::All | GroupKind::Indirect if buckets.iter().any(watches) => {
            Err(ErrorCode::GmfcWatchUnsupported)
        }
        // Buckets that watch nothing are never used; Open vSwitch lets them in, too.
        _ => Ok(buckets),
    }
}

fn removed(before: &[Bucket], which: u32) -> Result<Vec<Bucket>, ErrorCode> {
    let mut buckets = before.to_vec();
    match which {
        bucket_id::ALL => buckets.clear(),
        bucket_id::FIRST => drop(buckets.drain(..buckets.len().min(1))),
        bucket_id::LAST => drop(buckets.pop()),
        id => {
            let at = buckets.iter().position(|bucket| bucket.id == id).ok_or(ErrorCode::GmfcUnknownBucket)?;
            buckets.remove(at);
        }
    }
    Ok(buckets)
}

/// The selection method that a group's properties choose.
fn chosen_method(properties: &[Property]) -> Result<Option<SelectionMethod>, ErrorCode> {
    properties.iter().find_map(SelectionMethod::from_property).transpose()
}

/// The fields that a selection method hashes.
fn fields_of(method: &SelectionMethod) -> impl Iterator<Item = FieldId> {
    method.fields.iter().filter_map(|oxm| oxm.field()).map(|field| field.id)
}

/// The action that computes a group's hash, if its method has fields.
fn hash_of(method: &SelectionMethod) -> Option<Body> {
    let layout = Layout::get();
    let mut values = field_values(&layout.keys, fields_of(method));
    if values.is_empty() {
        return None;
    }
    // The parameter makes groups with the same fields choose differently.
    values.push(ir::Expr::bit(64, method.parameter));
    let body = vec![hash_into(layout.select_hash, values)];
    let action = ir::Action { name: "method".to_owned(), params: vec![], body };
    Some(Body { action, args: vec![] })
}

/// Logs how a select group chooses among its buckets.
fn log_method(id: u32, method: Option<&SelectionMethod>, has_own: bool) {
    tracing::debug!(target: LOG, "Constructing select group {id}");
    match method {
        None => tracing::debug!(target: LOG, "No selection method specified. Using default hash method."),
        Some(method) => {
            let name = method.method.to_string();
            tracing::debug!(target: LOG, "Selection method specified: {}.", name.escape_debug());
            if has_own {
                let fields: Vec<_> =
                    method.fields.iter().filter_map(|oxm| oxm.field()).map(|it| it.name).collect();
                tracing::debug!(target: LOG, "Hash fields: {}.", fields.join(","));
            } else {
                tracing::debug!(target: LOG, "No hash fields. Falling back to default hash method.");
            }
        }
    }
}
