//! Verifies the mounts of a worker, from proc_pid_mountinfo(5).

use std::borrow::Cow;
use std::path::Path;

use super::{Checked, differs};
use crate::host::unescape;
use crate::plan::Layer;
use crate::supervisor::error::While;
use crate::supervisor::proc_dir::ProcDir;
use sandfork_jail::machine_files::PROC_FILES;
use sandfork_jail::program::{
    Access, ProcMount, Programs, Ptys, RootEntry, Shown, Tmpfs, ZygoteJail,
};

const PROC: &str = "/proc";

/// Compares a worker's mounts with the plan.
pub fn check(process: &ProcDir, jail: &ZygoteJail) -> Checked {
    let table = process.read("mountinfo").when("read the worker's mounts")?;
    let mounts = Mounts(table.lines().filter_map(Mount::parse).collect());
    for mount in &mounts.0 {
        if !mount.has(&["nosuid"]) {
            return refused(Some(mount), "nosuid on every mount");
        }
    }
    match mounts.top(Path::new("/")) {
        Some(root) if root.kind == "tmpfs" && root.has(&["ro", "nodev"]) => {}
        other => return refused(other, "a read-only tmpfs as the root"),
    }
    for entry in &jail.root {
        mounts.check_entry(entry)?;
    }
    for tmpfs in &jail.worker.tmpfs {
        mounts.check_tmpfs(tmpfs)?;
    }
    if let Some(ptys) = &jail.worker.ptys {
        mounts.check_ptys(ptys)?;
    }
    match jail.worker.proc {
        ProcMount::Own => mounts.check_proc(),
        ProcMount::Absent => match mounts.top(Path::new(PROC)) {
            None => Ok(()),
            found => refused(found, "no /proc"),
        },
    }
}

fn refused(found: Option<&Mount>, wanted: impl Into<String>) -> Checked {
    let found = found.map_or_else(|| "nothing".to_owned(), Mount::describe);
    differs(Layer::Mounts, found, wanted)
}

/// The mount table, in order of creation.
struct Mounts<'t>(Vec<Mount<'t>>);

struct Mount<'t> {
    number: u64,
    /// The id of the parent mount.
    parent: u64,
    /// The root of the mount within its file system, as the kernel writes it.
    source: &'t str,
    point: Cow<'t, Path>,
    options: &'t str,
    kind: &'t str,
    /// The options of the superblock.
    instance: &'t str,
}

impl<'t> Mount<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        let mut fields = line.split(' ');
        let (number, parent) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let source = fields.nth(1)?;
        let point = unescape(fields.next()?);
        let options = fields.next()?;
        let mut optional = fields.skip_while(|field| *field != "-");
        let kind = optional.nth(1).unwrap_or_default();
        let instance = optional.nth(1).unwrap_or_default();
        Some(Self {
            number,
            parent,
            source,
            point,
            options,
            kind,
            instance,
        })
    }

    fn has(&self, options: &[&str]) -> bool {
        let mut wanted = options.iter();
        wanted.all(|wanted| self.options.split(',').any(|option| option == *wanted))
    }

    fn describe(&self) -> String {
        let (point, options) = (self.point.display(), self.options);
        format!("{point} as {} with {options}", self.kind)
    }
}

impl Mounts<'_> {
    /// Returns the topmost mount at a mount point, which is the last one in the table.
    fn top(&self, at: &Path) -> Option<&Mount<'_>> {
        // Compared as bytes: the kernel writes normalized paths, and comparing components is slow.
        let is_at = |mount: &&Mount| mount.point.as_os_str() == at.as_os_str();
        self.0.iter().rev().find(is_at)
    }

    /// Checks that a host entry in the root has the mount options of the plan.
    fn check_entry(&self, entry: &RootEntry) -> Checked {
        let wanted: &[&str] = match entry {
            RootEntry::Bind { access, .. } => options(*access),
            // `ro` does not keep a guest from writing to a device, only from changing its inode.
            RootEntry::Device { .. } => &["ro"],
            _ => return Ok(()),
        };
        let target = entry.target();
        match self.top(&target) {
            Some(mount) if mount.has(wanted) => Ok(()),
            found => {
                let wanted = format!("{} with {}", target.display(), wanted.join(","));
                refused(found, wanted)
            }
        }
    }

    /// Checks the devpts. Its `max=` option distinguishes it from the host's instance, which all sandboxes would share.
    fn check_ptys(&self, ptys: &Ptys) -> Checked {
        let bound = format!("max={}", ptys.most);
        match self.top(&ptys.target) {
            Some(own)
                if own.kind == "devpts"
                    && own.has(&["noexec"])
                    && own.instance.split(',').any(|option| option == bound) =>
            {
                Ok(())
            }
            found => {
                let at = ptys.target.display();
                refused(found, format!("a devpts at {at} with noexec and {bound}"))
            }
        }
    }

    /// Checks that /proc shows only the worker's own processes, and the sandbox's own versions of the machine's files.
    fn check_proc(&self) -> Checked {
        let own = match self.top(Path::new(PROC)) {
            Some(own)
                if own.kind == "proc"
                    && own.has(&["ro", "noexec"])
                    && own.instance.split(',').any(|option| option == "subset=pid") =>
            {
                own
            }
            found => {
                return refused(found, "a private, read-only /proc with subset=pid");
            }
        };
        let mut within: Vec<&Mount> = self.0.iter().filter(|it| it.parent == own.number).collect();
        for (source, target) in PROC_FILES {
            let is_there = |mount: &&Mount| mount.point.as_os_str() == target;
            let place = within.iter().position(is_there);
            let found = place.map(|place| within.swap_remove(place));
            let is_own =
                |it: &Mount| it.kind == "tmpfs" && it.source == source && it.has(&["ro", "nodev"]);
            if !found.is_some_and(is_own) {
                return refused(found, format!("the sandbox's own {target}"));
            }
        }
        match within.first() {
            None => Ok(()),
            found => refused(found.copied(), "nothing else in /proc"),
        }
    }

    fn check_tmpfs(&self, tmpfs: &Tmpfs) -> Checked {
        let at = tmpfs.target.display();
        let programs = |mount: &Mount| {
            if mount.has(&["noexec"]) {
                Programs::Refused
            } else {
                Programs::Run
            }
        };
        let own = match self.top(&tmpfs.target) {
            Some(own)
                if own.kind == "tmpfs"
                    && own.has(&["nodev"])
                    && programs(own) == tmpfs.programs =>
            {
                own
            }
            other => {
                let noexec = match tmpfs.programs {
                    Programs::Refused => "noexec ",
                    Programs::Run => "",
                };
                return refused(other, format!("a private {noexec}tmpfs at {at}"));
            }
        };
        for shown in &tmpfs.shows {
            let Shown::Tree { target, access } = shown else {
                continue;
            };
            // Only mounts on top of the tmpfs count. A mount that the zygote had at the same path lies beneath the
            // tmpfs, hidden.
            let mut within = self.0.iter().filter(|mount| mount.parent == own.number);
            let found = within.find(|mount| mount.point == *target);
            let wanted = options(*access);
            if !found.is_some_and(|mount| mount.has(wanted)) {
                let wanted = format!("{} in {at} with {}", target.display(), wanted.join(","));
                return refused(found, wanted);
            }
        }
        Ok(())
    }
}

/// Returns the required mount options of a host file or directory. The host itself may have mounted it read-only.
const fn options(access: Access) -> &'static [&'static str] {
    match access {
        Access::ReadOnly => &["ro", "nodev"],
        Access::ReadWrite => &["nodev", "noexec"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
50 40 0:30 / / ro,nosuid,nodev,relatime - tmpfs sandfork rw
51 50 8:1 /usr /usr ro,nosuid,nodev,relatime - ext4 /dev/sda1 rw
52 50 8:1 /p\\040q /tmp/p\\040q ro,nosuid,nodev,relatime - ext4 /dev/sda1 rw
53 50 0:31 / /tmp rw,nosuid,nodev,noexec,relatime - tmpfs sandfork rw
";

    fn mounts(text: &str) -> Mounts<'_> {
        Mounts(text.lines().filter_map(Mount::parse).collect())
    }

    fn tmp(access: Access) -> Tmpfs {
        Tmpfs {
            target: "/tmp".into(),
            size: 1,
            inodes: 1,
            programs: Programs::Refused,
            shows: vec![Shown::Tree {
                target: "/tmp/p q".into(),
                access,
            }],
        }
    }

    fn tmpfs_error(text: &str, access: Access) -> Option<String> {
        let checked = mounts(text).check_tmpfs(&tmp(access));
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn root_entries_need_their_planned_options() {
        let device = RootEntry::Device {
            name: "null".into(),
        };
        let usr = |access| RootEntry::Bind {
            source: "/usr".into(),
            target: "/usr".into(),
            access,
        };
        let null = "54 50 0:5 /null /dev/null ro,nosuid,relatime - devtmpfs udev rw\n";
        let with_null = format!("{LINES}{null}");
        let shown = mounts(&with_null);
        assert!(shown.check_entry(&device).is_ok());
        assert!(shown.check_entry(&usr(Access::ReadOnly)).is_ok());
        assert!(shown.check_entry(&usr(Access::ReadWrite)).is_err());
        let with_null = format!("{LINES}{}", null.replace("ro,", "rw,"));
        let writable = mounts(&with_null);
        let refused = writable.check_entry(&device).err();
        assert!(refused.is_some_and(|error| error.to_string().contains("/dev/null with ro")));
        assert!(mounts(LINES).check_entry(&device).is_err());
    }

    #[test]
    fn noexec_must_match_the_plan() {
        let noexec = "53 50 0:31 / /tmp rw,nosuid,nodev,noexec,relatime - tmpfs sandfork rw\n";
        let exec = noexec.replace(",noexec", "");
        let devices = exec.replace(",nodev", "");
        let holds = |text: &str, programs| {
            let tmpfs = Tmpfs {
                programs,
                shows: Vec::new(),
                ..tmp(Access::ReadOnly)
            };
            mounts(text).check_tmpfs(&tmpfs).is_ok()
        };
        assert!(holds(noexec, Programs::Refused));
        assert!(!holds(&exec, Programs::Refused));
        assert!(holds(&exec, Programs::Run));
        assert!(!holds(noexec, Programs::Run));
        assert!(!holds(&devices, Programs::Run));
    }

    #[test]
    fn proc_must_hide_the_files_of_the_machine() {
        let own = "57 50 0:33 / /proc ro,nosuid,nodev,noexec,relatime - proc proc ro,subset=pid\n";
        let file = |(number, (source, target)): (usize, (&str, &str))| {
            let number = number + 60;
            format!("{number} 57 0:30 {source} {target} ro,nosuid,nodev - tmpfs sandfork rw\n")
        };
        let files: String = PROC_FILES.into_iter().enumerate().map(file).collect();
        let sound = format!("{own}{files}");
        assert!(mounts(&sound).check_proc().is_ok());
        let other = "80 57 0:33 /kcore /proc/kcore ro,nosuid,nodev - proc proc ro\n";
        for wrong in [
            sound.replace(",subset=pid", ""),
            sound.replace("/proc ro", "/proc rw"),
            sound.replace("/.proc/meminfo", "/meminfo"),
            sound.replace("/proc/stat ro", "/proc/stat rw"),
            sound.replace("/proc/sys ", "/proc/fs "),
            sound.replace("60 57", "60 50"),
            format!("{sound}{other}"),
            format!("{sound}{}", other.replace("kcore", "meminfo")),
            own.to_owned(),
            files,
        ] {
            assert!(mounts(&wrong).check_proc().is_err(), "{wrong}");
        }
    }

    #[test]
    fn devpts_must_be_private_and_bounded() {
        let ptys = Ptys {
            target: "/dev/pts".into(),
            most: 16,
        };
        let own = "55 50 0:32 / /dev/pts rw,nosuid,noexec,relatime - devpts sandfork rw,mode=600,\
            ptmxmode=666,max=16\n";
        assert!(mounts(own).check_ptys(&ptys).is_ok());
        for wrong in [
            own.replace(",max=16", ""),
            own.replace("max=16", "max=160"),
            own.replace("noexec", "exec"),
            own.replace("devpts", "tmpfs"),
            String::new(),
        ] {
            assert!(mounts(&wrong).check_ptys(&ptys).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tree_beneath_the_tmpfs_is_not_accepted() {
        let hidden = tmpfs_error(LINES, Access::ReadOnly);
        assert!(hidden.is_some_and(|error| error.contains("nothing")));
        let moved = LINES.replace("52 50", "52 53");
        assert_eq!(tmpfs_error(&moved, Access::ReadOnly), None);
    }

    #[test]
    fn writable_tree_is_not_accepted_as_read_only() {
        let moved = LINES.replace("52 50", "52 53");
        let writable = moved.replace("q ro,", "q rw,");
        let refused = tmpfs_error(&writable, Access::ReadOnly);
        assert!(refused.is_some_and(|error| error.contains("with rw,nosuid")));
        assert!(
            tmpfs_error(&writable, Access::ReadWrite).is_some(),
            "it may be run from"
        );
        let data = writable.replace("q rw,nosuid,nodev,", "q rw,nosuid,nodev,noexec,");
        assert_eq!(tmpfs_error(&data, Access::ReadWrite), None);
    }
}
