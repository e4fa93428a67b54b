//! What a test requires and a machine may lack. The host probe and the set-up decide, never a call that
//! fails in the test.

use std::path::Path;

use sandfork::Layer;
use sandfork::internals::host::{CgroupSupport, Controller};
use sandfork::internals::plan::{LayerState, assess};

use crate::hidden::hides_processes;
use crate::world::World;

/// A requirement that not every machine meets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Need {
    /// Sandboxes of level `standard`.
    Sandbox,
    /// Cgroups, and so sandboxes of level `full`.
    Cgroup,
    /// A task limit around the supervisor itself, which is impossible in the root of a hierarchy.
    Ceiling,
    /// A virtual environment with the packages that the set-up installs.
    Packages,
    /// A CPython of this minor version.
    Python(u8),
    /// A Python of this version, which Sandfork must refuse.
    OldPython(u8, u8),
    /// An x86-64 CPU, whose instructions the test contains.
    X86_64,
    /// Snapshots of sessions.
    Snapshots,
    /// A host directory at the path of the guest's work directory, in which this user can create directories.
    HostWork,
    /// `vm.memfd_noexec`, a setting of a pid namespace that only root can change.
    MemoryFileSetting,
    /// A `/proc` that also shows processes that the user may not trace (`hidepid` of proc(5)).
    EveryProcess,
}

/// Why a test is skipped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Skip {
    /// The machine or the user lacks it.
    Forced(String),
    /// The set-up is missing, or the host's configuration forbids it.
    Mendable(String),
}

impl Need {
    /// Returns why the machine does not meet the requirement, if so.
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

/// Root can create cgroups wherever the kernel has them; an ordinary user needs a delegated one.
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
