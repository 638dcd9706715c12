//! Value sets and digests.

use p4runtime_proto::v1::{DigestEntry, ValueSetEntry, ValueSetMember, update::Type as Kind};
use pipeline::state::Update as Step;

use super::arrays::array;
use super::matches;
use super::profile::check_existence;
use super::work::{Work, only_modify, refusal};
use crate::Failure;
use crate::schema::ValueSet;

impl Work<'_> {
    pub(super) fn value_set_entry(&mut self, kind: Kind, entry: &ValueSetEntry) -> Result<(), Failure> {
        only_modify(kind, "a value set")?;
        let set = array(&self.schema.value_sets, "value set", entry.value_set_id)?;
        let at = |failure: Failure| failure.at(format_args!("value set {}", set.name));
        if entry.members.len() > set.size as usize {
            let message = format!("it would have {} members (at most {})", entry.members.len(), set.size);
            return Err(at(Failure::exhausted(message)));
        }
        let tuples = entry.members.iter().map(|member| tuple(set, member)).collect::<Result<_, _>>();
        self.change(Step::Values(set.ir, tuples.map_err(at)?)).map_err(refusal)?;
        Ok(())
    }

    pub(super) fn digest_entry(&mut self, kind: Kind, entry: &DigestEntry) -> Result<(), Failure> {
        let digest = array(&self.schema.digests, "digest", entry.digest_id)?;
        let at = |failure: Failure| failure.at(format_args!("digest {}", digest.name));
        check_existence(kind, self.book.digests.get(&entry.digest_id).is_some()).map_err(at)?;
        if kind == Kind::Delete {
            self.book.digests.set(entry.digest_id, None);
            return Ok(());
        }
        let config = entry.config.ok_or_else(|| at(Failure::invalid("its configuration is missing")))?;
        if config.max_timeout_ns < 0 || config.max_list_size < 0 || config.ack_timeout_ns < 0 {
            return Err(at(Failure::invalid("a timeout or size is negative")));
        }
        self.book.digests.set(entry.digest_id, Some(config));
        Ok(())
    }
}

fn tuple(set: &ValueSet, member: &ValueSetMember) -> Result<Vec<Option<pipeline::ir::KeyMatch>>, Failure> {
    let mut conditions = matches::read(&set.fields, &member.r#match)?.into_iter().peekable();
    let one = |key: u32| conditions.next_if(|condition| condition.key == key).map(|condition| condition.is);
    Ok((0..).take(set.fields.len()).map(one).collect())
}
