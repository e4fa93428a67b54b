//! The remedies for missing layers, with the exact command if there is one.

use std::path::Path;

use crate::host::{
    CgroupAbsence, CgroupSupport, ChainStep, Device, HostUser, Refusal, RefusalCause,
};
use sandfork_jail::DATA;

pub(super) const LANDLOCK_NOT_ENABLED: &str = "add `landlock` to the kernel's boot parameters, as \
     `lsm=landlock,` followed by what `cat /sys/kernel/security/lsm` prints, and boot again";

pub(super) const LANDLOCK_NOT_BUILT: &str =
    "run Linux 5.13 or later built with CONFIG_SECURITY_LANDLOCK=y";

pub(super) const FILTERED: &str = "remove or widen the filter: in a systemd unit, remove `SystemCallFilter=` and \
     `RestrictNamespaces=`, or add `@sandbox` to the former, which allows level `landlock`";

/// The remedy for a layer that needs namespaces.
pub(super) const AS_FOR_NAMESPACES: &str = "as for `namespaces`";

/// Returns the remedy for a hard limit on open files that is too low for the data socket's descriptor.
pub(super) fn open_files() -> String {
    let least = DATA + 1;
    format!(
        "raise it to {least} or more (`ulimit -Hn`, `LimitNOFILE=` of a unit, or `docker run --ulimit nofile={least}`)"
    )
}

pub(super) fn namespaces(user: HostUser, refusal: &Refusal) -> String {
    match refusal.cause {
        RefusalCause::NoneLeft(kind) => {
            format!("allow more of them: `sudo sysctl -w user.max_{kind}_namespaces=28633`")
        }
        RefusalCause::UnprivilegedCloneOff => {
            "allow them: `sudo sysctl -w kernel.unprivileged_userns_clone=1`".to_owned()
        }
        RefusalCause::AppArmor => "allow them: `sudo sysctl -w \
             kernel.apparmor_restrict_unprivileged_userns=0`"
            .to_owned(),
        RefusalCause::Container => format!("start the container with `{}`", docker(refusal.step)),
        RefusalCause::Filter => FILTERED.to_owned(),
        RefusalCause::RootWithoutSysAdmin | RefusalCause::RootWithoutCapabilities => {
            "run as an ordinary user, or as root with CAP_SYS_ADMIN (in a container: `docker run --user 1000`, or \
             `--cap-add SYS_ADMIN`)"
                .to_owned()
        }
        RefusalCause::NoDevice(Device { path, numbers }) => {
            format!("make {path}, which sandboxes show: `sudo mknod -m 666 {path} c {numbers}`")
        }
        RefusalCause::NotDumpable => {
            "this process has changed its user: have it call prctl(2) with PR_SET_DUMPABLE and 1 afterwards, or start it as \
             that user"
                .to_owned()
        }
        RefusalCause::Initramfs => {
            "leave the initramfs for a root file system (switch_root(8))".to_owned()
        }
        RefusalCause::Unknown => format!(
            "allow uid {} to make user namespaces (user_namespaces(7)); `unshare --user \
             --map-root-user --mount --pid --fork --mount-proc true` shows when it may",
            user.uid
        ),
    }
}

/// Returns the command that starts a container with the required settings. Masked parts of `/proc` affect only
/// the mount of a new procfs.
fn docker(step: ChainStep) -> &'static str {
    match step {
        ChainStep::MountProc => "docker run --security-opt systempaths=unconfined",
        _ => {
            "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
             --security-opt systempaths=unconfined"
        }
    }
}

/// Explains why there are no cgroups, with the remedy.
pub(super) fn cgroup_absence(user: HostUser, reason: &CgroupAbsence) -> (String, String) {
    match reason {
        CgroupAbsence::NotMounted => (
            "no cgroup file system is mounted".to_owned(),
            "mount it: `sudo mount -t cgroup2 none /sys/fs/cgroup`".to_owned(),
        ),
        CgroupAbsence::Unread { file, errno } => (
            format!("could not read {}: {errno}", file.display()),
            "free the exhausted resource of the host, and try again".to_owned(),
        ),
        CgroupAbsence::NotWritable(dir) if user.is_root() => read_only(dir),
        CgroupAbsence::NotWritableV1(dir) if user.is_root() => read_only(dir),
        CgroupAbsence::NotWritable(dir) => {
            (not_permitted(user, dir), delegate(dir, "`Delegate=yes`"))
        }
        CgroupAbsence::NotWritableV1(dir) => (
            format!(
                "{}, and version 1 cannot be delegated",
                not_permitted(user, dir)
            ),
            format!(
                "run as root, or boot with `systemd.unified_cgroup_hierarchy=1` and {}",
                delegate(dir, "`Delegate=yes`")
            ),
        ),
        CgroupAbsence::Occupied(dir) => (
            format!(
                "other processes are in {} too, so the kernel does not delegate controllers from it",
                dir.display()
            ),
            make_room(user, dir),
        ),
        CgroupAbsence::NoControllers(dir) => (
            format!(
                "{} has no controllers for cgroups beneath it",
                dir.display()
            ),
            format!(
                "delegate them: `echo '+memory +pids +cpu' | sudo tee {}`",
                dir.join("cgroup.subtree_control").display()
            ),
        ),
    }
}

/// Explains how to have systemd delegate this cgroup: by settings in the unit of the service.
fn delegate(dir: &Path, settings: &str) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    if !name.ends_with(".service") {
        return "start the program with `systemd-run --user --scope -p Delegate=yes PROGRAM`"
            .to_owned();
    }
    let of_a_user = dir
        .iter()
        .any(|part| part.to_string_lossy().starts_with("user@"));
    let systemctl = if of_a_user {
        "systemctl --user"
    } else {
        "sudo systemctl"
    };
    format!("add {settings} to its unit: `{systemctl} edit {name}`")
}

/// Explains how to empty a cgroup that contains other processes. A program of root in a container may have no launcher
/// that could restart it, so its processes are moved. A service is restarted by systemd.
fn make_room(user: HostUser, dir: &Path) -> String {
    if !user.is_root() {
        return delegate(
            dir,
            "`Delegate=yes` and `DelegateSubgroup=main` (systemd 254)",
        );
    }
    let dir = dir.display();
    format!(
        "move them into a cgroup of their own: `mkdir {dir}/main && for pid in $(cat \
         {dir}/cgroup.procs); do echo $pid >{dir}/main/cgroup.procs; done`"
    )
}

fn not_permitted(user: HostUser, dir: &Path) -> String {
    format!(
        "uid {} may not create cgroups in {}",
        user.uid,
        dir.display()
    )
}

fn read_only(dir: &Path) -> (String, String) {
    (
        format!(
            "{} is read-only even for root, as in containers",
            dir.display()
        ),
        "start the container with `docker run --privileged --cgroupns=private`, or remount it: \
         `mount -o remount,rw /sys/fs/cgroup`"
            .to_owned(),
    )
}

/// Returns the remedy for missing controllers.
pub(super) fn controllers(cgroup: &CgroupSupport, missing: &str) -> String {
    match cgroup {
        CgroupSupport::V2 { .. } => format!(
            "delegate them: add `{missing}` to the controllers of `Delegate=` in the unit user@.service \
             (`sudo systemctl edit user@.service`) and log in again"
        ),
        _ => format!(
            "mount them: `sudo mount -t cgroup -o {} cgroup DIRECTORY`",
            missing.replace(' ', ",")
        ),
    }
}
