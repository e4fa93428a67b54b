//! Programs that tests write and then have executed.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a file, by another process.
///
/// If it were open for writing in this process, a child that another thread creates at that moment would
/// inherit it, and a file that is open for writing cannot be executed (`ETXTBSY`, execve(2)).
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
