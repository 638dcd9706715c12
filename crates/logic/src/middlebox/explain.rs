//! What users see of the logic: the table of instances, and the explanation of a packet's way.

use fabric::{Batch, Text, Value, VersionId};
use packet::Conversation;

use super::{Middlebox, Verdict, buckets};
use crate::Table;

impl Middlebox {
    /// Returns the table of instances: the port, whether the bridge has it, the list of its function, and the buckets
    /// in use.
    pub(super) fn instances(&self) -> Table {
        let now = fabric::clock::seconds();
        let mut rows = Vec::new();
        for function in &self.functions {
            let in_use: Vec<_> =
                function.buckets.iter().filter(|(_, bucket)| bucket.is_active(now, self.idle)).collect();
            for slot in &function.instances {
                let buckets = match function.instances.len() {
                    1 => buckets::BUCKETS,
                    _ => in_use.iter().filter(|(_, bucket)| bucket.slot == *slot).count(),
                };
                let port = match self.ports.instance(*slot) {
                    Some(_) => self.ports.name(*slot).to_owned(),
                    None => format!("{} (no such port)", self.ports.name(*slot)),
                };
                rows.push(vec![port, function.list.to_string(), buckets.to_string()]);
            }
        }
        let columns = ["port", "list", "buckets"].map(str::to_owned).to_vec();
        Table { name: "instances".into(), columns, rows, capacity: super::MAX_INSTANCES as u64 }
    }

    /// Explains what is found about a packet.
    #[cold]
    pub(super) fn remark(
        &self,
        batch: &mut Batch<'_>,
        v: VersionId,
        packet: Option<&Conversation>,
        verdict: Verdict,
    ) {
        if verdict == Verdict::Returned {
            let from = [Value::Port(batch.ingress())];
            return batch.remark(v, "{} runs a function, whose packets go to no function", &from);
        }
        let Some(packet) = packet else {
            return batch.remark(v, "it is neither TCP nor UDP, or too short for port numbers", &[]);
        };
        let Some(function) = self.functions.get(usize::from(self.rules.find(packet))) else {
            if packet.fragment {
                return batch.remark(v, "no function asks for fragments", &[]);
            }
            let ports = [Value::Number(packet.source.into()), Value::Number(packet.destination.into())];
            return batch.remark(v, "no function asks for port {} or {}", &ports);
        };
        let list = Value::Text(Text::of(&function.list));
        match function.instances.len() {
            1 => batch.remark(v, "the function for {} has one instance", &[list]),
            instances => {
                let [instances, bucket] =
                    [instances as u64, buckets::number(packet.hash()).into()].map(Value::Number);
                let text = "the function for {} has {} instances; the conversation is in bucket {}";
                batch.remark(v, text, &[list, instances, bucket]);
            }
        }
        if verdict == Verdict::WithoutInstance {
            batch.remark(v, "no instance is up", &[]);
        }
    }
}
