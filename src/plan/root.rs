//! The entries of the new root, in the order in which they are created.

use std::path::Path;

use super::CgroupPlan;
use super::error::Place;
use super::jail::has_ptys;
use super::network;
use super::places::{ETC, PTS, SESSIONS, SHM, TMP, WORK};
use super::view::{Tree, View};
use crate::host::{Controller, GUEST_ID, Host};
use crate::policy::{Level, Policy, ProcVisibility};
use sandfork_jail::program::{RootEntry, WITNESS};

/// The host name of every sandbox.
pub(super) const HOSTNAME: &str = "sandfork";

/// The sandbox's own `/etc`: the files that libc reads, with no host contents.
pub(super) const ETC_FILES: [(&str, &str); 6] = [
    // Without it fontconfig prints an error, and finds no font of the system.
    (
        "/etc/fonts/fonts.conf",
        "<?xml version=\"1.0\"?>\n\
         <!DOCTYPE fontconfig SYSTEM \"urn:fontconfig:fonts.dtd\">\n\
         <fontconfig>\n\
         <dir>/usr/share/fonts</dir>\n\
         <dir>/usr/local/share/fonts</dir>\n\
         <cachedir>/tmp/fontconfig</cachedir>\n\
         </fontconfig>\n",
    ),
    ("/etc/group", "root:x:0:\nguest:x:1000:\nnogroup:x:65534:\n"),
    // Names have all the addresses of their lines below, not the first one only.
    ("/etc/host.conf", "multi on\n"),
    ("/etc/hostname", "sandfork\n"),
    // The sandbox's own name too, which servers and distributed programs look up.
    (
        "/etc/hosts",
        "127.0.0.1 localhost sandfork\n::1 localhost ip6-localhost ip6-loopback\n",
    ),
    (
        "/etc/passwd",
        "root:x:0:0:root:/:/usr/sbin/nologin\n\
         guest:x:1000:1000:guest:/work:/bin/sh\n\
         nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    ),
];

/// Files that programs look for, if the policy does not show the host's. They have what the Internet's standards
/// say, as far as programs ask for it by name.
const USUAL_FILES: [(&str, &str); 4] = [
    (
        "/etc/mime.types",
        "application/json json\napplication/pdf pdf\napplication/zip zip\nimage/gif gif\nimage/jpeg jpeg jpg\n\
         image/png png\nimage/svg+xml svg\ntext/css css\ntext/csv csv\ntext/html html htm\n\
         text/javascript js\ntext/markdown md\ntext/plain txt\n",
    ),
    (
        "/etc/protocols",
        "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6 41 IPv6\nipv6-icmp 58 IPv6-ICMP\n",
    ),
    (
        "/etc/services",
        "echo 7/tcp\necho 7/udp\ndaytime 13/tcp\ndaytime 13/udp\nftp-data 20/tcp\nftp 21/tcp\nssh 22/tcp\n\
         telnet 23/tcp\nsmtp 25/tcp mail\ntime 37/tcp\ntime 37/udp\ndomain 53/tcp\ndomain 53/udp\n\
         http 80/tcp www\npop3 110/tcp\nntp 123/udp\nimap2 143/tcp imap\nldap 389/tcp\nhttps 443/tcp\n\
         https 443/udp\nsubmission 587/tcp\nimaps 993/tcp\npop3s 995/tcp\n",
    ),
    // `openssl req` does not start without it.
    (
        "/etc/ssl/openssl.cnf",
        "[ req ]\ndistinguished_name = req_distinguished_name\nstring_mask = utf8only\n\
         [ req_distinguished_name ]\ncommonName = Common Name\n",
    ),
];

/// The directory for temporary files that outlive a boot elsewhere. Here nothing does.
pub(super) const VAR_TMP: &str = "/var/tmp";

const _: () = assert!(GUEST_ID == 1000, "the guest's entries above name its id");

/// Devices without state.
pub(super) const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// The device of zeros. To map it as shared makes memory that is in no process's size (`supervisor::shared_memory`), and no
/// filter sees which file is mapped. Where no cgroup counts memory, `full` takes its place, which has the same zeros
/// and cannot be mapped (full(4)).
const ZERO: &str = "zero";

/// The terminal of the process that opens it (tty(4)), so that pagers and password prompts find that of a `script` or of
/// `--terminal`. A worker has left its caller's terminal, and verification compares its session with its pid.
const TTY: &str = "tty";

/// The links in `/dev` that programs expect. All of them lead through the guest's own `/proc`.
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// The root entries of a plan at `level`; none without mounts.
pub(super) fn entries(
    policy: &Policy,
    host: &Host,
    level: Level,
    cgroup: Option<&CgroupPlan>,
    view: &View,
) -> Vec<RootEntry> {
    if level == Level::Landlock {
        return Vec::new();
    }
    let own_proc = policy.filesystem.proc == ProcVisibility::Own;
    let mut entries: Vec<RootEntry> = [ETC, "/dev"]
        .map(|dir| RootEntry::Directory { target: dir.into() })
        .into();
    let files = ETC_FILES.into_iter().chain([network::name_service(policy)]);
    entries.extend(files.map(|(path, contents)| RootEntry::File {
        target: path.into(),
        contents: contents.to_owned(),
    }));
    entries.extend(network::root_entries(policy, host, view));
    entries.push(RootEntry::File {
        target: WITNESS.into(),
        contents: String::new(),
    });
    let usual = USUAL_FILES.iter().filter(|(path, _)| !view.touches(path));
    entries.extend(usual.map(|(path, contents)| RootEntry::File {
        target: path.into(),
        contents: (*contents).to_owned(),
    }));
    entries.extend([WORK, TMP, SHM].map(mount_point));
    if !view.touches(VAR_TMP) {
        // Relative, because an absolute one would lead out of the root while that is built.
        entries.push(symlink(VAR_TMP, "../tmp"));
    }
    if has_ptys(policy, level) {
        entries.push(mount_point(PTS));
        // Makes pseudoterminals of the instance that is mounted there.
        entries.push(symlink("/dev/ptmx", "pts/ptmx"));
        entries.push(device(TTY));
    }
    if own_proc {
        entries.push(mount_point("/proc"));
        entries.extend(DEVICE_LINKS.map(|(path, to)| symlink(path, to)));
    }
    entries.extend(
        view.links
            .iter()
            .map(|link| symlink(&link.path, &link.points_at)),
    );
    let is_copied = |tree: &Tree| {
        // A worker's own directories hide the root's files.
        let in_session = SESSIONS.iter().any(|own| tree.path.starts_with(own));
        tree.place == Place::Script && !in_session && host.machine.user.drop_to.is_some()
    };
    entries.extend(view.trees.iter().map(|tree| match &host.closed_script {
        // Its owner lets others not read it, and the guest is one.
        Some(text) if is_copied(tree) => RootEntry::File {
            target: tree.path.clone(),
            contents: text.clone(),
        },
        _ => RootEntry::Bind {
            source: tree.real_path().clone(),
            target: tree.path.clone(),
            access: tree.access(),
        },
    }));
    entries.extend(devices(cgroup).map(device));
    if devices(cgroup).all(|name| name != ZERO) {
        entries.push(symlink(Path::new("/dev").join(ZERO), "full"));
    }
    entries
}

/// The devices that guests get as they are.
pub(super) fn devices(cgroup: Option<&CgroupPlan>) -> impl Iterator<Item = &'static str> {
    let is_counted = cgroup.is_some_and(|plan| plan.limits_by(Controller::Memory));
    let devices = DEVICES.into_iter();
    devices.filter(move |name| is_counted || *name != ZERO)
}

fn mount_point(target: &str) -> RootEntry {
    RootEntry::WorkerMountPoint {
        target: target.into(),
    }
}

fn device(name: &str) -> RootEntry {
    RootEntry::Device {
        name: name.to_owned(),
    }
}

fn symlink(target: impl AsRef<Path>, points_at: impl AsRef<Path>) -> RootEntry {
    RootEntry::Symlink {
        target: target.as_ref().to_owned(),
        points_at: points_at.as_ref().to_owned(),
    }
}
