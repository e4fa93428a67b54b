//! The written record of what a sound jail allows a guest: not derived from a plan, and reviewed by a person.

use libtest_mimic::Failed;
use sandfork::Layer;

use crate::bench::{Bench, POSTURE};
use crate::subject::Reply;

const WRITTEN: [(&str, &str); 4] = [
    ("calls", include_str!("sound/calls.txt")),
    ("files", include_str!("sound/files.txt")),
    ("process", include_str!("sound/process.txt")),
    ("network", include_str!("sound/network.txt")),
];

/// Compares a guest's findings with the record.
pub fn compare(guest: &str, reply: &Reply) -> Result<(), Failed> {
    let Reply::Ran {
        status,
        stdout,
        stderr,
    } = reply
    else {
        return Err(format!("{reply:?}").into());
    };
    if status != "ok" {
        return Err(format!("{status}: {stderr}").into());
    }
    let written = WRITTEN.iter().find(|(name, _)| *name == guest);
    let (_, written) = written.ok_or("it is not written")?;
    let missing = written
        .lines()
        .filter(|line| !stdout.lines().any(|found| found == *line));
    let new = stdout
        .lines()
        .filter(|line| !written.lines().any(|known| known == *line));
    let differing: Vec<String> = missing
        .map(|line| format!("- {line}"))
        .chain(new.map(|line| format!("+ {line}")))
        .collect();
    if differing.is_empty() {
        return Ok(());
    }
    Err(differing.join("\n").into())
}

/// Checks that a layer is really gone: a guest must find something without it that it does not find with it.
pub fn without(layer: Layer, bench: &mut Bench) -> Result<(), Failed> {
    let [calls, files, process] = POSTURE;
    let (guest, line) = match layer {
        Layer::Namespaces => (files, "/proc/kallsyms: list ENOTDIR"),
        Layer::Mounts => (files, "<read>/device: open done"),
        Layer::Landlock => (files, "/.witness: read done"),
        Layer::Seccomp => (calls, "call let 0x0-0x14e 0x151-0x27f"),
        Layer::Capabilities => (process, "NoNewPrivs 0"),
        // Any line may differ.
        Layer::Rlimits | Layer::Cgroup => (process, ""),
    };
    let mut findings = |off| match bench.sound(guest, off) {
        Reply::Ran { stdout, .. } => stdout,
        other => format!("{other:?}"),
    };
    let [with, off] = [None, Some(layer)].map(&mut findings);
    let has = |text: &str| text.lines().any(|found| found == line);
    if line.is_empty() && with != off || !has(&with) && has(&off) {
        return Ok(());
    }
    Err(format!("it is not gone: {line}").into())
}
