//! The limits, by name.

/// A limit or quota, by name.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LimitName {
    /// `limits.wall`
    Wall,
    /// `limits.cpu`
    Cpu,
    /// `limits.memory`
    Memory,
    /// `limits.pids`
    Pids,
    /// `limits.open_files`
    OpenFiles,
    /// `limits.file_size`
    FileSize,
    /// `limits.output`
    Output,
    /// `limits.cores`
    Cores,
    /// `filesystem.work_size`
    WorkSize,
    /// `filesystem.work_inodes`
    WorkInodes,
    /// `filesystem.tmp_size`
    TmpSize,
    /// `filesystem.tmp_inodes`
    TmpInodes,
}

impl LimitName {
    /// The dotted key in a policy file.
    pub fn key(self) -> &'static str {
        match self {
            Self::Wall => "limits.wall",
            Self::Cpu => "limits.cpu",
            Self::Memory => "limits.memory",
            Self::Pids => "limits.pids",
            Self::OpenFiles => "limits.open_files",
            Self::FileSize => "limits.file_size",
            Self::Output => "limits.output",
            Self::Cores => "limits.cores",
            Self::WorkSize => "filesystem.work_size",
            Self::WorkInodes => "filesystem.work_inodes",
            Self::TmpSize => "filesystem.tmp_size",
            Self::TmpInodes => "filesystem.tmp_inodes",
        }
    }
}
