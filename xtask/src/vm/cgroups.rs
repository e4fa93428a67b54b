//! Inside: the tree of cgroups that systemd makes for who is logged in.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use super::job::User;
use super::programs::ORDINARY;
use crate::Error;

const TOP: &str = "/sys/fs/cgroup";
/// What systemd enables for users' processes.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// Makes it, and says where the programs are to be.
pub fn arrange(user: User) -> Result<PathBuf, Error> {
    enable(Path::new(TOP))?;
    let (path, delegated) = match user {
        User::Root => ("user.slice/user-0.slice/session-1.scope", None),
        User::Plain => ("user.slice/user-1000.slice/session-1.scope", None),
        User::Delegated => (
            "user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope",
            Some("user@1000.service"),
        ),
        User::Service => ("system.slice/app.service", Some("app.service")),
        User::Subgroup => ("system.slice/app.service/main", Some("app.service")),
    };
    let mut dir = PathBuf::from(TOP);
    let mut is_his = false;
    let mut names = Path::new(path).iter().peekable();
    while let Some(name) = names.next() {
        dir.push(name);
        fs::create_dir_all(&dir)?;
        is_his |= delegated.is_some_and(|delegated| name == delegated);
        if is_his {
            delegate(&dir)?;
        }
        // One with processes allows no controllers beneath it; what a service has beneath it is
        // for the service to enable.
        let is_managed = user != User::Subgroup || !is_his;
        if names.peek().is_some() && is_managed {
            enable(&dir)?;
        }
    }
    Ok(dir)
}

/// Those that this kernel has, which was perhaps booted without one.
fn enable(dir: &Path) -> Result<(), Error> {
    let available = fs::read_to_string(dir.join("cgroup.controllers"))?;
    let wanted = available
        .split_whitespace()
        .filter(|name| CONTROLLERS.contains(name));
    let wanted: Vec<String> = wanted.map(|name| format!("+{name}")).collect();
    let file = dir.join("cgroup.subtree_control");
    let done = fs::write(&file, wanted.join(" "));
    done.map_err(|error| format!("{}: {error}", file.display()).into())
}

/// What systemd gives away: the directory, and the files that the kernel names in
/// `/sys/kernel/cgroup/delegate`.
fn delegate(dir: &Path) -> Result<(), Error> {
    chown(dir, Some(ORDINARY), Some(ORDINARY))?;
    for file in ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
        chown(dir.join(file), Some(ORDINARY), Some(ORDINARY))?;
    }
    Ok(())
}
