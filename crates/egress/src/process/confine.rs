//! Gives up the rights of the process over files, ports, other processes and most system calls before it serves.

use std::fs::File;
use std::io::ErrorKind;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sandfork_jail::capabilities;
use sandfork_jail::identity::drop_to;
use sandfork_jail::program::{BpfInstruction, HostIds};
use sandfork_jail::sys::seccomp;

/// Confines the process irrevocably.
///
/// # Errors
/// Returns the step that failed, as part of a sentence.
pub fn confine(
    identity: Option<HostIds>,
    landlock_abi: u32,
    filter: &[BpfInstruction],
) -> Result<(), String> {
    let step = |what: &'static str| move |errno| format!("{what}: {errno}");
    // Each connection needs several descriptors.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(step("read the limits"))?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(step("raise the limit of files"))?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(step("forbid core files"))?;
    if let Some(ids) = identity {
        drop_to(ids).map_err(step("change the user"))?;
    }
    // An ordinary user's process may have capabilities too (`AmbientCapabilities=`).
    capabilities::drop_own().map_err(step("give up capabilities"))?;
    // Other processes of the same user must not read the credentials in this process's memory.
    prctl::set_dumpable(false).map_err(step("forbid tracing"))?;
    prctl::set_no_new_privs().map_err(step("give up new rights"))?;
    landlock(landlock_abi).map_err(|error| format!("enforce Landlock: {error}"))?;
    // The supervisor cannot verify Landlock from outside. Without it, every user could open the root directory.
    match File::open("/") {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
        _ => return Err("see that Landlock closes files".to_owned()),
    }
    seccomp::load(filter).map_err(step("load the filter"))
}

/// Denies access to every file and, as far as the kernel supports it, binding to TCP ports and reaching signals and
/// abstract sockets outside the process's domain.
fn landlock(abi: u32) -> Result<(), landlock::RulesetError> {
    let abi = ABI::from(i32::try_from(abi).unwrap_or(i32::MAX));
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    if AccessNet::from_all(abi).contains(AccessNet::BindTcp) {
        ruleset = ruleset.handle_access(AccessNet::BindTcp)?;
    }
    if !Scope::from_all(abi).is_empty() {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    ruleset.create()?.restrict_self().map(drop)
}
