//! The measured subjects and their names.

use std::fmt;

use sandfork_measure::Kind;

/// The numbers of fresh sandboxes in flight.
pub const IN_FLIGHT: [usize; 5] = [1, 2, 4, 8, 16];

/// The modules that a zygote, or a contestant like it, has preloaded.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Preload {
    Nothing,
    Numpy,
    NumpyAndPandas,
}

impl Preload {
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Numpy, Self::NumpyAndPandas];

    pub const fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Nothing => &[],
            Self::Numpy => &["numpy"],
            Self::NumpyAndPandas => &["numpy", "pandas"],
        }
    }
}

/// A measured subject. The table has the rows in this order; phases have their own table.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Subject {
    /// A fresh sandbox, from the call of `run` until the result is known.
    Result(Preload),
    /// Like `Result`, in a worker that was ready before the request.
    Ready,
    /// The same call until it returns, when nothing of the sandbox is left.
    Cycle(Preload),
    /// A fresh sandbox, whole cycle, with this many in flight: the total time divided by the
    /// number of sandboxes.
    Each(usize),
    /// A small cell in a live session.
    Call(Client),
    /// A new session of a warm zygote, until it is ready for use.
    Create(Client),
    /// Taking a snapshot of a session that holds this many megabytes.
    Snapshot(usize),
    /// A new session from a snapshot, until it is ready for use.
    ForkOfSession(usize),
    /// The rollback of a session to a snapshot.
    Rollback(usize),
    /// A small cell in a paused session, including its restore from disk.
    Resume(usize),
    /// Saving a snapshot to a file.
    Save(usize),
    /// A new session from a saved file.
    FromFile(usize),
    /// os.fork, exit and wait of an interpreter that holds this many megabytes, without a jail.
    OsFork(usize),
    /// `sandfork run -c pass`, a whole process with nothing warm.
    ColdRun,
    /// fork, exit and wait of an interpreter with these modules, without a jail.
    BareFork(Preload),
    /// `python3 -c` with only these imports.
    Python(Preload),
    /// `python3 -c pass` in the sandbox of an alternative.
    Peer(Peer),
    /// One phase of a fresh sandbox.
    Phase(Preload, &'static str),
}

impl Subject {
    pub const fn kind(self) -> Kind {
        match self {
            Self::Result(_)
            | Self::Ready
            | Self::Call(_)
            | Self::Create(_)
            | Self::ColdRun
            | Self::ForkOfSession(_)
            | Self::Rollback(_)
            | Self::Resume(_)
            | Self::FromFile(_) => Kind::Ours,
            Self::Cycle(_)
            | Self::Each(_)
            | Self::Phase(..)
            | Self::Snapshot(_)
            | Self::Save(_) => Kind::Detail,
            Self::Python(_) | Self::BareFork(_) | Self::OsFork(_) => Kind::Bare,
            Self::Peer(_) => Kind::Peer,
        }
    }
}

/// The client that makes the call.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Client {
    Rust,
    Python,
}

/// An alternative to Sandfork.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Peer {
    Bubblewrap,
    Sandlock,
    Firejail,
    Nsjail,
    Runc,
    Crun,
    Gvisor,
    DockerExec,
    DockerRun,
}

impl Peer {
    pub const ALL: [Self; 9] = [
        Self::Bubblewrap,
        Self::Sandlock,
        Self::Firejail,
        Self::Nsjail,
        Self::Runc,
        Self::Crun,
        Self::Gvisor,
        Self::DockerExec,
        Self::DockerRun,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Bubblewrap => "bubblewrap",
            Self::Sandlock => "sandlock",
            Self::Firejail => "firejail",
            Self::Nsjail => "nsjail",
            Self::Runc => "runc",
            Self::Crun => "crun",
            Self::Gvisor => "gVisor (runsc do)",
            Self::DockerExec => "docker exec, container running",
            Self::DockerRun => "docker run",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Result(_) => f.write_str("fresh sandbox, code to result")?,
            Self::Cycle(_) => f.write_str("fresh sandbox, whole cycle until reaped")?,
            Self::Ready => f.write_str("fresh sandbox from the pool, code to result")?,
            Self::Each(count) => write!(f, "fresh sandboxes, {count} in flight: time of each")?,
            Self::Phase(_, phase) => f.write_str(phase)?,
            Self::ColdRun => f.write_str("sandfork run -c pass, nothing warm")?,
            Self::BareFork(_) => f.write_str("bare fork+exit+wait")?,
            Self::Snapshot(size) => write!(f, "snapshot of a session, {size} MB")?,
            Self::ForkOfSession(size) => write!(f, "fork of a session, {size} MB")?,
            Self::Rollback(size) => write!(f, "rollback of a session, {size} MB")?,
            Self::Save(size) => write!(f, "saving a snapshot, {size} MB")?,
            Self::FromFile(size) => write!(f, "session from a saved snapshot, {size} MB")?,
            Self::Resume(size) => write!(f, "cell in a paused session, {size} MB")?,
            Self::OsFork(size) => write!(f, "bare fork+exit+wait, {size} MB")?,
            Self::Call(client) => write!(f, "cell in a live session, from {client:?}")?,
            Self::Create(client) => write!(f, "new session, from {client:?}")?,
            Self::Peer(peer) => write!(f, "{} + python3 -c pass", peer.name())?,
            Self::Python(preload) => match preload.modules().last() {
                None => f.write_str("python3 -c pass")?,
                Some(last) => write!(f, "python3 -c \"import {last}\"")?,
            },
        }
        match self {
            Self::Result(preload) | Self::Cycle(preload) | Self::BareFork(preload)
                if *preload != Preload::Nothing =>
            {
                write!(f, " ({})", preload.modules().join(", "))
            }
            _ => Ok(()),
        }
    }
}
