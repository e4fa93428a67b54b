//! Programs that tests write and then have executed.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a file, by another process.
///
/// Were it open for writing in this one, a child that another thread makes just then would have it
/// open too, and a file that anybody may write is not executed (`ETXTBSY`, execve(2)).
#[track_caller]
pub fn install(path: &Path, mode: u32, text: &str) {
    let mut install = Command::new("install")
        .arg(format!("--mode={mode:o}"))
        .arg("/dev/stdin")
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("install, of coreutils");
    let mut stdin = install.stdin.take().expect("it is a pipe");
    stdin.write_all(text.as_bytes()).expect("it reads");
    drop(stdin);
    let ended = install.wait().expect("it is our child");
    assert!(ended.success(), "{} cannot be written", path.display());
}
