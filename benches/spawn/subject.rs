//! The measured things, by name.

use std::fmt;

use sandfork_measure::Kind;

/// The numbers of fresh sandboxes in flight.
pub const IN_FLIGHT: [usize; 5] = [1, 2, 4, 8, 16];

/// The modules that a zygote, or a contestant like it, has preloaded.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
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

/// One measured thing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Subject {
    /// A fresh sandbox, from the call of `run` until the result is known.
    Result(Preload),
    /// The same call until it returns: nothing of the sandbox is left.
    Cycle(Preload),
    /// Like `Result`, in a worker that was ready before the request.
    Ready,
    /// A fresh sandbox, whole cycle, with this many in flight: the time of all, divided by their
    /// number.
    Each(usize),
    /// One phase of that call.
    Phase(Preload, &'static str),
    /// `sandfork run -c pass`, a whole process with nothing warm.
    ColdRun,
    /// `python3 -c` with only these imports.
    Python(Preload),
    /// fork, exit and wait of an interpreter with these modules, no jail.
    BareFork(Preload),
    /// `python3 -c pass` in the sandbox of an alternative.
    Peer(Peer),
    /// A small cell in a live session.
    Call(Client),
    /// A new session of a warm zygote, until it is ready for use.
    Create(Client),
}

impl Subject {
    /// All rows of the table, in order. Phases have their own table.
    pub fn in_order() -> impl Iterator<Item = Self> {
        let each = |of: fn(Preload) -> Self| Preload::ALL.map(of);
        each(Self::Result)
            .into_iter()
            .chain([Self::Ready])
            .chain(each(Self::Cycle))
            .chain(IN_FLIGHT.map(Self::Each))
            .chain(Client::ALL.map(Self::Call))
            .chain(Client::ALL.map(Self::Create))
            .chain([Self::ColdRun])
            .chain(each(Self::BareFork))
            .chain(each(Self::Python))
            .chain(Peer::ALL.map(Self::Peer))
    }

    pub const fn kind(self) -> Kind {
        match self {
            Self::Result(_) | Self::Ready | Self::Call(_) | Self::Create(_) | Self::ColdRun => {
                Kind::Ours
            }
            Self::Cycle(_) | Self::Each(_) | Self::Phase(..) => Kind::Detail,
            Self::Python(_) | Self::BareFork(_) => Kind::Bare,
            Self::Peer(_) => Kind::Peer,
        }
    }
}

/// The client that makes the call.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Client {
    Rust,
    Python,
}

impl Client {
    pub const ALL: [Self; 2] = [Self::Rust, Self::Python];

    const fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Python => "Python",
        }
    }
}

/// An alternative to Sandfork.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
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
            Self::Result(preload) => write!(f, "fresh sandbox, code to result{}", With(*preload)),
            Self::Cycle(preload) => {
                write!(
                    f,
                    "fresh sandbox, whole cycle until reaped{}",
                    With(*preload)
                )
            }
            Self::Ready => f.write_str("fresh sandbox from the pool, code to result"),
            Self::Each(in_flight) => {
                write!(f, "fresh sandboxes, {in_flight} in flight: time of each")
            }
            Self::Phase(preload, phase) => write!(f, "{phase}{}", With(*preload)),
            Self::ColdRun => f.write_str("sandfork run -c pass, nothing warm"),
            Self::Python(Preload::Nothing) => f.write_str("python3 -c pass"),
            Self::Python(preload) => {
                let last = preload.modules().last().copied().unwrap_or_default();
                write!(f, "python3 -c \"import {last}\"")
            }
            Self::BareFork(preload) => write!(f, "bare fork+exit+wait{}", With(*preload)),
            Self::Call(client) => write!(f, "cell in a live session, from {}", client.name()),
            Self::Create(client) => write!(f, "new session, from {}", client.name()),
            Self::Peer(peer) => write!(f, "{} + python3 -c pass", peer.name()),
        }
    }
}

/// ` (numpy, pandas)`, or nothing.
struct With(Preload);

impl fmt::Display for With {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.modules() {
            [] => Ok(()),
            modules => write!(f, " ({})", modules.join(", ")),
        }
    }
}
