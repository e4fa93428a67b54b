//! Where a session's own files are.

use std::path::Path;

use super::hosts::{USER, host, machine, no_user_namespaces};
use super::planned;
use crate::host::Machine;
use crate::plan::SessionFiles;

#[test]
fn with_mounts_nothing_is_replaced() {
    let plan = planned("", &host(machine()));
    assert_eq!(plan.session_files, SessionFiles::Private);
    assert_eq!(
        plan.jail_with_session_in(Path::new("/var/tmp/s1")),
        plan.jail
    );
}

#[test]
fn without_mounts_the_sessions_directory_takes_the_place_of_work() {
    let machine = Machine {
        user: USER,
        namespaces: no_user_namespaces(),
        ..machine()
    };
    let plan = planned("assurance.require = \"landlock\"", &host(machine));
    assert_eq!(plan.session_files, SessionFiles::HostDirectory);
    let jail = plan.jail_with_session_in(Path::new("/var/tmp/s1"));
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
