//! Names of roles.

use std::fmt;

use p4runtime_proto::v1::Role;

/// Bytes of the longest name.
const MAX_NAME: usize = 256;

/// A role that a controller claims. Its former number, which the specification has deprecated, counts where the name
/// is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RoleName {
    Default,
    Number(u64),
    Name(String),
}

impl RoleName {
    pub(crate) fn new(name: &str, number: u64) -> Self {
        match (name, number) {
            ("", 0) => RoleName::Default,
            ("", number) => RoleName::Number(number),
            (name, _) => RoleName::Name(name.to_owned()),
        }
    }

    /// Returns the name in a claim.
    ///
    /// # Errors
    /// The reason why such a role cannot be claimed.
    #[allow(deprecated, reason = "controllers of version 1.2 send numbers")]
    pub(crate) fn claimed(role: Option<&Role>) -> Result<Self, String> {
        let Some(role) = role else { return Ok(RoleName::Default) };
        if role.name.len() > MAX_NAME {
            return Err(format!(
                "the role's name has {} bytes; expected at most {MAX_NAME}",
                role.name.len()
            ));
        }
        if role.config.as_ref().is_some_and(|config| *config != prost_types::Any::default()) {
            return Err(
                "role.config is set; the switch's configuration limits roles ([[bridge.p4.role]]): leave it \
                        unset"
                    .into(),
            );
        }
        Ok(Self::new(&role.name, role.id))
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoleName::Default => f.write_str("the default role"),
            RoleName::Number(number) => write!(f, "role {number}"),
            RoleName::Name(name) => write!(f, "role {name:?}"),
        }
    }
}
