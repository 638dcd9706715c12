//! Buckets of groups: their actions are a set, executed in the standard's order.

use openflow::action::Action;
use openflow::error::ErrorCode;
use openflow::field::FieldId;

use super::{Lowered, Lowering, Owner, World};

/// The place of an action in the order of a set (OpenFlow 1.3.5, section 5.10); later ones are last.
fn rank(action: &Action) -> u8 {
    match action {
        Action::CopyTtlIn => 0,
        Action::PopVlan | Action::PopMpls(_) | Action::PopPbb => 1,
        Action::PushMpls(_) => 2,
        Action::PushPbb(_) => 3,
        Action::PushVlan(_) => 4,
        Action::CopyTtlOut => 5,
        Action::DecNwTtl | Action::DecTtlIds(_) | Action::DecMplsTtl => 6,
        Action::SetQueue(_) | Action::Enqueue(_) => 8,
        Action::Group(_) => 9,
        Action::Output(_) | Action::ResubmitTable(_) | Action::Resubmit(_) | Action::Track(_) => 10,
        _ => 7,
    }
}

/// Of several such actions, a set has only the last.
fn slot(action: &Action) -> Option<(std::mem::Discriminant<Action>, Option<FieldId>)> {
    match action {
        Action::SetField(set) => Some((std::mem::discriminant(action), set.0.field().map(|field| field.id))),
        action if rank(action) != 7 => Some((std::mem::discriminant(action), None)),
        // Nicira's actions are executed as they come.
        _ => None,
    }
}

/// Lowers a bucket.
pub(crate) fn bucket(world: &mut dyn World, owner: Owner, actions: &[Action]) -> Result<Lowered, ErrorCode> {
    let last = |at: usize, action: &Action| {
        let own = slot(action);
        own.is_none() || !actions.iter().skip(at + 1).any(|later| slot(later) == own)
    };
    let mut set: Vec<&Action> = actions
        .iter()
        .enumerate()
        .filter(|(at, action)| last(*at, action))
        .map(|(_, action)| action)
        .collect();
    set.sort_by_key(|action| rank(action));
    // A group in the set goes before an output, which is then ignored.
    if set.iter().any(|action| matches!(action, Action::Group(_))) {
        set.retain(|action| !matches!(action, Action::Output(_)));
    }
    let mut lowering = Lowering::new(world, owner);
    set.into_iter().try_for_each(|action| lowering.list(std::slice::from_ref(action)))?;
    Ok(lowering.finish())
}
