//! Commands of operators, who know better for a while.

use crate::{BUCKETS, Bond, Mode};

/// Reasons for refusing a command, in Open vSwitch's words, which tools know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperateError {
    /// No member has this name.
    NoMember,
    /// A disabled member cannot be the active one.
    ActiveDisabled,
    /// A disabled member takes no buckets.
    MigrateDisabled,
    /// Only [`Mode::BalanceSlb`] lets buckets be moved by hand.
    NotSlb,
    /// The bucket is no number.
    BadHash,
}

impl std::fmt::Display for OperateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoMember => "no such member",
            Self::ActiveDisabled => "cannot make disabled member active",
            Self::MigrateDisabled => "cannot migrate to disabled member",
            Self::NotSlb => "not an SLB bond",
            Self::BadHash => "bad hash",
        })
    }
}

impl std::error::Error for OperateError {}

impl Bond {
    fn is_enabled(&self, member: &str) -> Result<bool, OperateError> {
        self.members.get(member).map(|member| member.is_enabled).ok_or(OperateError::NoMember)
    }

    /// Makes a member the active one until it fails; returns whether that is a change.
    ///
    /// # Errors
    /// There is no such member, or it is disabled.
    pub fn choose(&mut self, member: &str) -> Result<bool, OperateError> {
        if !self.is_enabled(member)? {
            return Err(OperateError::ActiveDisabled);
        }
        let is_change = self.active.as_deref() != Some(member);
        if is_change {
            self.set_active(member);
        }
        Ok(is_change)
    }

    /// Enables or disables a member until its link says otherwise.
    ///
    /// # Errors
    /// There is no such member.
    pub fn force(&mut self, member: &str, enable: bool) -> Result<(), OperateError> {
        self.is_enabled(member)?;
        self.enable(member, enable);
        Ok(())
    }

    /// Moves a bucket, given by its number in decimal digits, to a member.
    ///
    /// # Errors
    /// The mode has no buckets to move by hand, the number is none, or the member cannot take it.
    pub fn migrate(&mut self, hash: &str, member: &str) -> Result<(), OperateError> {
        if self.settings.mode != Mode::BalanceSlb {
            return Err(OperateError::NotSlb);
        }
        let number = hash.parse::<u32>().map_err(|_| OperateError::BadHash)?;
        if !self.is_enabled(member)? {
            return Err(OperateError::MigrateDisabled);
        }
        if let Some(bucket) = self.buckets.get_mut(number as usize % BUCKETS) {
            bucket.member = Some(member.to_owned());
        }
        Ok(())
    }
}
