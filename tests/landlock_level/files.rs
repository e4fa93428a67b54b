//! Tests of the files of sessions.

use std::fs;
use std::os::unix::fs::symlink;

use libtest_mimic::Failed;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};

use crate::apart;
use crate::runs::{Host, PATIENT};
use crate::situation::Who;

pub fn files_are_limited_and_removed(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let full = "n = 0
while True:
    open(str(n), 'wb').write(bytes(1 << 20)); n += 1";
    let run = host.run(&["filesystem.work_size=16MiB"], full);
    assert_eq!(
        run["limit"],
        json!({"name": "filesystem.work_size", "by": "watchdog"}),
        "{run}"
    );
    assert_eq!(run["status"], "file-limit");
    let many = "n = 0
while True:
    open(str(n), 'w').close(); n += 1";
    let run = host.run(&["filesystem.work_inodes=500"], many);
    assert_eq!(
        run["limit"],
        json!({"name": "filesystem.work_inodes", "by": "watchdog"}),
        "{run}"
    );
    let nameless = "import os
kept = []
while True:
    file = open('x', 'wb'); os.unlink('x')
    file.write(bytes(1 << 20)); file.flush(); kept.append(file)";
    let run = host.run(&["filesystem.work_size=16MiB"], nameless);
    assert_eq!(run["limit"]["name"], "filesystem.work_size", "{run}");
    assert!(host.leftovers().is_empty(), "{:?}", host.leftovers());
    Ok(())
}

pub fn files_of_the_guest_are_removed(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let canary = host.home().join("canary");
    fs::write(&canary, "canary")?;
    symlink(&canary, host.home().join("link"))?;
    let code = format!(
        "import os
os.symlink({home:?}, 'home'); os.symlink({canary:?}, 'canary')
os.makedirs('closed/within'); open('closed/within/file', 'w').close()
for path in ('closed/within', 'closed'):
    handle = os.open(path, os.O_RDONLY); os.fchmod(handle, 0); os.close(handle)
os.umask(0o777); os.mkdir('masked'); os.umask(0)
for _ in range(1200): os.mkdir('d'); os.chdir('d')
print('made')",
        home = host.home().display().to_string(),
        canary = canary.display().to_string(),
    );
    let run = host.run(&PATIENT, &code);
    assert_eq!(run["stdout"], "made\n", "{run}");
    assert!(host.leftovers().is_empty(), "{:?}", host.leftovers());
    assert_eq!(fs::read_to_string(&canary)?, "canary");
    Ok(())
}

pub fn tasks_have_their_files(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let code = "import os
assert os.stat('a/b').st_uid == os.getuid()
open('a/b', 'a').write('!')
print(open('a/b').read(), sorted(os.listdir()))";
    let fits = json!({"id": 1, "code": code, "files": {"a/b": "mine", "/work/c": ""}});
    let alone = json!({"id": 2, "code": "import os; print(os.listdir())"});
    let large = json!({"id": 3, "code": "1", "files": {"large": "x".repeat(2 << 20)}});
    let tasks = host.tmp().join("tasks.jsonl");
    fs::write(&tasks, format!("{fits}\n{alone}\n{large}\n"))?;
    let settings = ["filesystem.work_size=1MiB"];
    let mut map = host.sandfork("map", &settings);
    let output = map
        .args(["--ordered", "--jobs", "1"])
        .arg(&tasks)
        .output()?;
    let results = String::from_utf8(output.stdout)?;
    let results: Vec<Value> = results
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let message = String::from_utf8(output.stderr)?;
    assert_eq!(results.len(), 2, "{message}");
    assert_eq!(results[0]["stdout"], "mine! ['a', 'c']\n", "{}", results[0]);
    assert_eq!(results[1]["stdout"], "[]\n", "{}", results[1]);
    assert!(
        message.contains("tasks.jsonl:3: `files`: the files take 2097152 bytes"),
        "{message}"
    );
    fs::remove_file(&tasks)?;
    assert!(host.leftovers().is_empty(), "{:?}", host.leftovers());
    Ok(())
}

// Only root can create so small a disk, in a mount namespace of the test's thread.
pub fn full_disk_is_reported_as_the_hosts(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    assert!(apart::have_own_mounts(), "root may have them");
    let options = Some("size=1m,nr_inodes=64,mode=1777");
    let tmpfs = Some("tmpfs");
    mount(tmpfs, &host.tmp(), tmpfs, MsFlags::empty(), options)?;
    let fill = "with open('all', 'wb') as file:
    while True: file.write(bytes(1 << 16))";
    let run = host.run(&["filesystem.work_size=16MiB"], fill);
    assert_eq!(run["status"], "exception", "{run}");
    assert_eq!(run["limit"], Value::Null, "{run}");
    let message = run["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("No space left on device"), "{run}");

    let mut taken = Vec::new();
    let refused = loop {
        let path = host.tmp().join(taken.len().to_string());
        match fs::write(&path, "") {
            Ok(()) => taken.push(path),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
    let output = host.sandfork("run", &[]).args(["-c", "1"]).output()?;
    let message = String::from_utf8(output.stderr)?;
    let place = host.tmp().display().to_string();
    assert!(!output.status.success());
    for word in [&place[..], "No space left on device"] {
        assert!(message.contains(word), "{message}");
    }
    for path in taken {
        fs::remove_file(path)?;
    }
    assert_eq!(host.run(&[], "print('on')")["stdout"], "on\n");
    assert!(host.leftovers().is_empty(), "{:?}", host.leftovers());
    umount2(&host.tmp(), MntFlags::MNT_DETACH)?;
    Ok(())
}
