//! Why a policy cannot be enforced on a host.

use crate::error::{Cause, ErrorKind};
use std::fmt;
use std::path::PathBuf;

use super::obstacle::Obstacle;
use super::seccomp::SeccompError;
use crate::host::KeptKind;
use crate::policy::{Level, Origin};
use sandfork_jail::control::MAX_PRELOADED;

/// Why there is no plan. Each error names the problem, the place where it was written, and the
/// remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The level that the policy requires is not available here.
    #[error("{origin} requires level `{required}`, which this host cannot give: {}{}", sentences(.obstacles), instead(*.available))]
    LevelUnavailable {
        /// The required level.
        required: Level,
        /// Where the policy requires it.
        origin: Origin,
        /// The layers that do not hold, each with its cause and its remedy.
        obstacles: Vec<Obstacle>,
        /// The best available level, if any.
        available: Option<Level>,
    },
    /// A limit is above what the host has.
    #[error("{}`{key}` is {wanted}, more than this host's {available}: {remedy}", .origin.lead())]
    QuotaAboveHost {
        /// Where the limit was written.
        origin: Origin,
        /// The dotted key.
        key: &'static str,
        /// The limit, as the policy writes it.
        wanted: String,
        /// The amount that the host has, and of which resource.
        available: String,
        /// A value that the host allows, and how to raise the host's.
        remedy: String,
    },
    /// A path of the policy does not exist.
    #[error(
        "{}{key}: {path} cannot be found ({cause}): create it, or remove it from the policy",
        .origin.lead(),
        path = path.display()
    )]
    PathMissing {
        /// Where the path was written.
        origin: Origin,
        /// The dotted key.
        key: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        cause: String,
    },
    /// A path of the policy is of the wrong kind for its use.
    #[error("{}{key}: {path} is {found}, and {needed} is needed here", .origin.lead(), path = path.display())]
    PathKind {
        /// Where the path was written.
        origin: Origin,
        /// The dotted key.
        key: &'static str,
        /// The path.
        path: PathBuf,
        /// The kind that was found.
        found: &'static str,
        /// The kind that is needed.
        needed: &'static str,
    },
    /// The guests of root cannot read a directory of code.
    #[error(
        "{}{key}: {path} is root's alone, and root's guests are another user: let others read it and what is in it, as by \
         `chmod -R go+rX {path}`",
        .origin.lead(), path = path.display()
    )]
    ClosedDirectory {
        /// Where the path was written.
        origin: Origin,
        /// The dotted key.
        key: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// A path would be hidden by the sandbox's own files, or would hide them.
    #[error(
        "{place}: {path} cannot be shown, because the sandbox has its own {own}: name another path, \
         or copy what is needed to one", path = path.display()
    )]
    Clash {
        /// The origin of the request to show the path.
        place: Place,
        /// The path.
        path: PathBuf,
        /// The sandbox's own path.
        own: &'static str,
    },
    /// A path would be both writable and a source of executable code.
    #[error(
        "{place}: {path} is where code is run from, and cannot be writable: name a directory of \
         data in `filesystem.write`", path = path.display()
    )]
    WritableCode {
        /// The origin of the request to show the path.
        place: Place,
        /// The path.
        path: PathBuf,
    },
    /// Guests could exchange what later starts run or believe.
    #[error(
        "{place}: {path} cannot be writable, because guests could exchange {entry}, by which later starts find {what}: \
         make only a directory of data in it writable, or move {what} out of it",
        path = path.display(), entry = entry.display()
    )]
    WritableKept {
        /// The origin of the request to show the path.
        place: Place,
        /// The path.
        path: PathBuf,
        /// What later starts find.
        what: KeptKind,
        /// What they find it by, without links.
        entry: PathBuf,
    },
    /// Guests could exchange what the caller imports.
    #[error(
        "{place}: {path} cannot be writable, because guests could exchange {entry}, from which the caller imports \
         modules: make only a directory of data in it writable, or take it out of the caller's `sys.path`",
        path = path.display(), entry = entry.display()
    )]
    WritableImports {
        /// The origin of the request to show the path.
        place: Place,
        /// The path.
        path: PathBuf,
        /// What the caller finds modules by, without links.
        entry: PathBuf,
    },
    /// Guests could put a module in the place of one that the caller imports.
    #[error(
        "{place}: {path} cannot be writable, because the caller imports modules from {within}, and guests could make it \
         the module `{module}` {instead}: give it another name, or take {within} out of the caller's `sys.path`",
        path = path.display(), within = within.display(),
        instead = shadowed.as_ref().map_or("with which Sandfork reads values".to_owned(), |file| {
            format!("in place of {}", file.display())
        })
    )]
    WritableModule {
        /// The origin of the request to show the path.
        place: Place,
        /// The path.
        path: PathBuf,
        /// What the caller finds modules by, without links.
        within: PathBuf,
        /// The module's name.
        module: Box<str>,
        /// The file of the caller's own module. `None` for one that the caller need not have.
        shadowed: Option<PathBuf>,
    },
    /// A path lies in what later starts run or believe.
    #[error(
        "{place}: {path} cannot be writable, because it lies in {within}, where later starts find {what}: name a \
         directory of data outside of it in `filesystem.write`",
        path = path.display(), within = within.display()
    )]
    WritableInKept {
        /// The origin of the request to show the path.
        place: Place,
        /// The path.
        path: PathBuf,
        /// What later starts find.
        what: KeptKind,
        /// Where they find it, without links.
        within: PathBuf,
    },
    /// A path would be read-only in a writable one.
    #[error(
        "{place}: {path} is to be read-only, and lies in {above}, which `filesystem.write` makes writable: remove one \
         of the two", path = path.display(), above = above.display()
    )]
    ReadOnlyInWritable {
        /// The origin of the request to show the path.
        place: Place,
        /// The path.
        path: PathBuf,
        /// The writable one, without links.
        above: PathBuf,
    },
    /// A path of the policy leads through a link that guests can replace.
    #[error(
        "{place}: {path} leads to {resolved}, by a link where `filesystem.write` lets guests make links: name {resolved}, \
         if that is what the sandbox is to show", path = path.display(), resolved = resolved.display()
    )]
    WritableLink {
        /// The origin of the request to show the path.
        place: Place,
        /// The path.
        path: PathBuf,
        /// Where it leads.
        resolved: PathBuf,
    },
    /// Programs in the work directory need a mount of the worker's own.
    #[error(
        "{}`filesystem.work_exec` cannot be had at level `landlock`, where the work directory is one of \
         the host's: set it to false, or run where level `standard` can be had",
        .origin.lead()
    )]
    WorkExecWithoutMounts {
        /// Where the policy asks for it.
        origin: Origin,
    },
    /// A policy may not allow or deny this system call.
    #[error("{}{source}", .origin.lead())]
    Syscall {
        /// Where its name was written.
        origin: Origin,
        /// The reason.
        source: SeccompError,
    },
    /// A network is asked for, and the only one is the host's.
    #[error(
        "{}`network.mode` is \"{mode}\", and at level `landlock`, the best of this host, the only \
         loopback interface is the host's own: allow user namespaces (`sandfork doctor` tells how), or do \
         without a network (`--set network.mode=none`)",
        .origin.lead()
    )]
    NetworkOfTheHost {
        /// The mode.
        mode: &'static str,
        /// Where the mode was written.
        origin: Origin,
    },
    /// A secret of the policy is not there.
    #[error(
        "{}${{{name}}} is not set in your environment: export {name}, or remove the reference from the policy",
        .origin.lead()
    )]
    SecretUnset {
        /// Where the reference was written.
        origin: Origin,
        /// The variable.
        name: String,
    },
    /// More ports than a worker has sockets for.
    #[error(
        "{}`network.allow` has more than 36 different ports, or hosts with ports from 1024 on: remove some, or \
         reach them through a proxy of your own (`network.proxy`)",
        .origin.lead()
    )]
    TooManyPorts {
        /// Where the mode was written.
        origin: Origin,
    },
    /// The names of the modules to preload are too long for the zygote's report.
    #[error(
        "{}`python.preload` is too long: its names have {bytes} bytes with their quotes and commas, and at most \
         {MAX_PRELOADED} fit into the report of what was preloaded: name packages without their submodules, or a \
         module of your own that imports them", .origin.lead()
    )]
    PreloadTooLong {
        /// Where the last module was written.
        origin: Origin,
        /// The length of the names.
        bytes: usize,
    },
    /// There are no filters for this processor.
    #[error("Sandfork has no system call table for this processor: run on x86_64 or aarch64")]
    UnknownArchitecture,
    /// Without its own mounts the guest runs as an unprivileged user, which must reach the
    /// interpreter at its own path.
    #[error(
        "the interpreter {path} cannot be reached by the unprivileged user that the guest runs as \
         at level `landlock`: install one where every user can run it, such as /usr/bin/python3",
        path = path.display()
    )]
    InterpreterOutOfReach {
        /// The binary.
        path: PathBuf,
    },
    /// The policy shows the interpreter behind a directory that the guest cannot enter.
    #[error(
        "{place}: {path} has the interpreter in it, behind {closed}, which the unprivileged user that the guest runs as \
         cannot enter: name what the guest needs of {closed}", path = path.display(), closed = closed.display()
    )]
    InterpreterClosed {
        /// The origin of the request to show the path.
        place: Place,
        /// The path.
        path: PathBuf,
        /// What is closed.
        closed: PathBuf,
    },
}

/// The origin of a request to show a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// A policy names it.
    Policy(Origin),
    /// The interpreter needs it.
    Interpreter,
    /// It is one of the system's programs and libraries.
    System,
    /// It is the script that is about to run.
    Script,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(origin) => origin.fmt(f),
            Self::Interpreter => f.write_str("the interpreter"),
            Self::System => f.write_str("the system"),
            Self::Script => f.write_str("the script"),
        }
    }
}

fn sentences(obstacles: &[Obstacle]) -> String {
    let sentences: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
    sentences.join("; ")
}

fn instead(available: Option<Level>) -> String {
    let accept = |level| {
        format!("; or accept the weaker level `{level}` (`--set assurance.require={level}`)")
    };
    available.map(accept).unwrap_or_default()
}

impl Cause for PlanError {
    fn kind(&self) -> ErrorKind {
        match self {
            // Wrong on every host.
            Self::Syscall { .. } | Self::TooManyPorts { .. } | Self::PreloadTooLong { .. } => {
                ErrorKind::Policy
            }
            _ => ErrorKind::Host,
        }
    }
}
