#![allow(clippy::unwrap_used)]

use super::v2::choose as choose_v2;
use super::*;

/// A cgroup hierarchy, simulated by files in an ordinary directory.
#[derive(Default)]
struct FakeTree {
    writable: Vec<&'static str>,
    available: Vec<(&'static str, &'static [Controller])>,
    enabled: Vec<(&'static str, &'static [Controller])>,
    alone_in: Option<&'static str>,
    empty: Option<&'static str>,
}

const ALL: &[Controller] = &Controller::LIMITING;
const NO_CPU: &[Controller] = &[Controller::Memory, Controller::Pids];

impl FakeTree {
    fn write(&self, root: &Path) {
        let write = |path: &str, name: &str, text: &str| {
            let dir = root.join(path.trim_start_matches('/'));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(name), text).unwrap();
        };
        for path in &self.writable {
            let procs = match path {
                _ if self.alone_in == Some(path) => std::process::id().to_string(),
                _ if self.empty == Some(path) => String::new(),
                _ => "1\n".to_owned(),
            };
            write(path, "cgroup.procs", &procs);
        }
        let tables = [
            ("cgroup.controllers", &self.available),
            ("cgroup.subtree_control", &self.enabled),
        ];
        for (name, table) in tables {
            for (path, controllers) in table {
                let names = controllers.iter().map(ToString::to_string);
                write(path, name, &names.collect::<Vec<_>>().join(" "));
            }
        }
    }
}

const TOP: &str = "/sys/fs/cgroup";
const SCOPE: &str = "/sys/fs/cgroup/user.slice/app.slice/run-1.scope";
const SLICE: &str = "/sys/fs/cgroup/user.slice/app.slice";

/// Returns the chosen support in debug notation, with the paths of the simulated hierarchy.
fn choose(own: &str, tree: &FakeTree) -> String {
    let root = tempfile::tempdir().unwrap();
    tree.write(root.path());
    let at = |path: &str| root.path().join(path.trim_start_matches('/'));
    let found = format!("{:?}", choose_v2(&at(TOP), &at(own)));
    found.replace(root.path().to_str().unwrap(), "")
}

fn v2(dir: &str, controllers: &[Controller], entry: V2Entry) -> String {
    let support = CgroupSupport::V2 {
        dir: dir.into(),
        controllers: controllers.iter().copied().collect(),
        entry,
    };
    format!("{support:?}")
}

fn nowhere(reason: CgroupAbsence) -> String {
    format!("{:?}", CgroupSupport::Nowhere(reason))
}

#[test]
fn own_delegated_scope_is_entered_by_moving() {
    let tree = FakeTree {
        writable: vec![SCOPE, SLICE],
        available: vec![(SCOPE, ALL)],
        enabled: vec![(SLICE, ALL)],
        alone_in: Some(SCOPE),
        ..FakeTree::default()
    };
    assert_eq!(choose(SCOPE, &tree), v2(SCOPE, ALL, V2Entry::MoveSelf));
}

#[test]
fn scope_above_the_supervisor_leaf_is_ready() {
    let leaf = "/sys/fs/cgroup/user.slice/app.slice/run-1.scope/sandfork-supervisor";
    let tree = FakeTree {
        writable: vec![leaf, SCOPE, SLICE],
        available: vec![(leaf, ALL), (SCOPE, ALL)],
        enabled: vec![(SCOPE, ALL), (SLICE, ALL)],
        alone_in: Some(leaf),
        ..FakeTree::default()
    };
    assert_eq!(choose(leaf, &tree), v2(SCOPE, ALL, V2Entry::Ready));
}

#[test]
fn occupied_cgroup_falls_back_to_an_ancestor() {
    let tree = FakeTree {
        writable: vec![SCOPE, SLICE],
        available: vec![(SCOPE, ALL)],
        enabled: vec![(SLICE, ALL)],
        ..FakeTree::default()
    };
    assert_eq!(choose(SCOPE, &tree), v2(SLICE, ALL, V2Entry::Ready));
}

#[test]
fn delegation_without_cpu_is_reported() {
    let tree = FakeTree {
        writable: vec![SCOPE, SLICE],
        available: vec![(SCOPE, NO_CPU)],
        enabled: vec![(SLICE, NO_CPU)],
        ..FakeTree::default()
    };
    assert_eq!(choose(SCOPE, &tree), v2(SLICE, NO_CPU, V2Entry::Ready));
}

const SERVICE: &str = "/sys/fs/cgroup/system.slice/app.service";
const PART: &str = "/sys/fs/cgroup/system.slice/app.service/main";

/// `Delegate=yes` with `DelegateSubgroup=main`: a program, and the supervisor that it started.
#[test]
fn occupied_subgroup_falls_back_to_the_delegated_parent() {
    let tree = FakeTree {
        writable: vec![PART, SERVICE],
        available: vec![(SERVICE, ALL)],
        empty: Some(SERVICE),
        ..FakeTree::default()
    };
    assert_eq!(choose(PART, &tree), v2(SERVICE, ALL, V2Entry::Ready));
}

/// The cgroups above the delegated one belong to the service manager.
#[test]
fn slice_of_the_service_manager_is_not_used() {
    let manager = "/sys/fs/cgroup/user.slice";
    let tree = FakeTree {
        writable: vec![SCOPE, SLICE, manager],
        available: vec![(SLICE, ALL), (manager, ALL)],
        empty: Some(SLICE),
        ..FakeTree::default()
    };
    let reason = CgroupAbsence::NoControllers(SCOPE.into());
    assert_eq!(choose(SCOPE, &tree), nowhere(reason));
}

#[test]
fn occupied_delegated_cgroup_is_reported() {
    let tree = FakeTree {
        writable: vec![SERVICE],
        available: vec![(SERVICE, ALL)],
        ..FakeTree::default()
    };
    let reason = CgroupAbsence::Occupied(SERVICE.into());
    assert_eq!(choose(SERVICE, &tree), nowhere(reason));
}

#[test]
fn ordinary_login_cannot_create_cgroups() {
    let tree = FakeTree {
        available: vec![(SCOPE, ALL)],
        ..FakeTree::default()
    };
    let reason = CgroupAbsence::NotWritable(SCOPE.into());
    assert_eq!(choose(SCOPE, &tree), nowhere(reason));
}

#[test]
fn hybrid_tree_without_controllers_is_unusable() {
    let tree = FakeTree {
        writable: vec![TOP],
        ..FakeTree::default()
    };
    let reason = CgroupAbsence::NoControllers(TOP.into());
    assert_eq!(choose(TOP, &tree), nowhere(reason));
}

#[test]
fn proc_self_cgroup_is_parsed() {
    let own = OwnCgroups::parse("9:name=systemd:/\n4:memory:/a/b\n2:cpu,cpuacct:/c:d\n0::/e\n");
    assert_eq!(own.v1["memory"], Path::new("/a/b"));
    assert_eq!(own.v1["cpuacct"], Path::new("/c:d"));
    assert_eq!(own.v2.unwrap(), Path::new("/e"));
}

#[test]
fn container_cgroup_is_found_under_its_mount() {
    let mounts = mountinfo::parse(
        "33 31 0:32 /docker/1f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
         34 31 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n",
    );
    let own = OwnCgroups::parse("4:memory:/docker/1f\n5:pids:/x\n6:cpu:/\n");
    let dir = |controller| v1_directory(&mounts, &own, controller);
    let memory = "/sys/fs/cgroup/memory";
    assert_eq!(
        dir(Controller::Memory),
        Some((memory.into(), memory.into()))
    );
    let pids = "/sys/fs/cgroup/pids";
    assert_eq!(
        dir(Controller::Pids),
        Some((pids.into(), format!("{pids}/x").into()))
    );
    assert_eq!(dir(Controller::Cpu), None);
}
