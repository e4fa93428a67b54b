//! The limits of a policy file, checked, each with the place where it was written.

use super::error::{PolicyError, PolicyProblem};
use super::field::Field;
use super::file::PolicyFile;
use super::limits::{Limits, Quota};
use super::merge::Merge;
use super::numbers::{Cores, Count};
use super::origin::{Located, Origin};
use super::units::{ByteSize, Milliseconds};
use crate::outcome::LimitName;

/// A number of a policy file in its base unit, and its conversion back to text.
trait Measure: Copy + ToString {
    fn amount(self) -> u64;
    fn from_amount(amount: u64) -> Self;
}

impl Measure for Milliseconds {
    fn amount(self) -> u64 {
        self.0
    }

    fn from_amount(amount: u64) -> Self {
        Self(amount)
    }
}

impl Measure for ByteSize {
    fn amount(self) -> u64 {
        self.0
    }

    fn from_amount(amount: u64) -> Self {
        Self(amount)
    }
}

impl Measure for Count {
    fn amount(self) -> u64 {
        u64::from(self.0)
    }

    fn from_amount(amount: u64) -> Self {
        Self(u32::try_from(amount).unwrap_or(u32::MAX))
    }
}

impl Measure for Cores {
    fn amount(self) -> u64 {
        u64::from(self.millicores())
    }

    fn from_amount(amount: u64) -> Self {
        Self::from_millicores(u32::try_from(amount).unwrap_or(u32::MAX))
    }
}

/// The limits of `[limits]` and the quotas of `[filesystem]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct LocatedLimits {
    pub(super) wall: Located<Milliseconds>,
    pub(super) cpu: Located<Milliseconds>,
    pub(super) memory: Located<ByteSize>,
    pub(super) pids: Located<Count>,
    pub(super) open_files: Located<Count>,
    pub(super) file_size: Located<ByteSize>,
    pub(super) output: Located<ByteSize>,
    pub(super) cores: Located<Cores>,
    pub(super) work_size: Located<ByteSize>,
    pub(super) work_inodes: Located<Count>,
    pub(super) tmp_size: Located<ByteSize>,
    pub(super) tmp_inodes: Located<Count>,
}

/// Reads one limit from the layers and checks its range.
fn limit<T: Measure>(
    layers: Merge,
    name: LimitName,
    get: impl Fn(&PolicyFile) -> Option<&Field<T>>,
) -> Result<Located<T>, PolicyError> {
    let limit = layers.scalar(name.key(), get)?;
    let (least, most) = name.range();
    if (least..=most).contains(&limit.value.amount()) {
        return Ok(limit);
    }
    let problem = PolicyProblem::OutOfRange {
        value: limit.value.to_string(),
        least: T::from_amount(least).to_string(),
        most: T::from_amount(most).to_string(),
    };
    Err(PolicyError::new(limit.origin, name.key(), problem))
}

impl LocatedLimits {
    /// Reads all limits from the layers.
    pub(super) fn new(layers: Merge) -> Result<Self, PolicyError> {
        use LimitName as Name;
        Ok(Self {
            wall: limit(layers, Name::Wall, |file| file.limits.wall.as_ref())?,
            cpu: limit(layers, Name::Cpu, |file| file.limits.cpu.as_ref())?,
            memory: limit(layers, Name::Memory, |file| file.limits.memory.as_ref())?,
            pids: limit(layers, Name::Pids, |file| file.limits.pids.as_ref())?,
            open_files: limit(layers, Name::OpenFiles, |file| {
                file.limits.open_files.as_ref()
            })?,
            file_size: limit(layers, Name::FileSize, |file| {
                file.limits.file_size.as_ref()
            })?,
            output: limit(layers, Name::Output, |file| file.limits.output.as_ref())?,
            cores: limit(layers, Name::Cores, |file| file.limits.cores.as_ref())?,
            work_size: limit(layers, Name::WorkSize, |file| {
                file.filesystem.work_size.as_ref()
            })?,
            work_inodes: limit(layers, Name::WorkInodes, |file| {
                file.filesystem.work_inodes.as_ref()
            })?,
            tmp_size: limit(layers, Name::TmpSize, |file| {
                file.filesystem.tmp_size.as_ref()
            })?,
            tmp_inodes: limit(layers, Name::TmpInodes, |file| {
                file.filesystem.tmp_inodes.as_ref()
            })?,
        })
    }

    /// Where a limit was written.
    pub(super) fn origin(&self, name: LimitName) -> &Origin {
        match name {
            LimitName::Wall => &self.wall.origin,
            LimitName::Cpu => &self.cpu.origin,
            LimitName::Memory => &self.memory.origin,
            LimitName::Pids => &self.pids.origin,
            LimitName::OpenFiles => &self.open_files.origin,
            LimitName::FileSize => &self.file_size.origin,
            LimitName::Output => &self.output.origin,
            LimitName::Cores => &self.cores.origin,
            LimitName::WorkSize => &self.work_size.origin,
            LimitName::WorkInodes => &self.work_inodes.origin,
            LimitName::TmpSize => &self.tmp_size.origin,
            LimitName::TmpInodes => &self.tmp_inodes.origin,
        }
    }

    /// The limits without their places.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            wall: self.wall.value.duration(),
            cpu: self.cpu.value.duration(),
            memory: self.memory.value.0,
            pids: self.pids.value.0,
            open_files: self.open_files.value.0,
            file_size: self.file_size.value.0,
            output: self.output.value.0,
            cores: self.cores.value,
        }
    }

    /// The quota of `/work`.
    pub(super) fn work(&self) -> Quota {
        Quota {
            size: self.work_size.value.0,
            inodes: u64::from(self.work_inodes.value.0),
        }
    }

    /// The quota of `/tmp`.
    pub(super) fn tmp(&self) -> Quota {
        Quota {
            size: self.tmp_size.value.0,
            inodes: u64::from(self.tmp_inodes.value.0),
        }
    }
}
