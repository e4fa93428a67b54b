//! The reference of a sound run, and how another run differs from it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::family::Role;
use crate::subject::Reply;
use crate::tracer::Tracer;

#[derive(Debug, Default)]
pub struct Sound {
    /// A guest's report about its jail.
    pub posture: Option<Reply>,
    /// The output of a session's cell.
    pub session: Option<Reply>,
    pub descriptors: Vec<usize>,
    /// Processes that ended and were not reaped.
    pub zombies: usize,
    pub mounts: usize,
    /// Entries beneath the supervisor's directory for temporary files.
    pub files: usize,
}

impl Sound {
    /// Returns how a run differs from a sound one.
    pub fn difference(&self, reply: &Reply) -> Vec<String> {
        let Some((
            Reply::Ran { stdout: sound, .. },
            Reply::Ran {
                stdout,
                status,
                enforced,
            },
        )) = self.posture.as_ref().map(|sound| (sound, reply))
        else {
            return vec![format!("{reply:?}")];
        };
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let (mut lost, new) = (lines(sound), lines(stdout));
        let mut differing = Vec::new();
        for line in new {
            match lost.iter().position(|known| *known == line) {
                Some(position) => _ = lost.remove(position),
                None => differing.push(line),
            }
        }
        if status == "ok" {
            // A missing line counts as a difference, as a changed one does.
            differing.extend(lost.into_iter().map(|line| format!("no more: {line}")));
        } else {
            differing.push(status.clone());
        }
        differing.retain(|line| !line.is_empty());
        if differing.is_empty() {
            differing.push(enforced.clone());
        }
        differing
    }
}

/// Returns the number of descriptors of each long-lived process.
pub fn descriptors(tracer: &Tracer) -> Vec<usize> {
    let family = tracer.family();
    // An init opens none after its start.
    let stay = [Role::Supervisor, Role::Zygote];
    let there = stay.into_iter().filter(|role| family.contains(role));
    there.map(|role| tracer.descriptors(role)).collect()
}

/// Returns the number of processes that the supervisor has started and not reaped.
pub fn children(tracer: &Tracer) -> usize {
    let threads = entries(Path::new(&format!("/proc/{}/task", tracer.pid()))).into_iter();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.join("children")).ok());
    lists.map(|list| list.split_whitespace().count()).sum()
}

pub fn mounts() -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the file is readable");
    table.lines().count()
}

pub fn entries(directory: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

/// Returns the number of entries beneath a directory.
pub fn beneath(directory: &Path) -> usize {
    let found = entries(directory).into_iter();
    found.map(|path| 1 + beneath(&path)).sum()
}
