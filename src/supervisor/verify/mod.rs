//! Verifies a worker from outside before it receives guest code: compares the kernel's view of the process with the
//! plan. Only layers that match count as enforced.

mod loopback;
mod mounts;
mod proc_status;
mod sockets;

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind::NotFound};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use nix::sys::stat::fstat;

pub(super) use self::proc_status::{CAPABILITY_SETS, ProcStatus};

use super::cgroup::WorkerCgroup;
use super::error::{SupervisorError, While};
use super::proc_dir::ProcDir;
use super::session_dir::SessionDirectory;
use super::spawn::Worker;
use crate::host::no_proc;
use crate::outcome::Enforced;
use crate::plan::Layer;
use crate::policy::Level;
use crate::waiters::lock;
use sandfork_jail::DATA;
use sandfork_jail::control::{CpuBudgetScope, NAMESPACES};
use sandfork_jail::program::{Identity, Network, ProcessMemory, RlimitResource, ZygoteJail};
use sandfork_jail::sys;

/// The name of the network namespace in [`NAMESPACES`].
const NETWORK: &str = "ns/net";

type Checked = Result<(), SupervisorError>;

/// The namespaces of other processes, none of which a worker may share. In the order of [`NAMESPACES`].
#[derive(Debug)]
pub struct OtherNamespaces {
    /// The namespaces in which the zygote was started.
    host: Vec<OsString>,
    /// The zygote's namespaces, once it has reported them.
    zygote: Vec<OsString>,
    /// The network namespaces that workers use. The zygote lends each to one worker at a time.
    lent: Mutex<Vec<(OsString, Weak<OwnedFd>)>>,
}

impl OtherNamespaces {
    /// Returns the namespaces of the calling thread, which starts a zygote.
    pub fn current() -> Result<Self, SupervisorError> {
        let link = |name| fs::read_link(Path::new("/proc/thread-self").join(name));
        let links = NAMESPACES.iter().map(|name| link(name).map(OsString::from));
        let links: io::Result<_> = links.collect();
        if links.as_ref().is_err_and(|it| it.kind() == NotFound) {
            return Err(no_proc().into());
        }
        Ok(Self {
            host: links.when("read the supervisor's namespaces")?,
            zygote: Vec::new(),
            lent: Mutex::default(),
        })
    }

    /// Adds the namespaces of the zygote.
    #[must_use]
    pub fn with_zygote(self, namespaces: Vec<String>) -> Self {
        let zygote = namespaces.into_iter().map(OsString::from).collect();
        Self { zygote, ..self }
    }

    /// Returns the owner of this namespace, if it is not the worker. `place` is the index in [`NAMESPACES`].
    fn owner(&self, place: usize, namespace: &OsString, network: Network) -> Option<&'static str> {
        // The zygote opens no socket. A worker without a network may therefore use the zygote's network namespace.
        let is_lent = NAMESPACES[place] == NETWORK && network == Network::None;
        if self.host.get(place) == Some(namespace) {
            Some("the host's")
        } else if !is_lent && self.zygote.get(place) == Some(namespace) {
            Some("its zygote's")
        } else {
            None
        }
    }

    /// Records that a worker uses a network namespace. Fails if another worker uses it whose `above` process is still
    /// alive.
    fn claim(&self, network: OsString, above: &Arc<OwnedFd>) -> Result<(), ()> {
        let mut lent = lock(&self.lent);
        lent.retain(|(_, owner)| owner.strong_count() > 0);
        let owners = lent.iter().filter(|(name, _)| *name == network);
        let lives = |owner: Arc<OwnedFd>| sys::pidfd::is_there(owner.as_fd()).is_ok();
        if owners.filter_map(|(_, owner)| owner.upgrade()).any(lives) {
            return Err(());
        }
        lent.push((network, Arc::downgrade(above)));
        Ok(())
    }
}

/// Checks every layer of the plan. Returns the layers that are enforced.
pub fn verify(
    worker: &Worker,
    jail: &ZygoteJail,
    others: &OtherNamespaces,
    cgroup: Option<&WorkerCgroup>,
    session: Option<&SessionDirectory>,
    cpu: CpuBudgetScope,
) -> Result<Enforced, SupervisorError> {
    let process = &worker.proc;
    let status = process
        .read_at_once("status")
        .when("read the worker's status")?;
    let status = ProcStatus::parse(&status);
    let mut layers = Vec::with_capacity(7);
    if jail.namespaces.is_some() {
        namespaces(worker, jail, others)?;
        if jail.network() == Network::Loopback {
            loopback::check(process, &jail.worker.addresses)?;
            sockets::check(process, &jail.worker.sockets, &worker.sockets)?;
        }
        layers.push(Layer::Namespaces);
        mounts::check(process, jail)?;
        layers.push(Layer::Mounts);
    }
    if jail.landlock.is_some() {
        // The kernel does not expose a process's Landlock domain. The evidence is the worker's own self-check
        // (`jail::self_check`), which runs before guest code: it tried to open a directory that only Landlock denies,
        // and would have reported a failure if that had succeeded.
        if let Some(session) = session {
            work_directory(process, session)?;
        }
        layers.push(Layer::Landlock);
    }
    seccomp(&status, jail)?;
    layers.push(Layer::Seccomp);
    capabilities(&status, jail)?;
    identity(&status, worker, jail)?;
    leads_its_session(&status)?;
    descriptors(process)?;
    layers.push(Layer::Capabilities);
    rlimits(process, jail, cpu)?;
    layers.push(Layer::Rlimits);
    if let Some(cgroup) = cgroup {
        membership(process, cgroup)?;
        cgroup.check_limits()?;
        layers.push(Layer::Cgroup);
    }
    let level = match cgroup {
        _ if jail.namespaces.is_none() => Level::Landlock,
        // With some of the cgroup limits missing, the level stays `standard`.
        Some(cgroup) if cgroup.is_complete() => Level::Full,
        _ => Level::Standard,
    };
    Ok(Enforced { level, layers })
}

fn differs(layer: Layer, found: impl Into<String>, wanted: impl Into<String>) -> Checked {
    Err(SupervisorError::NotEnforced {
        layer,
        found: found.into(),
        wanted: wanted.into(),
    })
}

fn namespaces(worker: &Worker, jail: &ZygoteJail, others: &OtherNamespaces) -> Checked {
    let process = &worker.proc;
    for (place, name) in NAMESPACES.into_iter().enumerate() {
        let own = process.link(name).when("read the worker's namespaces")?;
        let mut owner = others.owner(place, &own, jail.network());
        if owner.is_none() && name == NETWORK && others.claim(own, &worker.above).is_err() {
            owner = Some("another worker's");
        }
        if let Some(owner) = owner {
            let kind = name.trim_start_matches("ns/");
            return differs(
                Layer::Namespaces,
                format!("{owner} {kind} namespace"),
                "its own",
            );
        }
    }
    let map = process.read("uid_map").when("read the worker's id map")?;
    let mut fields = map.split_ascii_whitespace();
    let inside = fields.next().and_then(|id| id.parse().ok());
    if inside != Some(jail.identity.inside.uid)
        || fields.nth(1) != Some("1")
        || fields.next().is_some()
    {
        return differs(
            Layer::Namespaces,
            format!("id map `{}`", map.trim()),
            "one id",
        );
    }
    Ok(())
}

fn seccomp(status: &ProcStatus, jail: &ZygoteJail) -> Checked {
    let wanted = jail.filters.len() + jail.worker.filters.len();
    if status.field("Seccomp") != Some("2") {
        return differs(
            Layer::Seccomp,
            format!("mode {:?}", status.field("Seccomp")),
            "mode 2 (filter)",
        );
    }
    // The kernel reports the count since Linux 5.9.
    match status.number("Seccomp_filters") {
        Some(found) if found < wanted as u64 => differs(
            Layer::Seccomp,
            format!("{found} filters"),
            format!("{wanted}"),
        ),
        _ => Ok(()),
    }
}

fn capabilities(status: &ProcStatus, jail: &ZygoteJail) -> Checked {
    // Without a user namespace, an ordinary user cannot empty the bounding set. That is harmless:
    // the set limits what execve(2) grants, and with `no_new_privs` that is nothing.
    let could_drop = jail.namespaces.is_some() || jail.identity.drop_to.is_some();
    let bounding = could_drop.then_some("CapBnd");
    for set in CAPABILITY_SETS.into_iter().chain(bounding) {
        let found = status.set(set);
        if found != Some(0) {
            return differs(
                Layer::Capabilities,
                format!("{set} {found:x?}"),
                "no capability",
            );
        }
    }
    match status.field("NoNewPrivs") {
        Some("1") => Ok(()),
        found => differs(Layer::Capabilities, format!("NoNewPrivs {found:?}"), "1"),
    }
}

/// Requires that the worker has only its streams and its data socket: a descriptor that leaked in would be a right that
/// no layer removes.
fn descriptors(process: &ProcDir) -> Checked {
    let open = process
        .descriptors()
        .when("read the worker's descriptors")?;
    let unknown = |number: &i32| *number > 2 && *number != DATA;
    let mut unknown: Vec<i32> = open.into_iter().filter(unknown).collect();
    unknown.sort_unstable();
    let unknown: Vec<String> = unknown.iter().map(i32::to_string).collect();
    match unknown.as_slice() {
        [] => Ok(()),
        _ => differs(
            Layer::Capabilities,
            format!("descriptors {}", unknown.join(", ")),
            "its streams and its data socket",
        ),
    }
}

fn identity(status: &ProcStatus, worker: &Worker, jail: &ZygoteJail) -> Checked {
    let Identity { drop_to, inside } = jail.identity;
    // Without a user namespace the guest has the same ids on the host as inside.
    let without = jail.namespaces.is_none().then_some(inside);
    let wanted = worker.ids.or(without);
    let Some(ids) = wanted else { return Ok(()) };
    for (key, wanted) in [("Uid", ids.uid), ("Gid", ids.gid)] {
        if !status.has_only_id(key, wanted) {
            let found = status.field(key).unwrap_or("");
            return differs(
                Layer::Capabilities,
                format!("{key} {found}"),
                wanted.to_string(),
            );
        }
    }
    match status.field("Groups") {
        Some(groups) if drop_to.is_some() && !groups.is_empty() => {
            differs(Layer::Capabilities, format!("groups {groups}"), "no groups")
        }
        _ => Ok(()),
    }
}

/// Requires that the worker leads its own session. In another session it could open that session's terminal as
/// `/dev/tty`, and signal its process groups.
fn leads_its_session(status: &ProcStatus) -> Checked {
    match status.field("NSsid") {
        session if session.is_some() && session == status.field("NSpid") => Ok(()),
        session => differs(
            Layer::Capabilities,
            format!("session {}", session.unwrap_or("unknown")),
            "a session of its own",
        ),
    }
}

/// Checks that the worker's current directory is the session's directory, which replaces `/work`.
fn work_directory(process: &ProcDir, session: &SessionDirectory) -> Checked {
    let cwd = format!("/proc/{}/cwd", process.pid);
    let theirs = fs::metadata(cwd).when("read the worker's directory")?;
    let ours = fstat(&session.dir).when("read the session's directory")?;
    if (theirs.dev(), theirs.ino()) != (ours.st_dev, ours.st_ino) {
        let wanted = session.path().display().to_string();
        return differs(Layer::Landlock, "another work directory", wanted);
    }
    Ok(())
}

fn rlimits(process: &ProcDir, jail: &ZygoteJail, cpu: CpuBudgetScope) -> Checked {
    let table = process
        .read_at_once("limits")
        .when("read the worker's limits")?;
    let rows: Vec<&str> = table.lines().collect();
    let row = |name: &str| rows.iter().find_map(|line| line.strip_prefix(name));
    for limit in jail.worker.rlimits_in_force(cpu) {
        let name = proc_limit_name(limit.resource);
        let mut values = row(name).unwrap_or("").split_ascii_whitespace();
        let (soft, hard) = (values.next(), values.next());
        let is_wanted =
            |value: Option<&str>| value.and_then(|it| it.parse().ok()) == Some(limit.value);
        if !is_wanted(soft) || !is_wanted(hard) {
            let found = format!("{name} {soft:?} {hard:?}");
            return differs(Layer::Rlimits, found, limit.value.to_string());
        }
    }
    if let ProcessMemory::Touched(_) = jail.worker.memory {
        return Ok(());
    }
    // The value depends on the zygote's size at the fork.
    match data_limit(&table) {
        Some(_) => Ok(()),
        None => differs(Layer::Rlimits, "no RLIMIT_DATA", "a limit"),
    }
}

/// Parses the hard value of `RLIMIT_DATA` from `/proc/PID/limits`, in bytes. `None` if it is unlimited.
pub(super) fn data_limit(table: &str) -> Option<u64> {
    let mut lines = table.lines();
    let row = lines.find_map(|line| line.strip_prefix("Max data size"))?;
    row.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns the name of a resource's row in `/proc/PID/limits` (proc(5)).
pub(super) fn proc_limit_name(resource: RlimitResource) -> &'static str {
    match resource {
        RlimitResource::Cpu => "Max cpu time",
        RlimitResource::OpenFiles => "Max open files",
        RlimitResource::FileSize => "Max file size",
        RlimitResource::Processes => "Max processes",
        RlimitResource::Core => "Max core file size",
        RlimitResource::LockedMemory => "Max locked memory",
        RlimitResource::MessageQueues => "Max msgqueue size",
        RlimitResource::PendingSignals => "Max pending signals",
        RlimitResource::Stack => "Max stack size",
    }
}

fn membership(process: &ProcDir, cgroup: &WorkerCgroup) -> Checked {
    let table = process
        .read_at_once("cgroup")
        .when("read the worker's cgroups")?;
    for (controller, dir) in cgroup.membership() {
        let wanted = controller.map_or("", crate::host::Controller::name);
        let path = table.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let controllers = fields.nth(1)?;
            controllers
                .split(',')
                .any(|one| one == wanted)
                .then(|| fields.next())?
        });
        if !path.is_some_and(|path| same_end(Path::new(path), dir)) {
            let found = format!("{wanted} cgroup {path:?}");
            return differs(Layer::Cgroup, found, dir.display().to_string());
        }
    }
    Ok(())
}

/// Whether a cgroup's path within its hierarchy ends with the last two components of `dir`. They are the names of the
/// supervisor's and the worker's directories, which are unique.
fn same_end(path: &Path, dir: &Path) -> bool {
    let mut pairs = path.iter().rev().zip(dir.iter().rev()).take(2);
    path.iter().count() >= 2 && pairs.all(|(a, b)| a == b)
}
