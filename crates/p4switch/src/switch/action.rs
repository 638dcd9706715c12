//! Actions with arguments.

use p4::info::proto::action_ref::Scope;
use p4runtime_proto::v1::{Action, action};
use pipeline::ir::{ActionCall, Constant, Type};

use crate::schema::{self, Parameter};
use crate::{Failure, bytestring};

/// What an action is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// An entry, or a member of a profile.
    Entry,
    /// A table's default.
    Default,
}

/// Reads an action with its arguments.
pub(super) fn read(known: &[schema::Action], given: &Action, place: Place) -> Result<ActionCall, Failure> {
    let Some(schema) = known.iter().find(|action| action.id == given.action_id) else {
        let names: Vec<_> = known.iter().map(|action| format!("{} {}", action.id, action.name)).collect();
        return Err(Failure::invalid(format!(
            "action {} is not one of its actions (known: {})",
            given.action_id,
            names.join(", ")
        )));
    };
    let in_action = |failure: Failure| failure.at(format_args!("action {}", schema.name));
    match (schema.scope, place) {
        (Scope::DefaultOnly, Place::Entry) => {
            return Err(in_action(Failure::denied("only the default may have it")));
        }
        (Scope::TableOnly, Place::Default) => {
            return Err(in_action(Failure::denied("the default cannot have it")));
        }
        _ => {}
    }
    if !schema.supported {
        return Err(in_action(Failure::unimplemented("its parameters are strings or structs")));
    }
    arguments(schema, given).map_err(in_action)
}

fn arguments(schema: &schema::Action, given: &Action) -> Result<ActionCall, Failure> {
    let mut args = Vec::with_capacity(schema.params.len());
    for (near, param) in schema.params.iter().enumerate() {
        let found = match given.params.get(near) {
            Some(found) if found.param_id == param.id => Some(found),
            _ => given.params.iter().find(|found| found.param_id == param.id),
        };
        let Some(found) = found else {
            return Err(Failure::invalid(format!("parameter {} {} is missing", param.id, param.name)));
        };
        let value = argument(param, &found.value)
            .map_err(|failure| failure.at(format_args!("parameter {}", param.name)))?;
        args.push(value);
    }
    if given.params.len() != schema.params.len() {
        let is_known = |param: &&action::Param| schema.params.iter().any(|p| p.id == param.param_id);
        return Err(Failure::invalid(match given.params.iter().find(|param| !is_known(param)) {
            Some(param) => format!("it has no parameter {}", param.param_id),
            None => "a parameter is given twice".to_owned(),
        }));
    }
    Ok(ActionCall { action: schema.ir, args: args.into() })
}

fn argument(param: &Parameter, bytes: &[u8]) -> Result<Constant, Failure> {
    let value = match param.ty {
        Type::Int(width) => bytestring::signed(bytes, param.width)?.sign_extend(width),
        ty => bytestring::unsigned(bytes, param.width)?.resize(ty.width()),
    };
    Ok(Constant { ty: param.ty, value })
}

/// Writes an action.
pub(super) fn write(schema: &schema::Action, call: &ActionCall) -> Action {
    let param = |(param, arg): (&Parameter, &Constant)| action::Param {
        param_id: param.id,
        value: match arg.ty {
            Type::Int(_) => bytestring::of_signed(&arg.value),
            _ => bytestring::of(&arg.value),
        },
    };
    Action { action_id: schema.id, params: schema.params.iter().zip(call.args.iter()).map(param).collect() }
}
