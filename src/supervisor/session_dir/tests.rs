#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use nix::fcntl::OFlag;
use nix::unistd::{Pid, getpid};
use tempfile::TempDir;

use super::*;
use sandfork_jail::program::{
    Identity, LandlockRules, PathAccess, PathRule, ProcMount, ProcessMemory, WorkerJail,
};

/// Returns a jail without namespaces in which the guest may read these paths.
fn jail(readable: &[&Path]) -> ZygoteJail {
    let rule = |path: &&Path| PathRule {
        path: path.to_path_buf(),
        allow: PathAccess::Read,
    };
    ZygoteJail {
        identity: Identity {
            drop_to: None,
            inside: HostIds { uid: 1, gid: 1 },
        },
        namespaces: None,
        root: Vec::new(),
        hostname: String::new(),
        machine: None,
        landlock: Some(LandlockRules {
            abi: 1,
            paths: readable.iter().map(rule).collect(),
        }),
        filters: Vec::new(),
        env: Vec::new(),
        worker: WorkerJail {
            tmpfs: Vec::new(),
            proc: ProcMount::Absent,
            ptys: None,
            sockets: Vec::new(),
            addresses: Vec::new(),
            rlimits: Vec::new(),
            memory: ProcessMemory::Mapped(0),
            process_headroom: None,
            pin_to_cores: None,
            filters: Vec::new(),
            cwd: "/work".into(),
        },
    }
}

fn place() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn refusal(place: &Path, jail: &ZygoteJail) -> String {
    let refused = SessionRoot::create_in(place, jail).expect_err("it is refused");
    refused.to_string()
}

const QUOTA: FileQuota = FileQuota {
    size: 1 << 20,
    inodes: 100,
    largest: 1 << 30,
};

#[test]
fn dropped_session_removes_everything_a_guest_made() {
    let place = place();
    let canary = place.path().join("canary");
    fs::write(&canary, "still here").unwrap();
    let root = Arc::new(SessionRoot::create_in(place.path(), &jail(&[])).unwrap());
    let session = root.directory().unwrap();
    let mode = fs::metadata(session.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);

    symlink(&canary, session.path().join("link")).unwrap();
    symlink(place.path(), session.path().join("directory")).unwrap();
    let closed = session.path().join("closed/within");
    fs::create_dir_all(&closed).unwrap();
    fs::write(closed.join("file"), "").unwrap();
    for directory in [&closed, closed.parent().unwrap()] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o000)).unwrap();
    }
    nest_deeper_than_the_descriptor_limit(&session.dir);

    drop(session);
    drop(root);
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(fs::read_to_string(&canary).unwrap(), "still here");
}

fn nest_deeper_than_the_descriptor_limit(top: &OwnedFd) {
    let mut dir = top.try_clone().unwrap();
    for _ in 0..1500 {
        mkdirat(&dir, "d", Mode::S_IRWXU).unwrap();
        dir = openat(&dir, "d", DIRECTORY, Mode::empty()).unwrap();
    }
}

#[test]
fn directories_of_killed_supervisors_are_swept() {
    let place = place();
    let own_name = instance_name::own_name().unwrap();
    let own_scope = own_name.split('-').nth(1).unwrap();
    let sessions = |scope: &str, pid: &str, started: &str| {
        let name = format!("sandfork-{scope}-{pid}-{started}-0.0123");
        let session = place.path().join(&name).join("w0/of a guest");
        fs::create_dir_all(session).unwrap();
        place.path().join(name)
    };
    let own = getpid().to_string();
    let abandoned = sessions(own_scope, &own, "1");
    // A supervisor on another host that shares the directory. The initial namespaces have the same inode numbers on all
    // hosts.
    let namespace = fs::metadata("/proc/self/ns/pid").unwrap().ino();
    let elsewhere = sessions(&namespace.to_string(), &own, "1");
    let root = Arc::new(SessionRoot::create_in(place.path(), &jail(&[])).unwrap());
    assert!(!abandoned.exists());
    assert!(elsewhere.exists());
    // A supervisor does not remove the directory of a running one.
    let other = SessionRoot::create_in(place.path(), &jail(&[])).unwrap();
    assert!(root.path.exists() && other.path.exists());
}

#[test]
fn files_count_by_allocated_blocks() {
    let place = place();
    let root = Arc::new(SessionRoot::create_in(place.path(), &jail(&[])).unwrap());
    let session = root.directory().unwrap();
    let size = || session.count(QUOTA).size;
    assert_eq!(size(), Size::default());

    let path = session.path().join("file");
    fs::write(&path, vec![1; 100_000]).unwrap();
    fs::hard_link(&path, session.path().join("the same")).unwrap();
    let sparse = File::create(session.path().join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    let found = size();
    assert_eq!(found.inodes, 2);
    assert!((100_000..200_000).contains(&found.bytes), "{found:?}");

    let many = session.path().join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..200 {
        File::create(many.join(number.to_string())).unwrap();
    }
    assert!(size().inodes > QUOTA.inodes);
}

#[test]
fn unlinked_file_counts_while_it_is_open() {
    let place = place();
    let root = Arc::new(SessionRoot::create_in(place.path(), &jail(&[])).unwrap());
    let session = root.directory().unwrap();
    let path = session.path().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![1; 500_000]).unwrap();
    file.rewind().unwrap();
    fs::remove_file(&path).unwrap();
    // The holder is another process, because other tests of this process may hold such files too.
    let held_by = |stdin: Stdio| {
        let mut holder = Command::new("sleep")
            .arg("600")
            .stdin(stdin)
            .spawn()
            .unwrap();
        let mut count = session.count(QUOTA);
        count.add_nameless(Pid::from_raw(holder.id().cast_signed()));
        holder.kill().unwrap();
        holder.wait().unwrap();
        count.size
    };
    assert!(held_by(file.into()).bytes >= 500_000);
    assert_eq!(held_by(Stdio::null()), Size::default());
}

#[test]
fn directory_without_permissions_is_counted() {
    let place = place();
    let root = Arc::new(SessionRoot::create_in(place.path(), &jail(&[])).unwrap());
    let session = root.directory().unwrap();
    let closed = session.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("file"), "").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(session.count(QUOTA).size.inodes, 2);
}

#[test]
fn unsafe_parent_directories_are_refused() {
    let place = place();
    let missing = place.path().join("missing");
    assert!(refusal(&missing, &jail(&[])).contains("set TMPDIR to another directory"));

    let shown = refusal(place.path(), &jail(&[place.path().parent().unwrap()]));
    assert!(shown.contains("every guest can read"), "{shown}");

    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let open = refusal(place.path(), &jail(&[]));
    assert!(open.contains("no sticky bit"), "{open}");

    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    SessionRoot::create_in(place.path(), &jail(&[])).unwrap();

    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let mut for_another = jail(&[]);
    for_another.identity.drop_to = Some(HostIds { uid: 1, gid: 1 });
    let closed = refusal(place.path(), &for_another);
    assert!(closed.contains("cannot enter"), "{closed}");
}

#[test]
fn descriptors_are_close_on_exec() {
    assert!(DIRECTORY.contains(OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW));
}
