//! Tests of policy files on a real file system.

use std::fs;
use std::path::Path;

use nix::sys::stat::Mode;
use sandfork::internals::policy::PolicySettings as _;
use sandfork::{FileSystem, Policy, PolicySource};
use tempfile::TempDir;

fn load(path: &Path) -> Result<Policy, String> {
    let path = path.to_str().unwrap();
    Policy::load(path, &[], &FileSystem).map_err(|error| error.to_string())
}

fn refusal_of(name: &str, bytes: &[u8]) -> String {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    load(&path)
        .expect_err(name)
        .replace(directory.path().to_str().unwrap(), "DIR")
}

#[test]
fn files_extend_each_other_through_directories() {
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("tenants")).unwrap();
    fs::write(directory.path().join("base.toml"), "limits.pids = 7").unwrap();
    let tenant = directory.path().join("tenants/a.toml");
    fs::write(&tenant, "extends = '../base.toml'\npython.path = ['lib']").unwrap();
    let policy = load(&tenant).unwrap();
    assert_eq!(policy.limits().pids(), 7);
    assert_eq!(
        policy.python().path[0].value,
        directory.path().join("tenants/lib")
    );
}

#[test]
fn a_file_of_one_mebibyte_is_the_longest() {
    let mut text = vec![b'#'; (1 << 20) - 1];
    text.push(b'\n');
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("long.toml");
    fs::write(&path, &text).unwrap();
    assert!(load(&path).is_ok());
    text.push(b'\n');
    assert_eq!(
        refusal_of("longer.toml", &text),
        "policy: DIR/longer.toml cannot be read: longer than 1 MiB; name a policy, which is a file of at most 1 MiB in UTF-8"
    );
}

#[test]
fn a_file_that_is_not_utf8_is_refused() {
    assert_eq!(
        refusal_of("latin.toml", b"description = '\xe9'"),
        "policy: DIR/latin.toml cannot be read: not UTF-8; name a policy, which is a file of at most 1 MiB in UTF-8"
    );
}

#[test]
fn non_files_are_rejected_at_once() {
    let directory = TempDir::new().unwrap();
    let fifo = directory.path().join("fifo.toml");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    for path in [fifo.as_path(), directory.path(), Path::new("/dev/zero")] {
        let refused = load(path).expect_err("not a regular file");
        assert!(
            refused.contains("cannot be read: not a regular file"),
            "{refused}"
        );
    }
}

#[test]
fn the_current_directory_is_the_process_s_own() {
    assert_eq!(
        FileSystem.current_dir().unwrap(),
        std::env::current_dir().unwrap()
    );
}
