//! Runs inside the guest: sets up the cgroups. For version 2, creates the tree that systemd makes for a
//! logged-in user.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::guest::mount_at;
use super::job::{Cgroups, User};
use super::programs::ORDINARY;

const TOP: &str = "/sys/fs/cgroup";
/// The controllers that systemd enables for users' processes.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// The hierarchies of version 1.
const HIERARCHIES: [&str; 3] = ["memory", "pids", "cpu,cpuacct"];

/// Mounts the hierarchies.
pub fn mount(cgroups: Cgroups) -> Result<()> {
    match cgroups {
        Cgroups::V2 => mount_at("cgroup2", TOP, "nsdelegate,memory_recursiveprot"),
        // All processes are in the root of each hierarchy.
        Cgroups::V1 => {
            mount_at("tmpfs", TOP, "mode=0755")?;
            for controllers in HIERARCHIES {
                mount_at("cgroup", &format!("{TOP}/{controllers}"), controllers)?;
            }
            Ok(())
        }
        Cgroups::Absent => Ok(()),
    }
}

/// Creates the cgroup of the program with this number, if it runs in one. As under `systemd-run`, each program
/// has its own scope: what was delegated to an earlier program has been divided into children.
pub fn arrange(cgroups: Cgroups, user: User, number: usize) -> Result<Option<PathBuf>> {
    match cgroups {
        Cgroups::V2 => arrange_v2(user, number).map(Some),
        Cgroups::V1 | Cgroups::Absent => Ok(None),
    }
}

fn arrange_v2(user: User, number: usize) -> Result<PathBuf> {
    enable(Path::new(TOP))?;
    let scope =
        format!("user.slice/user-1000.slice/user@1000.service/app.slice/run-{number}.scope");
    let (path, delegated) = match user {
        User::Root => ("user.slice/user-0.slice/session-1.scope", None),
        User::Plain => ("user.slice/user-1000.slice/session-1.scope", None),
        User::Delegated => (scope.as_str(), Some("user@1000.service")),
        User::Service => ("system.slice/app.service", Some("app.service")),
        User::Subgroup => ("system.slice/app.service/main", Some("app.service")),
    };
    let mut dir = PathBuf::from(TOP);
    let mut is_his = false;
    let mut names = Path::new(path).iter().peekable();
    while let Some(name) = names.next() {
        dir.push(name);
        fs::create_dir_all(&dir)?;
        // Beneath user@1000.service, the user's own systemd creates the cgroups.
        if is_his && user == User::Delegated {
            give(&dir)?;
        }
        is_his |= delegated.is_some_and(|delegated| name == delegated);
        if is_his {
            delegate(&dir)?;
        }
        // A cgroup with processes cannot enable controllers for its children. A service enables them for
        // its own children itself.
        let is_managed = user != User::Subgroup || !is_his;
        if names.peek().is_some() && is_managed {
            enable(&dir)?;
        }
    }
    Ok(dir)
}

/// Enables those of the controllers that this kernel has; it may have been booted without one.
fn enable(dir: &Path) -> Result<()> {
    let available = fs::read_to_string(dir.join("cgroup.controllers"))?;
    let wanted = available
        .split_whitespace()
        .filter(|name| CONTROLLERS.contains(name));
    let wanted: Vec<String> = wanted.map(|name| format!("+{name}")).collect();
    let file = dir.join("cgroup.subtree_control");
    fs::write(&file, wanted.join(" ")).with_context(|| file.display().to_string())
}

/// Makes the user the owner of a directory with all its files, as if the user had created it.
fn give(dir: &Path) -> Result<()> {
    chown(dir, Some(ORDINARY), Some(ORDINARY))?;
    for file in fs::read_dir(dir)? {
        chown(file?.path(), Some(ORDINARY), Some(ORDINARY))?;
    }
    Ok(())
}

/// Makes the user the owner of what systemd delegates: the directory, and the files that the kernel lists in
/// `/sys/kernel/cgroup/delegate`.
fn delegate(dir: &Path) -> Result<()> {
    chown(dir, Some(ORDINARY), Some(ORDINARY))?;
    for file in ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
        chown(dir.join(file), Some(ORDINARY), Some(ORDINARY))?;
    }
    Ok(())
}
