//! Writes programs that tests then execute.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a file in a child process.
///
/// If this process had the file open for writing, a child that another thread forks at that moment would
/// inherit the descriptor, and a file that is open for writing cannot be executed (`ETXTBSY`, execve(2)).
#[track_caller]
pub fn install(path: &Path, mode: u32, text: &str) {
    let mut install = Command::new("install")
        .arg(format!("--mode={mode:o}"))
        .arg("/dev/stdin")
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("install, of coreutils");
    let mut stdin = install.stdin.take().expect("the stream is piped");
    stdin
        .write_all(text.as_bytes())
        .expect("the program reads its stdin");
    drop(stdin);
    let ended = install.wait().expect("the child has not been reaped");
    assert!(ended.success(), "{} cannot be written", path.display());
}
