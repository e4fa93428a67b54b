//! Tests the location of a session's own files.

use std::path::Path;

use super::hosts::{USER, host, machine, no_user_namespaces};
use super::planned;
use crate::host::Machine;
use crate::plan::{FileQuota, SessionFiles};

#[test]
fn with_mounts_session_files_are_in_a_tmpfs() {
    let plan = planned("filesystem.work_size = \"5MiB\"", &host(machine()));
    assert_eq!(plan.session_files, SessionFiles::Private);
    assert_eq!(plan.jail.worker.tmpfs[0].size, 5 << 20);
}

#[test]
fn without_mounts_session_files_are_in_a_host_directory() {
    let machine = Machine {
        user: USER,
        namespaces: no_user_namespaces(),
        ..machine()
    };
    let policy = "assurance.require = \"landlock\"\nfilesystem.work_size = \"3MiB\"\n\
                  filesystem.work_inodes = 77\nlimits.file_size = \"2MiB\"";
    let plan = planned(policy, &host(machine));
    let quota = FileQuota {
        size: 3 << 20,
        inodes: 77,
        largest: 2 << 20,
    };
    assert_eq!(plan.session_files, SessionFiles::HostDirectory(quota));
    let mut jail = plan.jail.clone();
    jail.put_work_in(Path::new("/var/tmp/s1"));
    let json = serde_json::to_string(&jail).unwrap();
    assert!(!json.contains("/work"), "{json}");
    assert_eq!(jail.worker.cwd, Path::new("/var/tmp/s1"));
    assert!(jail.root.is_empty() && jail.worker.tmpfs.is_empty() && jail.namespaces.is_none());
    for name in ["HOME", "TMPDIR"] {
        assert!(
            jail.env
                .contains(&(name.to_owned(), "/var/tmp/s1".to_owned())),
            "{name}"
        );
    }
}
