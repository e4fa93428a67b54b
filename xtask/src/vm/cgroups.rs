//! Inside: the tree of cgroups that systemd makes for who is logged in.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use super::job::User;
use super::programs::ORDINARY;
use crate::Error;

const TOP: &str = "/sys/fs/cgroup";
/// What systemd enables for users' processes.
const CONTROLLERS: &str = "+cpu +memory +pids";

/// Makes it, and says where the programs are to be.
pub fn arrange(user: User) -> Result<PathBuf, Error> {
    enable(Path::new(TOP))?;
    let path = match user {
        User::Root => "user.slice/user-0.slice/session-1.scope",
        User::Plain => "user.slice/user-1000.slice/session-1.scope",
        User::Delegated => {
            "user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope"
        }
    };
    let mut dir = PathBuf::from(TOP);
    let mut is_his = false;
    for name in Path::new(path) {
        dir.push(name);
        fs::create_dir_all(&dir)?;
        is_his |= name == "user@1000.service";
        if is_his && user == User::Delegated {
            delegate(&dir)?;
        }
        // The last has processes, which allow no controllers beneath it.
        if !dir.ends_with(path) {
            enable(&dir)?;
        }
    }
    Ok(dir)
}

fn enable(dir: &Path) -> Result<(), Error> {
    let file = dir.join("cgroup.subtree_control");
    fs::write(&file, CONTROLLERS).map_err(|error| format!("{}: {error}", file.display()).into())
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
