//! Computes the entries of the new root, in the order of their creation.

use std::path::Path;

use super::CgroupPlan;
use super::error::Requester;
use super::jail::has_ptys;
use super::network;
use super::paths::{ETC, PTS, SESSIONS, SHM, TMP, WORK};
use super::view::{Tree, View};
use crate::host::{Controller, GUEST_ID, Host};
use crate::policy::{Level, Policy, ProcVisibility};
use sandfork_jail::program::{RootEntry, WITNESS};

/// The host name of every sandbox.
pub(super) const HOSTNAME: &str = "sandfork";

/// The sandbox's own `/etc`: the files that libc reads, with no host contents.
pub(super) const ETC_FILES: [(&str, &str); 6] = [
    // Without this file fontconfig prints an error and finds no system fonts.
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
    // Makes lookups return all addresses of a name in /etc/hosts, not only the first.
    ("/etc/host.conf", "multi on\n"),
    ("/etc/hostname", "sandfork\n"),
    // Includes the host name of the sandbox, which servers and distributed programs look up.
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

/// Files that programs look for, unless the policy shows those of the host. They contain the assignments of the
/// Internet standards that programs commonly look up by name.
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
    // `openssl req` does not start without this file.
    (
        "/etc/ssl/openssl.cnf",
        "[ req ]\ndistinguished_name = req_distinguished_name\nstring_mask = utf8only\n\
         [ req_distinguished_name ]\ncommonName = Common Name\n",
    ),
];

/// The directory for temporary files that outlive a reboot. In a sandbox it is the same as `/tmp`.
pub(super) const VAR_TMP: &str = "/var/tmp";

const _: () = assert!(GUEST_ID == 1000, "the guest's entries above name its id");

/// Devices without state.
pub(super) const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// The device of zeros. A shared mapping of it is memory that belongs to no process's size
/// (`supervisor::shared_memory`), and a filter cannot see which file is mapped. Without a memory cgroup, `full`
/// replaces it, which also reads as zeros but cannot be mapped (full(4)).
const ZERO: &str = "zero";

/// The controlling terminal of the process that opens it (tty(4)). Pagers and password prompts find the terminal of
/// `script` or `--terminal` through it. It never leads to the caller's terminal, because a worker has left that
/// session; verification checks that the worker's session ID is its PID.
const TTY: &str = "tty";

/// The links in `/dev` that programs expect. All of them lead into the guest's `/proc`.
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// Returns the root entries of a plan at `level`, or none if the level has no mounts.
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
        // Relative, because an absolute link would lead out of the root while the root is being built.
        entries.push(symlink(VAR_TMP, "../tmp"));
    }
    if has_ptys(policy, level) {
        entries.push(mount_point(PTS));
        // Opens pseudoterminals of the devpts instance that is mounted at `PTS`.
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
        // A worker's private directories hide files of the root.
        let in_session = SESSIONS.iter().any(|own| tree.path.starts_with(own));
        tree.requester == Requester::Script && !in_session && host.machine.user.drop_to.is_some()
    };
    entries.extend(view.trees.iter().map(|tree| match &host.closed_script {
        // Not every user may read the script, and the guest is not its owner, so it gets a copy.
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

/// Returns the names of the host devices that guests see.
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
