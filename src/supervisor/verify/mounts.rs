//! The mounts of a worker, from proc_pid_mountinfo(5).

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
            return refused(Some(mount), "nosuid everywhere");
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

/// The mounts in order of creation.
struct Mounts<'t>(Vec<Mount<'t>>);

struct Mount<'t> {
    number: u64,
    /// The number of the mount that contains its mount point.
    parent: u64,
    /// What the mount shows of its file system, as the kernel writes it.
    source: &'t str,
    point: Cow<'t, Path>,
    options: &'t str,
    kind: &'t str,
    /// The options of the file system itself.
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
    /// The topmost mount at a point, which is the last one.
    fn top(&self, at: &Path) -> Option<&Mount<'_>> {
        // As text: the kernel writes paths in normal form, and to compare components takes long.
        let is_at = |mount: &&Mount| mount.point.as_os_str() == at.as_os_str();
        self.0.iter().rev().find(is_at)
    }

    /// Checks that a host entry in the root is mounted with the options of the plan.
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

    /// The bound tells the instance from the host's, which all sandboxes would share.
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

    /// Checks that the worker sees its own processes, and of the machine only the sandbox's own files.
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
                return refused(found, "a /proc of its own, read-only, with subset=pid");
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
            // Excludes the mount that the zygote had there, which the tmpfs hides.
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

/// The minimum mount options of a host file or directory; the host itself may have it read-only.
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

    fn said(text: &str, access: Access) -> Option<String> {
        let checked = mounts(text).check_tmpfs(&tmp(access));
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn what_the_root_shows_has_the_options_of_the_plan() {
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
    fn programs_can_be_run_only_where_the_plan_says_so() {
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
    fn a_proc_shows_the_sandbox_s_own_files_and_nothing_else_of_the_machine() {
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
    fn the_pseudoterminals_are_bounded_and_the_worker_s_own() {
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
    fn a_tree_that_the_tmpfs_hides_is_not_shown() {
        let hidden = said(LINES, Access::ReadOnly);
        assert!(hidden.is_some_and(|said| said.contains("nothing")));
        let moved = LINES.replace("52 50", "52 53");
        assert_eq!(said(&moved, Access::ReadOnly), None);
    }

    #[test]
    fn a_tree_that_can_be_written_to_is_not_read_only() {
        let moved = LINES.replace("52 50", "52 53");
        let writable = moved.replace("q ro,", "q rw,");
        let refused = said(&writable, Access::ReadOnly);
        assert!(refused.is_some_and(|said| said.contains("with rw,nosuid")));
        assert!(
            said(&writable, Access::ReadWrite).is_some(),
            "it may be run from"
        );
        let data = writable.replace("q rw,nosuid,nodev,", "q rw,nosuid,nodev,noexec,");
        assert_eq!(said(&data, Access::ReadWrite), None);
    }
}
