//! The files of sessions.

use std::fs;
use std::os::unix::fs::symlink;

use libtest_mimic::Failed;
use serde_json::json;

use crate::runs::Host;
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
    assert!(host.left().is_empty(), "{:?}", host.left());
    Ok(())
}

pub fn nothing_that_a_guest_made_is_left(who: Who) -> Result<(), Failed> {
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
    let run = host.run(&[], &code);
    assert_eq!(run["stdout"], "made\n", "{run}");
    assert!(host.left().is_empty(), "{:?}", host.left());
    assert_eq!(fs::read_to_string(&canary)?, "canary");
    Ok(())
}
