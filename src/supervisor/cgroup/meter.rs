//! A cgroup that is asked again and again: its files stay open.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Counts, WorkerCgroup, files};

/// More than any of the files has.
const LONGEST: usize = 1024;

/// Reads what a cgroup counted. Opening a file of a cgroup costs several times what reading it does.
#[derive(Debug)]
pub struct Meter<'a> {
    cgroup: &'a WorkerCgroup,
    /// By their names, which are different in all hierarchies.
    open: Vec<(&'static str, File)>,
}

impl<'a> Meter<'a> {
    /// Opens nothing yet.
    pub fn new(cgroup: &'a WorkerCgroup) -> Self {
        Self {
            cgroup,
            open: Vec::new(),
        }
    }

    /// What has been counted so far.
    pub fn counts(&mut self) -> Counts {
        let Self { cgroup, open } = self;
        let version = cgroup.root.plan.version;
        let mut counts = Counts::default();
        for (hierarchy, dir) in cgroup.places() {
            let mut read = |name| read_open(open, dir, name);
            counts = files::read_counts(version, hierarchy, &mut read, counts);
        }
        counts
    }
}

fn read_open(
    open: &mut Vec<(&'static str, File)>,
    dir: &Path,
    name: &'static str,
) -> Option<String> {
    if !open.iter().any(|(opened, _)| *opened == name) {
        open.push((name, File::open(dir.join(name)).ok()?));
    }
    let (_, file) = open.iter().find(|(opened, _)| *opened == name)?;
    let mut buffer = [0; LONGEST];
    // The kernel makes the text anew for each read at the beginning.
    let length = file.read_at(&mut buffer, 0).ok()?;
    String::from_utf8(buffer[..length].to_vec()).ok()
}
