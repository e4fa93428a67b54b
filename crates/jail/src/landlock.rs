//! Builds and enforces the Landlock rules of a worker (Documentation/userspace-api/landlock.rst).
//!
//! The zygote cannot build the rules once for all workers. A rule applies to an inode and everything beneath it. When
//! the kernel walks up from a file in a worker's own tmpfs or `/proc`, it steps from the root of that mount to the
//! parent of its mount point. It never looks at the mount point's own directory, to which the zygote could have
//! attached a rule ("hidden mount points" in security/landlock/fs.c).

use std::os::fd::{AsFd, OwnedFd};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::sys::stat::fstat;
use nix::unistd::getppid;

use super::failure::NOT_REFUSED;
use super::program::{LandlockRules, Network, PathAccess};
use crate::sys;

/// Builds the ruleset in this mount namespace.
///
/// The ruleset handles every right that the ABI defines, and each rule must apply exactly as written. A right that the
/// kernel does not know is an error (`HardRequirement`), never a smaller ruleset. A worker with a loopback interface
/// may use all ports of that interface, but a rule covers a single port. The ruleset therefore does not handle ports in
/// that case, and the network namespace confines them.
fn build(rules: &LandlockRules, network: Network) -> Result<OwnedFd, Errno> {
    let abi = ABI::from(i32::try_from(rules.abi).map_err(|_| Errno::EINVAL)?);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))
        .map_err(refused)?;
    if network == Network::None && !AccessNet::from_all(abi).is_empty() {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(abi))
            .map_err(refused)?;
    }
    if !Scope::from_all(abi).is_empty() {
        ruleset = ruleset.scope(Scope::from_all(abi)).map_err(refused)?;
    }
    let mut created = ruleset.create().map_err(refused)?;
    for rule in &rules.paths {
        let path = PathFd::new(&rule.path).map_err(|_| Errno::last())?;
        // The kernel refuses a rule on a file if its rights apply to directories only.
        let rights = match fstat(path.as_fd())?.st_mode & libc::S_IFMT {
            libc::S_IFDIR => path_rights(rule.allow, abi),
            _ => path_rights(rule.allow, abi) & AccessFs::from_file(abi),
        };
        let beneath = PathBeneath::new(path, rights);
        created = created.add_rule(beneath).map_err(refused)?;
    }
    Option::<OwnedFd>::from(created).ok_or(Errno::ENOSYS)
}

/// Returns the access rights of one rule.
fn path_rights(allow: PathAccess, abi: ABI) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let all = AccessFs::from_all(abi);
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock;
    match allow {
        PathAccess::List => AccessFs::ReadDir.into(),
        PathAccess::Read => read,
        PathAccess::ReadExecute => read | AccessFs::Execute,
        PathAccess::ReadWriteFile => {
            let changes = AccessFs::Truncate | AccessFs::IoctlDev;
            AccessFs::ReadFile | AccessFs::WriteFile | (all & changes)
        }
        PathAccess::ReadWrite => all & !(devices | AccessFs::Execute),
        PathAccess::ReadWriteExecute => all & !devices,
    }
}

fn refused<E>(_: E) -> Errno {
    match Errno::last() {
        Errno::UnknownErrno => Errno::EINVAL,
        errno => errno,
    }
}

/// Enforces the rules on the calling thread.
pub fn enforce(rules: &LandlockRules, network: Network) -> Result<(), Errno> {
    sys::landlock::restrict_self(build(rules, network)?.as_fd())
}

/// The first Landlock ABI that can scope signals.
pub const ABI_SCOPE: u32 = 6;

/// Confines the signals of the caller, and of every process that it forks from now on, to these processes. Requires
/// [`ABI_SCOPE`] and `no_new_privs`.
pub fn scope_signals() -> Result<(), Errno> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::Signal)
        .map_err(refused)?;
    let created = ruleset.create().map_err(refused)?;
    let scope = Option::<OwnedFd>::from(created).ok_or(Errno::ENOSYS)?;
    sys::landlock::restrict_self(scope.as_fd())?;
    // The scoped process may later kill every process that it can signal. Check first that it cannot signal processes
    // outside the scope.
    match kill(getppid(), None) {
        Err(Errno::EPERM) => Ok(()),
        Ok(()) => Err(NOT_REFUSED),
        Err(errno) => Err(errno),
    }
}
