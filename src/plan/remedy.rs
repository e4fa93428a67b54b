//! The remedy for each layer: the exact command, if there is one.

use std::path::Path;

use crate::host::{
    CgroupAbsence, CgroupSupport, ChainStep, Device, HostUser, Refusal, RefusalCause,
};
use sandfork_jail::DATA;

pub(super) const LANDLOCK_NOT_ENABLED: &str = "add `landlock` to the kernel's boot parameters, as \
     `lsm=landlock,` followed by what `cat /sys/kernel/security/lsm` prints, and boot again";

pub(super) const LANDLOCK_NOT_BUILT: &str =
    "run Linux 5.13 or later built with CONFIG_SECURITY_LANDLOCK=y";

pub(super) const FILTERED: &str = "take the filter away or widen it: in a unit of systemd leave out `SystemCallFilter=` and \
     `RestrictNamespaces=`, or add `@sandbox` to the first, which gives level `landlock`";

/// For a layer that needs namespaces.
pub(super) const AS_FOR_NAMESPACES: &str = "as for `namespaces`";

/// For a hard limit on open files that leaves no number for the data socket.
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

/// The settings that a container's runtime must change. Masked parts of `/proc` matter only to a
/// new procfs.
fn docker(step: ChainStep) -> &'static str {
    match step {
        ChainStep::MountProc => "docker run --security-opt systempaths=unconfined",
        _ => {
            "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
             --security-opt systempaths=unconfined"
        }
    }
}

/// Why there are no cgroups, and the remedy.
pub(super) fn cgroup_absence(user: HostUser, reason: &CgroupAbsence) -> (String, String) {
    match reason {
        CgroupAbsence::NotMounted => (
            "no cgroup file system is mounted".to_owned(),
            "mount it: `sudo mount -t cgroup2 none /sys/fs/cgroup`".to_owned(),
        ),
        CgroupAbsence::Unread { file, errno } => (
            format!("could not read {}: {errno}", file.display()),
            "free what the host has run out of, and try again".to_owned(),
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
                "other processes are in {} too, from which the kernel hands no controllers down",
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
                "hand them down: `echo '+memory +pids +cpu' | sudo tee {}`",
                dir.join("cgroup.subtree_control").display()
            ),
        ),
    }
}

/// How systemd hands this cgroup to the user: by settings in the unit of a service.
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

/// Root's program in a container may have no launcher to restart it, so its processes move instead.
/// A service is started by systemd.
fn make_room(user: HostUser, dir: &Path) -> String {
    if !user.is_root() {
        return delegate(
            dir,
            "`Delegate=yes` and `DelegateSubgroup=main` (systemd 254)",
        );
    }
    let dir = dir.display();
    format!(
        "move them into one of their own: `mkdir {dir}/main && for pid in $(cat \
         {dir}/cgroup.procs); do echo $pid >{dir}/main/cgroup.procs; done`"
    )
}

fn not_permitted(user: HostUser, dir: &Path) -> String {
    format!("uid {} may not make cgroups in {}", user.uid, dir.display())
}

fn read_only(dir: &Path) -> (String, String) {
    (
        format!(
            "{} is read-only even for root, as containers have it",
            dir.display()
        ),
        "start the container with `docker run --privileged --cgroupns=private`, or remount it: \
         `mount -o remount,rw /sys/fs/cgroup`"
            .to_owned(),
    )
}

/// The report on missing controllers.
pub(super) fn controllers(cgroup: &CgroupSupport, missing: &str) -> String {
    match cgroup {
        CgroupSupport::V2 { .. } => format!(
            "delegate them: put `Delegate={missing}` with the others that it has into the unit \
             user@.service (`sudo systemctl edit user@.service`) and log in again"
        ),
        _ => format!(
            "mount them: `sudo mount -t cgroup -o {} cgroup DIRECTORY`",
            missing.replace(' ', ",")
        ),
    }
}
