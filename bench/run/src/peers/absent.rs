//! Switches that the comparison has and this benchmark cannot drive: looked for, so that a report says what is missing.

use super::ovs::on_path;

/// A switch without a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsupported {
    /// Name on the command line and in reports.
    pub name: &'static str,
    /// Its program.
    pub program: &'static str,
}

impl Unsupported {
    /// Whether its program is on the PATH.
    pub fn installed(&self) -> bool {
        on_path(self.program)
    }

    /// Why it is not measured.
    pub fn reason(&self) -> String {
        if self.installed() {
            format!("`{}` is on the PATH, but this version cannot drive it", self.program)
        } else {
            format!("no `{}` on the PATH", self.program)
        }
    }
}

/// All of them.
pub fn unsupported() -> Vec<Unsupported> {
    let of = |(name, program)| Unsupported { name, program };
    [
        ("vpp", "vpp"),
        ("snabb", "snabb"),
        ("bess", "bessd"),
        ("fastclick", "click"),
        ("t4p4s", "t4p4s"),
        ("vale", "vale-ctl"),
    ]
    .map(of)
    .into()
}
