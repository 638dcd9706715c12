//! Filters in tcpdump's language, compiled by libpcap ([`libpcap::compile`]).

use control::proto::FilterInstruction;

/// The reason why an expression does not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilterError {
    expression: String,
    reason: String,
}

impl std::fmt::Display for FilterError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { expression, reason } = self;
        write!(out, "--filter `{expression}`: {reason}; `man 7 pcap-filter` describes the language")
    }
}

/// Compiles an expression for Ethernet frames.
pub(super) fn compile(expression: &str) -> Result<Vec<FilterInstruction>, FilterError> {
    let code = libpcap::compile(expression)
        .map_err(|error| FilterError { expression: expression.into(), reason: error.reason })?;
    let instruction = |i: packet::bpf::Instruction| FilterInstruction {
        code: i.code.into(),
        jt: i.jt.into(),
        jf: i.jf.into(),
        k: i.k,
    };
    Ok(code.into_iter().map(instruction).collect())
}

#[cfg(test)]
mod tests;
