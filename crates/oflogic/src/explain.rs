//! Traces of packets: matching flows and their effects.

use fabric::{Batch, DropReason, Rest, SwitchLogic, Text, Value, VersionId};
use match_action::WINDOW;
use ofagent::SharedSwitch;
use openflow::PortNo;

use crate::effect::EffectRef;
use crate::plane::Plane;
use crate::tree::Gate;

/// Pieces of a line in a remark.
const PIECES: usize = 4;

/// Decides for a batch and explains it. Packets that are only rehearsed meet the interpreter, which tells of each flow;
/// received packets take the normal path, and only their fate is recorded.
pub(crate) fn explain(plane: &Plane, switch: &SharedSwitch, batch: &mut Batch<'_>) -> bool {
    if !plane.intercepts(batch) {
        return explain_others(plane, switch, batch, false);
    }
    let mut rest = Rest::default();
    let gate = plane.intercept(batch);
    if let Some(mut others) = batch.rest(&mut rest) {
        explain_others(plane, switch, &mut others, gate == Gate::Learning);
    }
    batch.end_of_stages(rest);
    true
}

/// [`explain`] of packets that are not intercepted. `is_mute`: nothing is forwarded.
fn explain_others(plane: &Plane, switch: &SharedSwitch, batch: &mut Batch<'_>, is_mute: bool) -> bool {
    if plane.learns_only(batch) {
        for v in batch.packets() {
            batch.remark(v, "the bridge forwards it without flows", &[]);
        }
        let (ports, local) = (plane.ports.load(), plane.locals.get(batch.worker()));
        return match (ports.restricts_all() || is_mute, local) {
            (true, Some(local)) => {
                plane.forward_each(local, &ports, batch, is_mute);
                true
            }
            _ => plane.learning.explain(batch),
        };
    }
    if !batch.is_rehearsal() {
        match is_mute {
            true => plane.learn(batch, switch),
            false => plane.decide(batch, switch),
        }
        return true;
    }
    rehearse(plane, switch, batch, is_mute);
    true
}

fn rehearse(plane: &Plane, switch: &SharedSwitch, batch: &mut Batch<'_>, is_mute: bool) {
    let Some(local) = plane.locals.get(batch.worker()) else {
        return batch.packets().for_each(|v| batch.discard(v, DropReason::LogicFault));
    };
    let ports = plane.ports.load();
    let Some(mut executor) = plane.executor(batch, local, &ports) else { return };
    executor.is_mute = is_mute;
    executor.take_pdus(batch);
    let security = batch.security();
    for v in batch.packets() {
        if !batch.is_open(v) {
            continue;
        }
        if security.is_some_and(|security| !logic::admits(security, batch, v)) {
            continue;
        }
        batch.pull(v, WINDOW);
        match executor.number {
            number if number == PortNo::ANY.0 => batch.remark(v, "it comes from no port", &[]),
            number if number == PortNo::LOCAL.0 => batch.remark(v, "it comes from port LOCAL", &[]),
            number => batch.remark(v, "it comes from port {}", &[Value::Number(number.into())]),
        }
        let (front, len) = (batch.header(v), batch.len(v));
        let rehearsal = switch.with(|switch, now| switch.rehearse(PortNo(executor.number), front, len, now));
        for step in &rehearsal.steps {
            line(batch, v, &step.to_string());
        }
        executor.execute(batch, v, rehearsal.effects.iter().map(EffectRef::of_interpreter));
    }
    plane.finish(&executor, batch, |learning, left| _ = learning.explain(left));
}

/// Remarks a line, or as much of it as a remark has room for.
fn line(batch: &mut Batch<'_>, v: VersionId, text: &str) {
    let mut pieces = text.as_bytes().chunks(Text::MAX).map(|piece| Value::Text(Text::new(piece)));
    let values: [Value; PIECES] = std::array::from_fn(|_| pieces.next().unwrap_or(Value::None));
    let is_cut = pieces.next().is_some();
    batch.remark(v, if is_cut { "{}{}{}{}..." } else { "{}{}{}{}" }, &values);
}
