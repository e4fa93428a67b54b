//! Makes a jail without one of its layers, unnoticed by the worker and its supervisor.
//!
//! Some layers are never made: their calls are skipped, and a process that checks them reads what a sound
//! jail would show. The others are made, verified, and removed from outside before any guest code
//! runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::process::Command;

use nix::errno::Errno;
use nix::unistd::Pid;
use sandfork::Layer;
use sandfork_jail::program::WITNESS;

use crate::edit::{Act, Edit, Site, Value, Which, file_of};
use crate::family::{Call, Role};
use crate::memory::Memory;

/// The script that removes a layer from a worker.
const TAKE_AWAY: &str = include_str!("take_away.py");

/// How a layer is turned off.
#[derive(Clone, Debug)]
pub struct Off {
    layer: Layer,
    pub edits: Vec<Edit>,
    /// The resource limits that a worker would have.
    limits: RefCell<BTreeMap<u64, u64>>,
}

const NEW_PID: u64 = 0x2000_0000;
const NEW_USER: u64 = 0x1000_0000;
const NEW_OTHERS: u64 = 0x4e00_0000; // net, ipc, uts, cgroup

const CAPBSET_DROP: u64 = 24;
const SET_NO_NEW_PRIVS: u64 = 38;
const CAP_AMBIENT: u64 = 47;

impl Off {
    pub fn new(layer: Layer) -> Self {
        let edits = match layer {
            Layer::Namespaces => namespaces(),
            Layer::Landlock => vec![
                leave_out(Site::every(Role::Worker, "landlock_restrict_self")),
                refuse(at(Role::Worker, "openat", WITNESS), Errno::EACCES),
            ],
            Layer::Seccomp => seccomp(),
            Layer::Capabilities => capabilities(),
            Layer::Rlimits => rlimits(),
            Layer::Mounts | Layer::Cgroup => Vec::new(),
        };
        let limits = RefCell::default();
        Self {
            layer,
            edits,
            limits,
        }
    }

    /// Returns whether other workers of the same zygote see the effect.
    pub fn is_seen_by_others(&self) -> bool {
        self.layer == Layer::Mounts
    }

    /// Records the limits that are skipped.
    pub fn record_limit(&self, pid: Pid, call: &Call) {
        let [_, resource, new, ..] = call.arguments;
        if call.role == Role::Worker && call.is(&["prlimit64"]) && new != 0 {
            // A process whose memory cannot be read has ended.
            let value = Memory::of(pid).and_then(|memory| memory.word(new));
            _ = value.map(|value| self.limits.borrow_mut().insert(resource, value));
        }
    }

    /// Removes the layer from a worker that has been verified.
    pub fn take_away(&self, worker: Pid) -> Result<(), String> {
        if !matches!(self.layer, Layer::Mounts | Layer::Cgroup) {
            return Ok(());
        }
        let mut python = Command::new("python3");
        let worker = worker.to_string();
        python.args(["-c", TAKE_AWAY, self.layer.as_str(), &worker]);
        match python.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(format!("python3: {error}")),
        }
    }

    /// Changes what the supervisor has just read about its worker to what it expects.
    pub fn forge(&self, supervisor: Pid, call: &Call) {
        // A process that has ended is skipped.
        _ = match (self.layer, call.name()) {
            (Layer::Capabilities, "read" | "pread64") => no_capabilities(supervisor, call),
            (Layer::Rlimits, "read" | "pread64") => self.limits_as_planned(supervisor, call),
            (Layer::Namespaces, "readlinkat") => another_namespace(supervisor, call),
            (Layer::Namespaces, "read") => proc_of_the_worker(supervisor, call),
            _ => Ok(()),
        };
    }
}

impl Off {
    /// Rewrites the rows of /proc/PID/limits, whose columns have fixed widths.
    fn limits_as_planned(&self, supervisor: Pid, call: &Call) -> io::Result<()> {
        const VALUES: usize = 26;
        let Some((memory, address, text)) = just_read(supervisor, call, "limits")? else {
            return Ok(());
        };
        let mut start = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let resource = ROWS
                .iter()
                .find(|(_, name)| line.starts_with(name.as_bytes()));
            let value = resource.and_then(|(number, _)| self.limits.borrow().get(number).copied());
            if let Some(value) = value {
                let values = format!("{value:<20} {value:<20}");
                memory.write(address + (start + VALUES) as u64, values.as_bytes())?;
            }
            start += line.len();
        }
        Ok(())
    }
}

/// The numbers and row names of the resources (getrlimit(2), proc_pid_limits(5)).
const ROWS: [(u64, &str); 10] = [
    (0, "Max cpu time"),
    (1, "Max file size"),
    (2, "Max data size"),
    (3, "Max stack size"),
    (4, "Max core file size"),
    (6, "Max processes"),
    (7, "Max open files"),
    (8, "Max locked memory"),
    (11, "Max pending signals"),
    (12, "Max msgqueue size"),
];

/// Returns what a supervisor has just read from a file with this name, and its address.
fn just_read(
    supervisor: Pid,
    call: &Call,
    name: &str,
) -> io::Result<Option<(Memory, u64, Vec<u8>)>> {
    if file_of(supervisor, call).as_deref() != Some(name) {
        return Ok(None);
    }
    let memory = Memory::of(supervisor)?;
    let [_, address, length, ..] = call.arguments;
    let length = usize::try_from(length).unwrap_or(0).min(8192);
    let text = memory.read(address, length)?;
    Ok(Some((memory, address, text)))
}

fn leave_out(site: Site) -> Edit {
    Edit::new(site, Act::LeaveOut(0))
}

fn refuse(site: Site, errno: Errno) -> Edit {
    Edit::new(site, Act::LeaveOut(-i64::from(errno as i32)))
}

fn at(role: Role, name: &'static str, path: &'static str) -> Site {
    Site::every(role, name).which(Which::At(path))
}

/// Loads filters that allow everything, so that a filter is counted.
fn seccomp() -> Vec<Edit> {
    const LET_ALL: u32 = 0x7fff_0000;
    let filters = [Role::Zygote, Role::Worker].map(|role| {
        let act = Act::Filter(vec![(0x06, 0, 0, LET_ALL)]);
        Edit::new(Site::every(role, "seccomp"), act)
    });
    let calls = ["socketpair", "kcmp", "open_tree", "capset"].map(|name| {
        let site = Site::every(Role::Worker, name).after("seccomp");
        refuse(site, Errno::EPERM)
    });
    filters.into_iter().chain(calls).collect()
}

fn capabilities() -> Vec<Edit> {
    let prctl = |role, option| Site::every(role, "prctl").which(Which::With(vec![option]));
    vec![
        leave_out(prctl(Role::Zygote, SET_NO_NEW_PRIVS)),
        leave_out(prctl(Role::Worker, CAPBSET_DROP)),
        leave_out(prctl(Role::Worker, CAP_AMBIENT)),
        leave_out(Site::every(Role::Worker, "capset")),
        // The calls by which the worker checks that they are gone fail as in a sound jail. The last one checks the
        // filter.
        refuse(
            prctl(Role::Worker, CAPBSET_DROP).after("capset"),
            Errno::EPERM,
        ),
        refuse(
            Site::every(Role::Worker, "capset").after("seccomp"),
            Errno::EPERM,
        ),
    ]
}

/// Skips all namespaces except the mount namespace, which mounting needs, and the zygote's user namespace,
/// which permits mounting.
fn namespaces() -> Vec<Edit> {
    let without = |role, bits| {
        let act = Act::Without { argument: 0, bits };
        Edit::new(Site::every(role, "unshare"), act)
    };
    let wrote = |file: &str| {
        let which = Which::On(file.to_owned());
        let site = Site::every(Role::Worker, "write").which(which);
        Edit::new(site, Act::Swallow)
    };
    let mut edits = vec![
        without(Role::Launcher, NEW_OTHERS | NEW_PID),
        without(Role::Zygote, NEW_OTHERS | NEW_PID),
        // Skip the return into namespaces that were not left, and entering those that the zygote lends. The zygote must
        // still leave the mount namespace in which it preloads before it serves.
        leave_out(Site::every(Role::Zygote, "setns").after("epoll_create1")),
        leave_out(Site::every(Role::Worker, "setns")),
        without(Role::Worker, NEW_OTHERS | NEW_USER),
        leave_out(Site::every(Role::Zygote, "sethostname")),
        wrote("setgroups"),
        wrote("uid_map"),
        wrote("gid_map"),
    ];
    edits.extend(proc_of_the_host());
    edits
}

/// A procfs belongs to a pid namespace, so without one it is the host's.
fn proc_of_the_host() -> [Edit; 4] {
    const CLONE_ALL: u64 = (1 | libc::O_CLOEXEC | libc::AT_RECURSIVE) as u64;
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    let instead = |site, name, arguments| Edit::new(site, Act::Instead { name, arguments });
    let zygote = |name| Site::every(Role::Zygote, name);
    [
        instead(
            zygote("fsopen"),
            "open_tree",
            vec![
                Value::Number(here),
                Value::Text("/proc"),
                Value::Number(CLONE_ALL),
            ],
        ),
        leave_out(zygote("fsconfig")),
        instead(zygote("fsmount"), "dup", vec![Value::With(0, 0)]),
        // The worker's own procfs becomes a mount of its root's, with the flags that it would have.
        instead(
            Site::every(Role::Worker, "mount").which(Which::At("/proc")),
            "mount",
            vec![
                Value::Number(0),
                Value::With(1, 0),
                Value::Number(0),
                Value::With(3, libc::MS_REMOUNT | libc::MS_BIND),
                Value::Number(0),
            ],
        ),
    ]
}

/// Skips the setting of resource limits.
fn rlimits() -> Vec<Edit> {
    let set = Site::every(Role::Worker, "prlimit64").which(Which::Setting);
    vec![leave_out(set)]
}

/// Rewrites the capability sets and `no_new_privs` in /proc/PID/status.
fn no_capabilities(supervisor: Pid, call: &Call) -> io::Result<()> {
    let Some((memory, address, bytes)) = just_read(supervisor, call, "status")? else {
        return Ok(());
    };
    let find = |field: &str| {
        let field = field.as_bytes();
        bytes
            .windows(field.len())
            .position(|found| found == field)
            .map(|at| at + field.len())
    };
    for field in [
        "CapInh:\t",
        "CapPrm:\t",
        "CapEff:\t",
        "CapBnd:\t",
        "CapAmb:\t",
    ] {
        if let Some(value) = find(field) {
            memory.write(address + value as u64, b"0000000000000000")?;
        }
    }
    if let Some(value) = find("NoNewPrivs:\t") {
        memory.write(address + value as u64, b"1")?;
    }
    Ok(())
}

/// Rewrites the source and options of the worker's `/proc` in /proc/PID/mountinfo, without a change of length.
fn proc_of_the_worker(supervisor: Pid, call: &Call) -> io::Result<()> {
    const SHOWN: &[u8] = b" /proc ro,";
    const WANTED: &str = "noexec,nosuid - proc p ro,subset=pid";
    let Some((memory, address, text)) = just_read(supervisor, call, "mountinfo")? else {
        return Ok(());
    };
    let mut start = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let options = line.windows(SHOWN.len()).position(|part| part == SHOWN);
        let rest = options.map(|at| at + SHOWN.len());
        if let Some(at) = rest.filter(|at| line.len() - at > WANTED.len()) {
            let room = line.len() - at - 1;
            let text = format!("{WANTED:,<room$}");
            memory.write(address + (start + at) as u64, text.as_bytes())?;
        }
        start += line.len();
    }
    Ok(())
}

/// Rewrites the number in a link such as `ns/pid -> pid:[4026531836]`: a different one for each worker, by the
/// supervisor's descriptor of its directory in /proc.
fn another_namespace(supervisor: Pid, call: &Call) -> io::Result<()> {
    let memory = Memory::of(supervisor)?;
    if !memory.text(call.arguments[1])?.starts_with("ns/") {
        return Ok(());
    }
    let address = call.arguments[2];
    let link = memory.read(address, 16)?;
    match link.iter().position(|byte| *byte == b'[') {
        Some(bracket) => {
            let number = format!("9{:05}", call.arguments[0] % 100_000);
            memory.write(address + bracket as u64 + 1, number.as_bytes())
        }
        None => Ok(()),
    }
}
