//! Names of offloads.

use fabric::Caps;

/// Lists offloads by name, for users.
pub(crate) fn offload_names(caps: &Caps) -> String {
    let names = [(caps.csum, "csum"), (caps.tso4, "tso4"), (caps.tso6, "tso6"), (caps.uso, "uso")];
    let on: Vec<_> = names.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    if on.is_empty() { "none".to_owned() } else { on.join(",") }
}
