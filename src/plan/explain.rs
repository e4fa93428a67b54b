//! Formats a plan for `sandfork plan`.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::time::Duration;

use super::harmless;
use super::network::describe;
use super::preload::{PreloadPlan, loaded};
use super::words::{amount, bytes, list, seconds};
use super::{EgressPlan, Plan, SessionFiles, Start};
use crate::host::Controller;
use crate::outcome::{LimitName, LimitSpec};
use crate::policy::Stdin;
use sandfork_jail::machine_files::Machine;
use sandfork_jail::program::{
    Access, Clock, Network, PathAccess, ProcMount, Programs, RlimitResource, RootEntry, UidRange,
    ZygoteJail,
};

/// Describes what the plan will do. The text omits the values of environment variables, because some of them
/// come from the caller and may be secret.
pub fn explain(plan: &Plan) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_plan(plan, &mut text);
    text
}

fn write_plan(plan: &Plan, f: &mut String) -> fmt::Result {
    let name = harmless(&plan.policy.name);
    writeln!(f, "policy {name} ({})", &plan.policy.sha256)?;
    writeln!(f, "level {}", plan.level)?;
    writeln!(f, "\nlayers")?;
    for layer in &plan.layers {
        let what = format!("{:<10}{}", layer.state, layer.detail);
        row(f, layer.layer.as_str(), &what)?;
    }
    write_guest(plan, f)?;
    write_files(plan, f)?;
    write_limits(plan, f)
}

fn row(f: &mut String, name: &str, what: &str) -> fmt::Result {
    writeln!(f, "  {:<16}{}", harmless(name), harmless(what))
}

fn write_guest(plan: &Plan, f: &mut String) -> fmt::Result {
    let jail = &plan.jail;
    writeln!(f, "\nguest")?;
    row(f, "runs as", &identity(jail))?;
    let (major, minor, patch) = plan.interpreter.version;
    let start = match plan.interpreter.start {
        Start::Forked => "forked from a warm one for each session",
        Start::Cold => "started for each session",
    };
    let executable = plan.interpreter.executable.display();
    row(
        f,
        "interpreter",
        &format!("{executable}, CPython {major}.{minor}.{patch}, {start}"),
    )?;
    write_preloads(&plan.interpreter.preload, f)?;
    if let Some(project) = &plan.interpreter.project {
        row(f, "program", &format!("{}, read-only", project.display()))?;
    }
    row(
        f,
        "may import",
        &list(plan.interpreter.imports.iter().map(imported)),
    )?;
    let stdin = match plan.supervision.stdin {
        Stdin::Closed => "closed",
        Stdin::Pass => "the caller's",
    };
    row(f, "standard input", stdin)?;
    row(
        f,
        "environment",
        &list(jail.env.iter().map(|(name, _)| name.clone())),
    )?;
    row(f, "network", network(plan))?;
    if let Some(egress) = &plan.egress {
        write_egress(egress, f)?;
    }
    row(f, "machine", &machine(jail))?;
    let count = |filters: &[sandfork_jail::program::BpfProgram]| -> usize {
        filters.iter().map(Vec::len).sum()
    };
    let (zygote, worker) = (count(&jail.filters), count(&jail.worker.filters));
    row(
        f,
        "system calls",
        &format!("filtered by {} instructions", zygote + worker),
    )
}

fn write_preloads(preload: &[PreloadPlan], f: &mut String) -> fmt::Result {
    row(f, "preloads", &loaded(preload))?;
    let notes = preload.iter().filter_map(PreloadPlan::note);
    notes.into_iter().try_for_each(|note| row(f, "", &note))
}

fn identity(jail: &ZygoteJail) -> String {
    let inside = jail.identity.inside;
    let mut text = format!("uid {}, gid {}", inside.uid, inside.gid);
    if let Some(host) = jail.identity.drop_to {
        let _ = match jail.worker_uids() {
            Some(UidRange { first, count }) => {
                let last = first + (count - 1);
                write!(
                    text,
                    "; on the host one of uids {first} to {last}, gid {}",
                    host.gid
                )
            }
            None => write!(text, "; on the host uid {}, gid {}", host.uid, host.gid),
        };
    }
    text
}

fn imported(pattern: &String) -> String {
    if pattern == "*" {
        "everything".to_owned()
    } else {
        pattern.clone()
    }
}

/// Describes the machine that guests see in `/proc` and `/sys`.
fn machine(jail: &ZygoteJail) -> String {
    let Some(Machine {
        processors, memory, ..
    }) = &jail.machine
    else {
        return "no file describes it".to_owned();
    };
    let plural = if *processors == 1 { "" } else { "s" };
    let clock = match jail.namespaces.map(|own| own.clock) {
        Some(Clock::Zygote) => "clocks that begin with it",
        Some(Clock::Host) | None => "the host's clocks",
    };
    format!(
        "{processors} processor{plural}, {} of memory, {clock}",
        bytes(*memory)
    )
}

fn write_egress(egress: &EgressPlan, f: &mut String) -> fmt::Result {
    for rule in egress.allow.iter() {
        row(f, "", &describe(rule))?;
    }
    let bounds = format!(
        "at most {} connections at once, and {} sent and received",
        egress.connections,
        bytes(egress.bytes)
    );
    row(f, "", &bounds)?;
    if let Some(proxy) = &egress.proxy {
        let through = format!("through {}:{}, unless private", proxy.host, proxy.port);
        row(f, "", &through)?;
    }
    Ok(())
}

fn network(plan: &Plan) -> &'static str {
    match plan.jail.namespaces.map(|own| own.network) {
        _ if plan.egress.is_some() => {
            "allow: its own processes, and these hosts through the egress process, which checks each connection"
        }
        Some(Network::None) => "none: an empty network namespace for each worker",
        Some(Network::Loopback) => {
            "loopback: tcp and udp among its own processes, in a network namespace for each worker"
        }
        None => "none: no socket can be made",
    }
}

fn write_files(plan: &Plan, f: &mut String) -> fmt::Result {
    let jail = &plan.jail;
    writeln!(f, "\nfiles")?;
    let own = |path: &str| {
        jail.worker
            .tmpfs
            .iter()
            .any(|tmpfs| tmpfs.target.as_os_str() == path)
    };
    let allowed = |access: PathAccess| {
        let rules = jail.landlock.iter().flat_map(|rules| &rules.paths);
        rules
            .filter(move |rule| rule.allow == access)
            .map(|rule| rule.path.display().to_string())
            .filter(|path| !own(path) && path != super::paths::WORK)
    };
    row(f, "reads and runs", &list(allowed(PathAccess::ReadExecute)))?;
    row(f, "reads", &list(allowed(PathAccess::Read)))?;
    // Also the writable mounts, because a path beneath `/tmp` may have no rule: that of `/tmp` covers it.
    let mounted = jail.root.iter().filter_map(|entry| match entry {
        RootEntry::Bind {
            target,
            access: Access::ReadWrite,
            ..
        } => Some(target.display().to_string()),
        _ => None,
    });
    let written: BTreeSet<String> = mounted.chain(allowed(PathAccess::ReadWrite)).collect();
    row(f, "writes", &list(written.into_iter()))?;
    let beside = jail.root.iter().filter_map(|entry| match entry {
        RootEntry::Device { name } => Some(name.as_str()),
        _ => None,
    });
    let devices: BTreeSet<&str> = super::root::DEVICES.into_iter().chain(beside).collect();
    row(f, "devices", &list(devices.into_iter().map(str::to_owned)))?;
    match plan.session_files {
        SessionFiles::Private => {
            for tmpfs in &jail.worker.tmpfs {
                let mut quota = format!("{}, {} files", bytes(tmpfs.size), tmpfs.inodes);
                if tmpfs.programs == Programs::Run {
                    quota.push_str("; the guest runs and loads programs that it makes there");
                }
                row(
                    f,
                    &tmpfs.target.display().to_string(),
                    &format!("private, {quota}"),
                )?;
            }
        }
        SessionFiles::HostDirectory(quota) => {
            let watched = format!("{}, {} files", bytes(quota.size), quota.inodes);
            let own = format!("a directory of the host for each session, watched: {watched}");
            row(f, "its own", &own)?;
        }
    }
    let proc = match jail.worker.proc {
        ProcMount::Own => "its own processes only",
        ProcMount::Absent => "none",
    };
    row(f, "/proc", proc)?;
    let links = jail
        .root
        .iter()
        .filter(|entry| matches!(entry, RootEntry::Symlink { .. }))
        .count();
    match jail.root.len() {
        0 => row(f, "root", "the host's, closed by Landlock"),
        entries => row(
            f,
            "root",
            &format!("its own, {entries} entries, {links} of them links"),
        ),
    }
}

fn write_limits(plan: &Plan, f: &mut String) -> fmt::Result {
    let supervision = &plan.supervision;
    writeln!(f, "\nlimits")?;
    for name in LimitName::ALL {
        let LimitSpec { label, unit, .. } = name.spec();
        if !label.is_empty() {
            let amount = amount(*unit, supervision.limits.amount(name));
            row(f, label, &format!("{amount}{}", holder(plan, name)))?;
        }
    }
    row(f, "idle session", &end(supervision.session_idle))?;
    row(f, "any session", &end(supervision.session_age))?;
    let pause = |after| format!("paused after {}", seconds(after));
    match supervision.session_pause_after.map(pause) {
        Some(pause) => row(f, "unused session", &pause),
        None => Ok(()),
    }
}

/// Describes what enforces a limit, if that depends on the host.
fn holder(plan: &Plan, name: LimitName) -> String {
    let by_cgroup = |controller| {
        let cgroup = plan.cgroup.as_ref();
        cgroup.is_some_and(|cgroup| cgroup.limits_by(controller))
    };
    let holder = match name {
        LimitName::Memory if by_cgroup(Controller::Memory) => ", held by the cgroup",
        LimitName::Pids if by_cgroup(Controller::Pids) => ", held by the cgroup",
        LimitName::Cores if by_cgroup(Controller::Cpu) => ", held by the cgroup",
        LimitName::Pids if limits_processes(&plan.jail) => ", held by a resource limit",
        LimitName::Memory | LimitName::Pids => ", watched by the supervisor",
        LimitName::Cores => match plan.jail.worker.pin_to_cores {
            Some(cores) => return format!(", by pinning to {cores} of them"),
            None => ", which is all of them",
        },
        _ => "",
    };
    holder.to_owned()
}

fn limits_processes(jail: &ZygoteJail) -> bool {
    let mut rlimits = jail.worker.rlimits.iter();
    rlimits.any(|limit| limit.resource == RlimitResource::Processes)
}

fn end(after: Option<Duration>) -> String {
    after.map_or_else(
        || "never ended".to_owned(),
        |after| format!("ended after {}", seconds(after)),
    )
}
