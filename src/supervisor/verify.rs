//! Looks at a worker from outside, before it gets any guest code: what the kernel says of the
//! process is compared with the plan, and what agrees, and only that, is called enforced.

mod mounts;
mod proc_status;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::stat::fstat;

use self::proc_status::ProcStatus;
use super::cgroup::WorkerCgroup;
use super::error::{SupervisorError, While};
use super::proc_dir::ProcDir;
use super::session::SessionDirectory;
use crate::jail::DATA;
use crate::jail::control::{CpuSpan, NAMESPACES};
use crate::jail::program::{
    Identity, NetworkNamespace, RlimitResource, ZygoteJail, ZygoteNamespaces,
};
use crate::outcome::Enforced;
use crate::plan::Layer;
use crate::policy::Level;

type Checked = Result<(), SupervisorError>;

/// The namespaces of others, in which no worker may be. Names as in [`NAMESPACES`].
#[derive(Debug)]
pub struct OtherNamespaces {
    /// Those that its zygote was started in.
    host: Vec<OsString>,
    /// Those of its zygote, once it has told them.
    zygote: Vec<OsString>,
}

impl OtherNamespaces {
    /// Those of the calling thread, which starts a zygote.
    pub fn current() -> Result<Self, SupervisorError> {
        let link = |name| fs::read_link(Path::new("/proc/thread-self").join(name));
        let links = NAMESPACES.iter().map(|name| link(name).map(OsString::from));
        let links: io::Result<_> = links.collect();
        Ok(Self {
            host: links.when("read the supervisor's namespaces")?,
            zygote: Vec::new(),
        })
    }

    /// And those of the zygote.
    #[must_use]
    pub fn with_zygote(self, namespaces: Vec<String>) -> Self {
        let zygote = namespaces.into_iter().map(OsString::from).collect();
        Self { zygote, ..self }
    }

    /// Whose namespace of a kind this is, if it is another's. `place` is the kind's in [`NAMESPACES`].
    fn owner(
        &self,
        place: usize,
        namespace: &OsString,
        network: NetworkNamespace,
    ) -> Option<&'static str> {
        let shared = NAMESPACES[place] == "ns/net" && network == NetworkNamespace::SharedEmpty;
        if self.host.get(place) == Some(namespace) {
            Some("the host's")
        } else if !shared && self.zygote.get(place) == Some(namespace) {
            Some("its zygote's")
        } else {
            None
        }
    }
}

/// Checks every layer of the plan and says which hold.
pub fn verify(
    process: &ProcDir,
    jail: &ZygoteJail,
    others: &OtherNamespaces,
    cgroup: Option<&WorkerCgroup>,
    session: Option<&SessionDirectory>,
    cpu: CpuSpan,
) -> Result<Enforced, SupervisorError> {
    let status = ProcStatus::read(process).when("read the worker's status")?;
    let mut layers = Vec::with_capacity(7);
    if let Some(made) = jail.namespaces {
        namespaces(process, jail, made, others)?;
        layers.push(Layer::Namespaces);
        mounts::check(process, jail)?;
        layers.push(Layer::Mounts);
    }
    if jail.landlock.is_some() {
        // The kernel shows nobody a process's Landlock domain. The worker's own set-up code, no
        // guest code having run, saw a directory refused that only Landlock refuses: without that
        // it would not have reported that its jail stands (`jail::witness`).
        if let Some(session) = session {
            work_directory(process, session)?;
        }
        layers.push(Layer::Landlock);
    }
    seccomp(&status, jail)?;
    layers.push(Layer::Seccomp);
    capabilities(&status, jail)?;
    identity(&status, jail)?;
    descriptors(process)?;
    layers.push(Layer::Capabilities);
    rlimits(process, jail, cpu)?;
    layers.push(Layer::Rlimits);
    if let Some(cgroup) = cgroup {
        membership(process, cgroup)?;
        layers.push(Layer::Cgroup);
    }
    let level = match cgroup {
        _ if jail.namespaces.is_none() => Level::Landlock,
        // A part of the limits is no more than what the other layers hold, too.
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

fn namespaces(
    process: &ProcDir,
    jail: &ZygoteJail,
    made: ZygoteNamespaces,
    others: &OtherNamespaces,
) -> Checked {
    for (place, name) in NAMESPACES.into_iter().enumerate() {
        let own = process.link(name).when("read the worker's namespaces")?;
        if let Some(owner) = others.owner(place, &own, made.network) {
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
    // The count is told since Linux 5.9.
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
    // An ordinary user without a user namespace cannot empty the bounding set, and needs not:
    // it limits what execve(2) grants, and with `no_new_privs` that is nothing.
    let could_drop = jail.namespaces.is_some() || jail.identity.drop_to.is_some();
    let bounding = could_drop.then_some("CapBnd");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"]
        .into_iter()
        .chain(bounding)
    {
        let found = status
            .field(set)
            .and_then(|mask| u64::from_str_radix(mask, 16).ok());
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

/// A descriptor that leaked in is a right that no rule took away.
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

fn identity(status: &ProcStatus, jail: &ZygoteJail) -> Checked {
    let Identity { drop_to, inside } = jail.identity;
    // Without a user namespace the guest is on the host who he is inside.
    let wanted = drop_to.or(jail.namespaces.is_none().then_some(inside));
    let Some(ids) = wanted else { return Ok(()) };
    for (key, wanted) in [("Uid", ids.uid), ("Gid", ids.gid)] {
        let found = status.field(key).unwrap_or("");
        let mut shown = found.split_ascii_whitespace().map(str::parse);
        if found.is_empty() || !shown.all(|id| id == Ok(wanted)) {
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

/// Whether the worker is where its files belong: what it was told to put in the place of `/work`.
fn work_directory(process: &ProcDir, session: &SessionDirectory) -> Checked {
    let cwd = format!("/proc/{}/cwd", process.pid());
    let theirs = fs::metadata(cwd).when("read the worker's directory")?;
    let ours = fstat(session.handle()).when("read the session's directory")?;
    if (theirs.dev(), theirs.ino()) != (ours.st_dev, ours.st_ino) {
        let wanted = session.path().display().to_string();
        return differs(Layer::Landlock, "another work directory", wanted);
    }
    Ok(())
}

fn rlimits(process: &ProcDir, jail: &ZygoteJail, cpu: CpuSpan) -> Checked {
    let table = process.read("limits").when("read the worker's limits")?;
    let row = |name: &str| table.lines().find_map(|line| line.strip_prefix(name));
    for limit in jail.worker.rlimits_in_force(cpu) {
        let name = proc_limit_name(limit.resource);
        let mut values = row(name).unwrap_or("").split_ascii_whitespace();
        let (soft, hard) = (values.next(), values.next());
        let wanted = limit.value.to_string();
        if soft != Some(&wanted) || hard != Some(&wanted) {
            return differs(Layer::Rlimits, format!("{name} {soft:?} {hard:?}"), wanted);
        }
    }
    // How much it is depends on the zygote's size at the fork.
    match row(DATA_LIMIT).and_then(|row| row.split_ascii_whitespace().nth(1)) {
        Some(hard) if hard != "unlimited" => Ok(()),
        found => differs(Layer::Rlimits, format!("{DATA_LIMIT} {found:?}"), "a limit"),
    }
}

/// The row of `RLIMIT_DATA`.
const DATA_LIMIT: &str = "Max data size";

/// The row of a resource in `/proc/PID/limits` (proc(5)).
fn proc_limit_name(resource: RlimitResource) -> &'static str {
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
    let table = process.read("cgroup").when("read the worker's cgroups")?;
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

/// Whether a cgroup's path within its hierarchy names this directory: the last two components are
/// the supervisor's and the worker's, which no other has.
fn same_end(path: &Path, dir: &Path) -> bool {
    let mut pairs = path.iter().rev().zip(dir.iter().rev()).take(2);
    path.iter().count() >= 2 && pairs.all(|(a, b)| a == b)
}
