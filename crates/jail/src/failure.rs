//! The fixed-size report of a process that fails at a step of its jail: the step and an errno. The supervisor, outside
//! the jail, formats the text.

use std::fmt;
use std::io;

use nix::errno::Errno;

use super::timing::Timing;
use crate::sys::{errno_of, steps};

steps! {
    /// A step of the jail. The number crosses the process boundary.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    #[repr(u16)]
    pub enum Step: u16 {
        Prepare = 1 => "prepare the jail's data",
        CloneTrees => "open the directories that the sandbox shows (open_tree)",
        DropHostIds => "become an unprivileged user on the host (setresuid)",
        UnshareZygote => "make the user, mount, pid, net, ipc and uts namespaces (unshare)",
        MapIds => "write the user namespace's id maps (uid_map, gid_map)",
        StartClocks => "set the clocks of the time namespace (timens_offsets)",
        WatchSupervisor => "tie the sandbox's life to the supervisor's",
        PrivateMounts => "make the mount namespace private (mount MS_PRIVATE)",
        BuildRoot => "build the sandbox's root (mount, move_mount)",
        PivotRoot => "change to the sandbox's root (pivot_root)",
        MountProc => "mount /proc",
        Hostname => "set the host name",
        DropPriority => "drop the caller's raised scheduling priority (sched_setscheduler, setpriority)",
        NoNewPrivs => "set no_new_privs",
        HideArguments => "hide the interpreter's arguments",
        ZygoteFilter => "load the broad seccomp filter",
        ForkZygote => "fork the zygote",
        PidNamespace => "make the worker's pid namespace (unshare, setns)",
        SpawnInit => "start the init of a pid namespace (clone)",
        Fork => "fork the worker",
        JoinCgroup => "join the worker's cgroup",
        WorkerUid => "switch to a host uid of the worker's own (setresuid)",
        UnshareWorker => "make the worker's mount, ipc and uts namespaces (unshare)",
        LendNetwork => "make an empty network namespace for the worker (unshare)",
        EnterNetwork => "enter the worker's network namespace (setns)",
        MakeNetwork => "make the worker's own network namespace (unshare)",
        BoundBuffers => "bound the worker's TCP buffers (net.ipv4.tcp_rmem, tcp_wmem)",
        RaiseLoopback => "bring up the worker's loopback interface (rtnetlink)",
        NetworkSockets => "create the worker's sockets for network traffic (socket, bind, listen)",
        MountTmpfs => "mount the worker's private tmpfs",
        ShowTrees => "show the host's directories beneath a private tmpfs (move_mount)",
        WorkerProc => "mount the worker's own /proc",
        ProcFiles => "mount the sandbox's own files over those of /proc",
        HideMachine => "hide the machine in the worker's /proc (subset=pid)",
        WorkerPtys => "mount the worker's own /dev/pts (devpts)",
        OpenHandles => "open the worker's writable directories for the supervisor",
        Rlimits => "set a resource limit (setrlimit)",
        SignalMask => "set the signal mask (sigprocmask)",
        Session => "leave the caller's session or process group (setsid, setpgid)",
        Stdio => "set up the standard streams (dup2)",
        WorkDirectory => "change to the work directory (chdir)",
        UserNamespace => "make the worker's user namespace",
        ProcessLimit => "set a limit that is counted per user, such as processes (RLIMIT_NPROC)",
        PinProcessors => "pin the worker to its processors (sched_setaffinity)",
        CloseDescriptors => "close inherited descriptors (close_range)",
        Landlock => "build and enforce the Landlock rules (landlock_add_rule, landlock_restrict_self)",
        LandlockSelfCheck => "verify that Landlock refuses to open a path without a rule",
        RootSelfCheck => "verify that no file can be created in `/`",
        Capabilities => "empty the capability sets",
        PrivilegeSelfCheck => "verify that the bounding set cannot be changed",
        DeathSignal => "set the parent-death signal",
        Dumpable => "set the dumpable flag",
        WorkerFilter => "load the narrow seccomp filter",
        SocketSelfCheck => "verify that no socket can be created that the policy does not allow",
        TraceSelfCheck => "verify that no process can be traced",
        MountSelfCheck => "verify that nothing can be mounted",
        CapsetSelfCheck => "verify that capabilities cannot be set",
        AdoptOrphans => "become the parent of orphans (prctl PR_SET_CHILD_SUBREAPER)",
        ScopeSignals => "confine signals to the worker (landlock_restrict_self)",
        ForkReaper => "fork the process that ends the worker",
        Report => "report the complete jail to the supervisor",
        ReportBirth => "report the forked worker to the supervisor",
        PreloadDirectories => "mount writable directories for preloaded packages (unshare, mount)",
        LeavePreload => "leave the mount namespace of preloaded packages (setns)",
    }
}

/// The errno of a step that expects a refusal when the kernel allowed the call.
pub const NOT_REFUSED: Errno = Errno::ENOTRECOVERABLE;

/// A step that failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Failure {
    /// The step that failed.
    pub step: Step,
    /// The errno of the failure.
    pub errno: Errno,
}

/// The length of an encoded report, bytes.
pub const REPORT_LENGTH: usize = 8 + Timing::LENGTH;

/// Encodes the report that a process sends once its jail is complete or has failed: `u16` magic, `u16` step (0 when the
/// jail is complete), `i32` errno, little-endian, then the duration of each part.
pub fn encode_report(result: Result<Timing, Failure>) -> [u8; REPORT_LENGTH] {
    let (step, errno, timing) = match result {
        Ok(timing) => (0, 0, timing),
        Err(failure) => (failure.step as u16, failure.errno as i32, Timing::default()),
    };
    let mut report = [0; REPORT_LENGTH];
    report[..2].copy_from_slice(&MAGIC.to_le_bytes());
    report[2..4].copy_from_slice(&step.to_le_bytes());
    report[4..8].copy_from_slice(&errno.to_le_bytes());
    report[8..].copy_from_slice(&timing.encode());
    report
}

/// Decodes a report. Returns `None` if the bytes are not a report.
pub fn decode_report(report: &[u8]) -> Option<Result<Timing, Failure>> {
    let report: &[u8; REPORT_LENGTH] = report.try_into().ok()?;
    let timing = Timing::decode(report[8..].try_into().ok()?);
    let [magic, step] = [0, 2].map(|at| u16::from_le_bytes([report[at], report[at + 1]]));
    let errno = i32::from_le_bytes([report[4], report[5], report[6], report[7]]);
    match (magic, step) {
        (MAGIC, 0) => Some(Ok(timing)),
        (MAGIC, step) => Some(Err(Failure {
            step: Step::from_number(step)?,
            errno: Errno::from_raw(errno),
        })),
        _ => None,
    }
}

const MAGIC: u16 = 0x5346;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "could not {}: {}",
            self.step.describe(),
            self.errno.desc()
        )
    }
}

/// Attaches the step of the jail to a failed system call.
pub trait InStep<T> {
    /// Maps an error to a [`Failure`] of this step.
    fn in_step(self, step: Step) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> InStep<T> for Result<T, E> {
    fn in_step(self, step: Step) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            step,
            errno: errno_of(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::{Part, Stopwatch};

    #[test]
    fn report_round_trips() {
        let mut stopwatch = Stopwatch::start();
        stopwatch.end_of(Part::Mounts);
        let timing = stopwatch.timing();
        assert_eq!(decode_report(&encode_report(Ok(timing))), Some(Ok(timing)));
        for step in Step::ALL.iter().copied() {
            let failure = Failure {
                step,
                errno: Errno::EPERM,
            };
            assert_eq!(
                decode_report(&encode_report(Err(failure))),
                Some(Err(failure))
            );
        }
    }

    #[test]
    fn invalid_report_is_rejected() {
        assert_eq!(decode_report(b""), None);
        assert_eq!(decode_report(&[b'1'; REPORT_LENGTH]), None);
        let mut report = [0; REPORT_LENGTH];
        report[..4].copy_from_slice(&[0x46, 0x53, 0xff, 0xff]);
        assert_eq!(decode_report(&report), None);
        report[2..4].fill(0);
        assert_eq!(decode_report(&report), Some(Ok(Timing::default())));
        assert_eq!(decode_report(&report[..REPORT_LENGTH - 1]), None);
    }
}
