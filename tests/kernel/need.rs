//! What a test needs that a machine may lack. Decided by the host probe and by what the set-up
//! found, never by a call that fails in the test.

use std::path::Path;

use sandfork::Layer;
use sandfork::internals::host::{CgroupSupport, Controller};
use sandfork::internals::plan::{LayerState, assess};

use crate::hidden::hides_processes;
use crate::world::World;

/// Something that not every machine has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Need {
    /// Sandboxes of level `standard`.
    Sandbox,
    /// Cgroups, so sandboxes of level `full`.
    Cgroup,
    /// A limit of tasks around the supervisor itself, which the root of a hierarchy cannot have.
    Ceiling,
    /// A virtual environment with the packages that the set-up installs.
    Packages,
    /// A CPython of this minor version.
    Python(u8),
    /// A Python that Sandfork must refuse, of this version.
    OldPython(u8, u8),
    /// The machine language that the test speaks.
    X86_64,
    /// Copies of sessions.
    Snapshots,
    /// A directory of the host with the path of a guest's work directory, in which this user can make others.
    HostWork,
    /// A setting of a pid namespace that only root changes: `vm.memfd_noexec`.
    MemoryFileSetting,
    /// A `/proc` that shows processes which the user may not trace (`hidepid` of proc(5)).
    EveryProcess,
}

/// Why a test is not run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Skip {
    /// The machine or the user cannot do it.
    Forced(String),
    /// Set-up is missing, or the host is configured so.
    Mendable(String),
}

impl Need {
    /// Why the machine does not have it.
    pub fn missing_on(self, world: &World) -> Option<Skip> {
        let forced = |has: bool, reason: &str| (!has).then(|| Skip::Forced(reason.to_owned()));
        match self {
            Self::Sandbox => no_sandbox(world),
            Self::Cgroup => no_cgroup(world),
            Self::Ceiling => no_cgroup(world).or_else(|| {
                forced(
                    has_ceiling(&world.host.machine.cgroup),
                    "no cgroup of this process's can have `pids.max`",
                )
            }),
            Self::Packages => world.pythons.is_empty().then(|| {
                Skip::Mendable("no test environments: run `cargo xtask test envs`".to_owned())
            }),
            Self::Python(minor) => {
                let has = world.pythons.iter().any(|python| python.minor() == minor);
                forced(
                    has,
                    &format!("no CPython 3.{minor} that this user can execute"),
                )
            }
            Self::OldPython(major, minor) => {
                let has = world.too_old(major, minor).is_some();
                forced(
                    has,
                    &format!("no Python {major}.{minor} that this user can execute"),
                )
            }
            Self::MemoryFileSetting => forced(
                world.host.machine.user.is_root()
                    && Path::new("/proc/sys/vm/memfd_noexec").exists(),
                "not root, or no vm.memfd_noexec before Linux 6.3",
            ),
            Self::EveryProcess => forced(
                world.host.machine.user.is_root() || !hides_processes(),
                "/proc hides processes (hidepid)",
            ),
            Self::HostWork => forced(
                tempfile::tempdir_in("/work").is_ok(),
                "no /work in which this user can make a directory",
            ),
            Self::X86_64 => forced(cfg!(target_arch = "x86_64"), "not an x86-64 machine"),
            Self::Snapshots => no_sandbox(world)
                .or_else(|| Self::X86_64.missing_on(world))
                .or_else(|| {
                    let kernel = &world.host.machine.kernel;
                    let lists_pages = (kernel.major, kernel.minor) >= (6, 7);
                    forced(lists_pages, "no PAGEMAP_SCAN before Linux 6.7")
                }),
        }
    }
}

fn no_sandbox(world: &World) -> Option<Skip> {
    let assessments = assess(&world.host.machine);
    let absent = assessments.iter().find(|assessment| {
        assessment.layer != Layer::Cgroup && assessment.state == LayerState::Absent
    })?;
    Some(Skip::Mendable(format!(
        "layer {}: {}",
        absent.layer, absent.why
    )))
}

/// Root can make cgroups wherever there are any; an ordinary user has to be given some.
fn no_cgroup(world: &World) -> Option<Skip> {
    let CgroupSupport::Nowhere(_) = world.host.machine.cgroup else {
        return None;
    };
    let why = assess(&world.host.machine)
        .into_iter()
        .find(|it| it.layer == Layer::Cgroup)?
        .why;
    let reason = format!("layer cgroup: {why}");
    Some(if world.host.machine.user.is_root() {
        Skip::Mendable(reason)
    } else {
        Skip::Forced(reason)
    })
}

fn has_ceiling(cgroups: &CgroupSupport) -> bool {
    match cgroups {
        CgroupSupport::V1(controllers) => controllers.contains_key(&Controller::Pids),
        CgroupSupport::V2 { dir, .. } => dir.join("pids.max").exists(),
        CgroupSupport::Nowhere(_) => false,
    }
}
