//! Tests that a guest reaches nothing of the host that the same code reaches outside.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::chown;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;

use crate::hidden::hides_processes;
use crate::runs::{Host, PYTHON, Running, outcome, write};
use crate::situation::Who;

const ACTS: &str = include_str!("acts.py");

type Report = BTreeMap<String, String>;

// Each act succeeds outside the sandbox for the same user, and fails in the user's guest.
pub fn acts_are_refused(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let script = host.tmp().join("acts.py");
    write(&script, ACTS);
    let canary = host.home().join("canary");
    write(&canary, "canary");
    chown(&canary, Some(who.uid()), None)?;
    let tcp = TcpListener::bind("127.0.0.1:0")?;
    let port = tcp.local_addr()?.port();
    let by_path = UnixListener::bind(host.home().join("socket"))?;
    chown(host.home().join("socket"), Some(who.uid()), None)?;
    let name = SocketAddr::from_abstract_name(format!("sandfork-canary-{port}"))?;
    let by_name = UnixListener::bind_addr(&name)?;
    let other = Running::start(host.command("/bin/sleep").arg("1000"));
    let arguments = [
        host.home().display().to_string(),
        other.pid().to_string(),
        port.to_string(),
    ];

    let outside = reported(host.command(PYTHON).arg(&script).args(&arguments))?;
    let undone: Vec<_> = outside.iter().filter(|(_, how)| *how != "done").collect();
    assert!(undone.is_empty(), "the control run did not do {undone:?}");

    let mut run = host.sandfork("run", &[]);
    let run = outcome(run.arg("--json").arg(&script).arg("--").args(&arguments));
    let inside: Report = serde_json::from_str(run["stdout"].as_str().unwrap_or(""))
        .map_err(|error| format!("{error}: {run}"))?;
    assert_eq!(inside.len(), outside.len());
    let done: Vec<_> = inside.iter().filter(|(_, how)| !refused(how)).collect();
    assert!(done.is_empty(), "the guest was not refused {done:?}");
    assert_eq!(fs::read_to_string(&canary)?, "canary");
    drop((tcp, by_path, by_name));
    Ok(())
}

fn refused(how: &str) -> bool {
    let is_hidden =
        how.starts_with("FileNotFoundError [Errno 2] No such file or directory: '/proc/");
    how.starts_with("PermissionError [Errno 1]")
        || how.starts_with("PermissionError [Errno 13]")
        || is_hidden && hides_processes()
}

fn reported(command: &mut Command) -> Result<Report, Failed> {
    let output = command.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    Ok(serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {stderr}"))?)
}

// The guest runs under an unused uid of the host, or as its launching user.
pub fn the_guest_is_unprivileged(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let run = host.run(&[], "import os; print(os.getresuid())");
    let id = match who {
        Who::Root => 2_147_000_000,
        _ => who.uid(),
    };
    assert_eq!(run["stdout"], format!("({id}, {id}, {id})\n"), "{run}");
    let groups = host.run(&[], "import os; print(os.getgroups())");
    assert!(who == Who::User || groups["stdout"] == "[]\n", "{groups}");
    Ok(())
}

// If guests could read the directory for temporary files, they would see each other's files.
pub fn shown_tmpdir_is_rejected(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let shown = host.home().join("shown");
    fs::create_dir(&shown)?;
    chown(&shown, Some(who.uid()), None)?;
    let mut run = host.sandfork("run", &[]);
    // Every guest can read /usr.
    let run = run
        .env("TMPDIR", Path::new("/usr/share"))
        .args(["-c", "pass"]);
    let output = run.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("set TMPDIR to another directory"),
        "{stderr}"
    );
    Ok(())
}
