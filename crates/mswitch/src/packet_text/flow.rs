//! Flows as in `ovs-appctl ofproto/trace`: `in_port=vm1,dl_vlan=10,tcp,nw_dst=10.0.0.2,tp_dst=80`.
//!
//! Commas or blanks separate items. An item is `KEY=VALUE` or a protocol keyword.

use super::Read;
use super::fields::Fields;

/// Parses a flow.
pub(super) fn read(text: &str) -> Read {
    let mut fields = Fields::default();
    let items = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|item| !item.is_empty());
    for item in items {
        match item.split_once('=') {
            Some((key, "")) => return Err(format!("`{key}` has no value")),
            Some((key, value)) => fields.set(key, value)?,
            None => fields.choose(item)?,
        }
    }
    Ok(fields)
}
