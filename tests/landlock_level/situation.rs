//! Simulates a host that forbids namespaces, or one that hides processes: a seccomp filter refuses the calls that
//! Docker's default profile refuses, for a helper process and everything that it starts.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, exit};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// The first argument of the helper. The user and the program follow.
pub const FLAG: &str = "--on-a-host-without-namespaces";

/// The user of the supervisor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Who {
    /// Root.
    Root,
    /// An ordinary user: the one who runs the test or, if that is root, a user that owns nothing and has no entry in
    /// /etc/passwd.
    User,
    /// The same user. `/proc` shows only processes that the user may trace (`hidepid` of proc(5)). Needs root.
    UserOfHiddenProc,
    /// The same, on a host that allows namespaces.
    UserOfHiddenProcWithNamespaces,
    /// The same user. `/proc` contains only processes, as in a service with `ProcSubset=pid`.
    UserOfBareProc,
}

/// The uid and gid of the ordinary user.
const ORDINARY_UID: u32 = 2_147_100_001;

impl Who {
    const ALL: [Self; 5] = [
        Self::Root,
        Self::User,
        Self::UserOfHiddenProc,
        Self::UserOfHiddenProcWithNamespaces,
        Self::UserOfBareProc,
    ];

    /// Returns the mount options of `/proc`, unless it is the host's.
    pub fn proc(self) -> Option<&'static str> {
        match self {
            Self::Root | Self::User => None,
            Self::UserOfHiddenProc | Self::UserOfHiddenProcWithNamespaces => Some("hidepid=2"),
            Self::UserOfBareProc => Some("subset=pid"),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User => "user",
            Self::UserOfHiddenProc => "user of a hidden /proc",
            Self::UserOfHiddenProcWithNamespaces => "user of a hidden /proc with namespaces",
            Self::UserOfBareProc => "user of a bare /proc",
        }
    }

    /// Returns the uid of the user's processes.
    pub fn uid(self) -> u32 {
        match self {
            Self::Root => 0,
            _ if geteuid().is_root() => ORDINARY_UID,
            _ => geteuid().as_raw(),
        }
    }
}

/// Simulates the host and executes the program.
pub fn main(mut arguments: impl Iterator<Item = String>) -> ! {
    let who = arguments.next().expect("a user");
    let who = Who::ALL.into_iter().find(|it| it.name() == who);
    let who = who.expect("a user's name");
    if let Some(options) = who.proc() {
        mount_proc(options);
    }
    if who != Who::UserOfHiddenProcWithNamespaces {
        forbid_namespaces();
    }
    if who != Who::Root && geteuid().is_root() {
        become_nobody();
    }
    let program = arguments.next().expect("a program");
    let error = Command::new(program).args(arguments).exec();
    eprintln!("the program could not be executed: {error}");
    exit(99)
}

fn mount_proc(options: &str) {
    unshare(CloneFlags::CLONE_NEWNS).expect("root has the privilege");
    let (none, own) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    mount(none, "/", none, own, none).expect("the mount namespace is private");
    let (proc, flags) = (Some("proc"), MsFlags::empty());
    mount(proc, "/proc", proc, flags, Some(options)).expect("root has the privilege");
}

fn become_nobody() {
    let (uid, gid) = (Uid::from_raw(ORDINARY_UID), Gid::from_raw(ORDINARY_UID));
    setgroups(&[]).expect("setgroups");
    setresgid(gid, gid, gid).expect("setresgid");
    setresuid(uid, uid, uid).expect("setresuid");
}

/// Refuses what <https://github.com/moby/profiles/blob/main/seccomp/default.json> refuses without `CAP_SYS_ADMIN`.
fn forbid_namespaces() {
    let refused = [
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_mount_setattr,
        libc::SYS_fsopen,
        libc::SYS_fsmount,
    ];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = refused
        .into_iter()
        .map(|number| (number, Vec::new()))
        .collect();
    let namespaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    rules.insert(libc::SYS_clone, namespaces.map(clone_with).into());
    load(rules, libc::EPERM);
    load(
        BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
        libc::ENOSYS,
    );
}

fn clone_with(flag: i32) -> SeccompRule {
    let flag = u64::try_from(flag).expect("a flag");
    let masked = SeccompCmpOp::MaskedEq(flag);
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, masked, flag);
    SeccompRule::new(vec![condition.expect("a condition")]).expect("a rule")
}

fn load(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) {
    let arch: TargetArch = std::env::consts::ARCH
        .try_into()
        .expect("a known processor");
    let refuse = SeccompAction::Errno(u32::try_from(errno).expect("an errno"));
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).expect("a filter");
    let program: seccompiler::BpfProgram = filter.try_into().expect("a program");
    seccompiler::apply_filter(&program).expect("the filter is loaded");
}
