//! runc and crun: a bundle (OCI runtime specification) with the host's programs read-only, without an image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use nix::unistd::{getegid, geteuid};
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::processes::Process;
use crate::subject::{Peer, Subject};

/// The host directories that programs need.
const SHOWN: [&str; 6] = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc"];

/// One container after another: each is created, run and deleted.
pub fn container(peer: Peer, runtime: &str, ground: &Ground) -> Result<Process> {
    let place = tempfile::tempdir()?;
    for code in ["print(6 * 7)", "pass"] {
        let bundle = bundle(place.path(), code);
        fs::create_dir_all(bundle.join("rootfs"))?;
        let config = config(ground, code).to_string();
        fs::write(bundle.join("config.json"), config)?;
    }
    let container = Process::of_code(Subject::Peer(peer), |code| {
        let mut command = Command::new(runtime);
        command
            .arg("--root")
            .arg(place.path().join("state"))
            .args(["run", "--bundle"])
            .arg(bundle(place.path(), code))
            // Container ids are shared by all users of this machine, because cgroups are named
            // after them.
            .arg(format!("sandfork-bench-{runtime}-{}", std::process::id()));
        command
    })?;
    Ok(container.keeping(place))
}

/// Returns the bundle of a piece of code. Each has its own, because the code is part of the configuration.
fn bundle(place: &Path, code: &str) -> PathBuf {
    let name: String = code.chars().filter(char::is_ascii_alphanumeric).collect();
    place.join(name)
}

fn config(ground: &Ground, code: &str) -> Value {
    let (user, group) = (geteuid(), getegid());
    let as_root = user.is_root();
    let mut namespaces = vec!["pid", "network", "ipc", "uts", "mount", "cgroup"];
    if !as_root {
        namespaces.push("user");
    }
    let namespaces: Vec<Value> = namespaces.iter().map(|it| json!({"type": it})).collect();
    let map = |id: u32| json!([{"containerID": 0, "hostID": id, "size": 1}]);
    let inside = if as_root { 65_534 } else { 0 };
    let mut linux = json!({
        "namespaces": namespaces,
        "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi"],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    });
    if !as_root {
        linux["uidMappings"] = map(user.as_raw());
        linux["gidMappings"] = map(group.as_raw());
    }
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false, "user": {"uid": inside, "gid": inside}, "cwd": "/",
            "args": [ground.python, "-c", code], "env": ["PATH=/usr/bin:/bin"],
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "guest",
        "mounts": mounts(ground),
        "linux": linux,
    })
}

fn mounts(ground: &Ground) -> Vec<Value> {
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}),
        json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]}),
    ];
    for shown in shown_directories(ground) {
        // A symlink on the host becomes a directory inside, with the same files.
        let Ok(source) = fs::canonicalize(&shown) else {
            continue;
        };
        mounts.push(json!({
            "destination": shown, "type": "bind", "source": source,
            "options": ["rbind", "ro", "nosuid", "nodev"],
        }));
    }
    mounts
}

/// Returns the directories of `SHOWN`, and those of the interpreter if they are elsewhere.
fn shown_directories(ground: &Ground) -> Vec<PathBuf> {
    let mut shown: Vec<PathBuf> = SHOWN.map(PathBuf::from).to_vec();
    let directory = ground.python.parent().unwrap_or(&ground.python);
    for own in [ground.installation.as_path(), directory] {
        if !shown.iter().any(|path| own.starts_with(path)) {
            shown.push(own.to_owned());
        }
    }
    shown
}
