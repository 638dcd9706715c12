//! Ids and aliases.
//!
//! An id has the kind of the object in its top byte, and below it a hash of the name; where two names collide, the one
//! that comes later in the order of bytes gets the next free id. So ids depend on names only, and are those that other
//! compilers give. `@id` overrides. An alias is the shortest end of a name, cut at dots, that no other name has.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::proto::p4_ids::Prefix;

const LOW: u32 = 0x00ff_ffff;

/// Bob Jenkins's one-at-a-time hash.
fn hash(name: &str) -> u32 {
    let mut hash = 0_u32;
    for byte in name.bytes() {
        hash = hash.wrapping_add(u32::from(byte));
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

/// Why an `@id` is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another object has it.
    Taken,
    /// Its top byte is that of another kind.
    Kind,
}

/// Names of objects by kind, with ids and aliases once [`Ids::assign`] has run.
#[derive(Debug, Default)]
pub(super) struct Ids {
    ids: BTreeMap<(u32, String), Option<u32>>,
    taken: BTreeSet<u32>,
    /// All names, with the lengths of their aliases.
    aliases: HashMap<String, usize>,
}

impl Ids {
    /// Adds an object, with the value of its `@id`. One that is known already is left as it is.
    pub(super) fn add(&mut self, kind: Prefix, name: &str, id: Option<u32>) -> Result<(), Refusal> {
        let prefix = kind as u32;
        let key = (prefix, name.to_owned());
        if self.ids.contains_key(&key) {
            return Ok(());
        }
        self.aliases.insert(name.to_owned(), name.len());
        let (id, result) = match id {
            None => (None, Ok(())),
            Some(id) if id > LOW && id >> 24 != prefix => (None, Err(Refusal::Kind)),
            Some(id) => {
                let id = id & LOW | prefix << 24;
                if self.taken.insert(id) { (Some(id), Ok(())) } else { (None, Err(Refusal::Taken)) }
            }
        };
        self.ids.insert(key, id);
        result
    }

    /// Gives ids to the objects without one, and aliases to all.
    pub(super) fn assign(&mut self) {
        for ((prefix, name), id) in &mut self.ids {
            if id.is_some() {
                continue;
            }
            // There are fewer objects than ids of a kind, so that a free one is found.
            let mut low = hash(name) & LOW;
            while !self.taken.insert(*prefix << 24 | low) {
                low = low.wrapping_add(1) & LOW;
            }
            *id = Some(*prefix << 24 | low);
        }
        self.assign_aliases();
    }

    /// In the order of their components from the last, the names with the longest ends in common are neighbours.
    fn assign_aliases(&mut self) {
        let mut names: Vec<String> = self.aliases.keys().cloned().collect();
        names.sort_by(|a, b| a.rsplit('.').cmp(b.rsplit('.')));
        for (at, name) in names.iter().enumerate() {
            let before =
                at.checked_sub(1).and_then(|at| names.get(at)).map_or(0, |other| in_common(name, other));
            let behind = names.get(at + 1).map_or(0, |other| in_common(name, other));
            let components = before.max(behind) + 1;
            let length = name
                .rmatch_indices('.')
                .nth(components - 1)
                .map_or(name.len(), |(dot, _)| name.len() - dot - 1);
            self.aliases.insert(name.clone(), length);
        }
    }

    /// The id of an object; 0, which is none's, for one that was not added.
    pub(super) fn id(&self, kind: Prefix, name: &str) -> u32 {
        self.ids.get(&(kind as u32, name.to_owned())).copied().flatten().unwrap_or(0)
    }

    /// The alias of an object.
    pub(super) fn alias<'n>(&self, name: &'n str) -> &'n str {
        let length = self.aliases.get(name).copied().unwrap_or(name.len());
        name.get(name.len().saturating_sub(length)..).unwrap_or(name)
    }
}

/// Number of components that the ends of two names have in common.
fn in_common(a: &str, b: &str) -> usize {
    a.rsplit('.').zip(b.rsplit('.')).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids that other compilers give.
    #[test]
    fn ids_are_hashes_of_names() {
        let mut ids = Ids::default();
        let known = [
            (Prefix::Table, "ingress.ipv4_da_lpm", 35_996_228),
            (Prefix::Action, "NoAction", 21_257_015),
            (Prefix::Action, "ingress.next_hop", 27_207_020),
            (Prefix::Counter, "egress.port_bytes_out", 309_984_546),
            (Prefix::DirectCounter, "ingress.per_prefix_pkt_byte_count", 332_805_598),
            (Prefix::ActionProfile, "MyIC.ap", 298_015_716),
        ];
        for (kind, name, _) in known {
            assert_eq!(ids.add(kind, name, None), Ok(()));
        }
        ids.assign();
        for (kind, name, id) in known {
            assert_eq!(ids.id(kind, name), id, "{name}");
        }
    }

    #[test]
    fn a_taken_id_goes_to_the_next_free_one() {
        let mut ids = Ids::default();
        let hashed = 21_257_015;
        assert_eq!(ids.add(Prefix::Action, "a", Some(hashed)), Ok(()));
        assert_eq!(ids.add(Prefix::Action, "NoAction", None), Ok(()));
        ids.assign();
        assert_eq!(ids.id(Prefix::Action, "NoAction"), hashed + 1);
    }

    #[test]
    fn an_annotated_id_gets_the_kind_and_is_checked() {
        let mut ids = Ids::default();
        assert_eq!(ids.add(Prefix::Table, "t", Some(7)), Ok(()));
        assert_eq!(ids.add(Prefix::Table, "u", Some(0x0200_0007)), Err(Refusal::Taken));
        assert_eq!(ids.add(Prefix::Table, "v", Some(0x0100_0007)), Err(Refusal::Kind));
        assert_eq!(ids.add(Prefix::Action, "w", Some(0x0100_0007)), Ok(()));
        ids.assign();
        assert_eq!(ids.id(Prefix::Table, "t"), 0x0200_0007);
        assert_eq!(ids.id(Prefix::Action, "w"), 0x0100_0007);
        assert_eq!(ids.id(Prefix::Table, "u") >> 24, 2);
        assert_eq!(ids.id(Prefix::Table, "none"), 0);
    }

    #[test]
    fn aliases_are_the_shortest_unique_ends() {
        let mut ids = Ids::default();
        for name in ["d.a.c", "e.b.c", "d.x", "c", "d.x"] {
            assert_eq!(ids.add(Prefix::Table, name, None), Ok(()));
        }
        assert_eq!(ids.add(Prefix::Action, "d.x", None), Ok(()));
        ids.assign();
        assert_eq!(ids.alias("d.a.c"), "a.c");
        assert_eq!(ids.alias("e.b.c"), "b.c");
        assert_eq!(ids.alias("d.x"), "x");
        assert_eq!(ids.alias("c"), "c");
    }
}
