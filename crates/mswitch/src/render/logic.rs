//! Logics.

use control::proto;

use super::pairs;

/// `mswitch logic show`.
pub(crate) fn show(logic: &proto::Logic) -> String {
    let params = if logic.params.is_empty() { "none".into() } else { pairs(&logic.params) };
    format!("logic       {}\nparameters  {params}\n", logic.name)
}

/// `mswitch logic list`: each with its parameters.
pub(crate) fn list(logics: &[proto::LogicType]) -> String {
    let mut out = String::new();
    for logic in logics {
        out += &format!("{}: {}\n", logic.name, logic.summary);
        for param in &logic.params {
            out += &format!("    {}: {} (default: {})\n", param.name, param.summary, param.default);
        }
    }
    out
}
