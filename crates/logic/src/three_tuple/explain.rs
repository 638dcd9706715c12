//! Explanations of decisions, for traces.

use fabric::{Batch, Text, Value, VersionId};
use packet::headers::protocol;

use super::decide::{Fate, Sender, Situation};
use super::fields::{End, Seen};
use super::statistics::Refused;

/// Explains a decision.
#[cold]
pub(super) fn remark(batch: &mut Batch<'_>, v: VersionId, it: &Situation<'_>, seen: Seen, fate: Fate) {
    let name = |protocol: u8, end: End| {
        let word = match protocol {
            protocol::TCP => "tcp",
            protocol::UDP => "udp",
            _ => "sctp",
        };
        Value::Text(Text::of(format_args!("{word} {} {}", end.ip(), end.port)))
    };
    let (what, end) = match seen {
        Seen::Flow { protocol, source, .. } if matches!(fate, Fate::Refused(_)) => {
            ("its source", Some((protocol, source)))
        }
        Seen::Flow { protocol, destination, .. } => ("its destination", Some((protocol, destination))),
        Seen::Error { protocol, source } => {
            ("the source of the packet that it reports", Some((protocol, source)))
        }
        _ => ("", None),
    };
    match (end, fate) {
        (Some((protocol, end)), Fate::To(port))
            if it.lookup.owner(end.address, protocol, end.port) == port =>
        {
            batch.remark(
                v,
                "{}, {}, is reserved for {}",
                &[Value::Word(what), name(protocol, end), Value::Port(port)],
            );
        }
        (Some((protocol, end)), Fate::To(port)) => {
            let values = [Value::Word(what), name(protocol, end), Value::Port(port)];
            batch.remark(v, "{}, {}, is not reserved: it goes to {}", &values);
        }
        (Some((protocol, end)), Fate::Refused(Refused::Source)) => {
            let values = [Value::Word(what), name(protocol, end), Value::Port(it.ingress)];
            batch.remark(v, "{}, {}, is not reserved for {}", &values);
        }
        (_, Fate::Refused(why)) => batch.remark(v, why.remark(), &[Value::Port(it.ingress)]),
        (_, Fate::Everyone) => {
            batch.remark(v, "it answers a neighbour's question: it goes to the host and all stacks", &[])
        }
        (None, Fate::To(port)) if matches!(seen, Seen::Later(_)) => {
            let text =
                "it is a fragment without ports: with its first one, or for lack of that, it goes to {}";
            batch.remark(v, text, &[Value::Port(port)]);
        }
        (None, Fate::To(port)) if it.sender == Sender::Stack => {
            let values = [Value::Port(it.ingress), Value::Port(port)];
            batch.remark(
                v,
                "it asks in the name of an address at which {} has a reservation: it goes to {}",
                &values,
            );
        }
        (None, Fate::To(port)) => {
            batch.remark(v, "no reservation concerns it: it goes to {}", &[Value::Port(port)])
        }
    }
}
