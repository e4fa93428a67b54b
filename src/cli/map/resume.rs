//! Resumes a result file: reads the ids in it, and removes the unfinished results.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;

use crate::batch::RecordLine;
use nix::fcntl::Flock;

use super::existing::{Beside, Existing};
use super::ids::Ids;
use super::lines::{Closed, Line, Lines};
use super::results::{is_locked, lock, open_error};
use crate::cli::failure::Failure;

/// A resumed file.
#[derive(Debug)]
pub struct Found {
    /// The file, to which the next result is appended.
    pub file: Flock<File>,
    /// The ids of tasks that need not run again.
    pub ids: Ids,
}

/// How much of a line is kept in memory, in bytes. Most lines fit. A result is as long as the policy's output limit
/// allows, and each byte of output takes up to six bytes of JSON.
const HEAD: usize = 1 << 20;

/// Opens a result file, and makes it end with a complete result.
///
/// A last line without a newline was cut off while it was written, and is removed if it starts like a result. Results
/// of tasks that got no sandbox or were cancelled are removed too: those tasks run again.
pub fn open(existing: &Existing, name: &str) -> Result<Found, Failure> {
    let unusable = |cause| unusable(name, &cause);
    let opened = existing.open(OpenOptions::new().read(true).append(true));
    let file = lock(opened.map_err(|cause| open_error(name, &cause))?, name)?;
    if !existing.is_there().map_err(unusable)? {
        // Another process replaced the file before it was locked.
        return Err(is_locked(name));
    }
    let scanned = scan(&file, name)?;
    let file = if scanned.unfinished.is_empty() {
        file.set_len(scanned.end).map_err(unusable)?;
        file
    } else {
        let copy = existing.beside(".resuming").map_err(unusable)?;
        let locked = lock(copy.file.try_clone().map_err(unusable)?, name)?;
        replace(&file, &copy, &scanned).map_err(unusable)?;
        locked
    };
    let ids = scanned.ids;
    Ok(Found { file, ids })
}

/// Returns the error for a file that cannot be read, or whose unfinished results cannot be removed.
fn unusable(name: &str, cause: &io::Error) -> Failure {
    Failure::Usage(format!(
        "`{name}` cannot be resumed: {cause}; nothing in it was changed"
    ))
}

/// The result of scanning a file.
struct Scanned {
    ids: Ids,
    /// The byte ranges of the lines to remove.
    unfinished: Vec<Range<u64>>,
    /// The end of the last complete line, in bytes.
    end: u64,
}

fn scan(file: &File, name: &str) -> Result<Scanned, Failure> {
    let mut scanned = Scanned {
        ids: Ids::default(),
        unfinished: Vec::new(),
        end: 0,
    };
    let unusable = |cause| unusable(name, &cause);
    let mut lines = Lines::new(BufReader::new(file), HEAD);
    while let Some(mut line) = lines.next().map_err(unusable)? {
        let record = if line.closed == Closed::Never {
            let mut rest = lines.rest();
            let record = RecordLine::read(line.text.chain(&mut rest));
            (line.end, line.closed) = rest.end().map_err(unusable)?;
            record
        } else {
            RecordLine::parse(&line.text)
        };
        let wrong = |what: &str| {
            Failure::Usage(format!(
                "{name}:{}: {what}; `--resume` needs a file with nothing but results",
                line.number
            ))
        };
        match line.closed {
            Closed::ByEof if is_torn(&line) => break,
            Closed::ByEof | Closed::Never => {
                return Err(wrong("it is not a result, and has no newline"));
            }
            Closed::ByNewline => {}
        }
        let record = record.map_err(|error| wrong(&error.to_string()))?;
        if record.finished {
            scanned.ids.finish(&record.id);
        } else {
            scanned.unfinished.push(scanned.end..line.end);
        }
        scanned.end = line.end;
    }
    Ok(scanned)
}

/// Returns whether a last line without a newline is an incomplete result. A crashed host may have left zeros in place
/// of the rest, but no result file starts with zeros.
fn is_torn(line: &Line) -> bool {
    let zeros = line
        .text
        .iter()
        .rev()
        .take_while(|byte| **byte == 0)
        .count();
    let text = &line.text[..line.text.len() - zeros];
    RecordLine::may_begin_with(text) && (line.number > 1 || !text.is_empty())
}

/// Replaces a file with a copy that has only its finished results.
fn replace(file: &File, copy: &Beside, scanned: &Scanned) -> io::Result<()> {
    let replaced = copy_finished(file, &copy.file, scanned)
        .and_then(|()| copy.file.set_permissions(file.metadata()?.permissions()))
        .and_then(|()| copy.file.sync_all())
        .and_then(|()| copy.replace_original());
    if replaced.is_err() {
        copy.remove();
    }
    replaced
}

fn copy_finished(mut from: &File, mut to: &File, scanned: &Scanned) -> io::Result<()> {
    let mut at = 0;
    for left_out in scanned
        .unfinished
        .iter()
        .chain([&(scanned.end..scanned.end)])
    {
        from.seek(SeekFrom::Start(at))?;
        io::copy(&mut from.take(left_out.start - at), &mut to)?;
        at = left_out.end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use crate::batch::TaskId;

    use super::*;
    use crate::cli::map::ids::IdState;

    fn line(id: i64, status: &str) -> String {
        format!("{{\"id\":{id},\"status\":\"{status}\",\"exit_code\":0}}\n")
    }

    fn open(path: &Path) -> Result<Found, Failure> {
        super::open(&Existing::find(path).unwrap(), "FILE")
    }

    /// Returns the remaining text and the number of finished ids, or the error.
    fn resumed(text: &str) -> Result<(String, usize), String> {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (
            directory.path().join("results"),
            directory.path().join("link"),
        );
        fs::write(&path, text).unwrap();
        fs::write(
            directory.path().join("results.resuming"),
            "left by a killed one",
        )
        .unwrap();
        symlink(&path, &link).unwrap();
        let found = open(&link).map_err(|error| error.to_string());
        if found.is_err() {
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "it was changed");
        }
        let Found { file, ids } = found?;
        let left = fs::read_to_string(&path).unwrap();
        // Appended data goes to the file that has this name now.
        (&*file).write_all(b"next").unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), format!("{left}next"));
        let held = open(&path).unwrap_err();
        assert_eq!(held.to_string(), is_locked("FILE").to_string());
        assert!(link.is_symlink());
        Ok((left, ids.count()))
    }

    #[test]
    fn complete_results_are_kept() {
        let text = line(1, "ok") + &line(2, "exception");
        assert_eq!(resumed(&text), Ok((text, 2)));
        assert_eq!(resumed(""), Ok((String::new(), 0)));
    }

    #[test]
    fn torn_line_is_removed() {
        for torn in [
            "{",
            "{\"id\":3,\"status\":\"ok\"}",
            "\0\0\0",
            "{\"id\":3,\"sta\0\0",
        ] {
            let whole = line(1, "ok");
            assert_eq!(resumed(&format!("{whole}{torn}")), Ok((whole, 1)));
        }
        assert_eq!(resumed("{\"id\":3,\"st"), Ok((String::new(), 0)));
    }

    #[test]
    fn other_last_line_is_kept_and_rejected() {
        for other in [
            "a-token-without-newline",
            "{\"id\":1,\"code\":\"print(1)\"}",
            "\0\0\0",
        ] {
            let refused = resumed(other).unwrap_err();
            assert!(
                refused.starts_with("FILE:1: it is not a result, and has no newline"),
                "{refused}"
            );
        }
        let refused = resumed(&(line(1, "ok") + "notes")).unwrap_err();
        assert!(refused.starts_with("FILE:2: "), "{refused}");
    }

    #[test]
    fn permissions_are_preserved() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        fs::write(&path, line(1, "ok") + &line(2, "interrupted")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        open(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
    }

    #[test]
    fn unfinished_results_are_removed() {
        let text = [
            line(1, "ok"),
            line(2, "infrastructure"),
            line(3, "timeout"),
            line(4, "interrupted"),
            "{\"id\":5".to_owned(),
        ];
        let left = line(1, "ok") + &line(3, "timeout");
        assert_eq!(resumed(&text.concat()), Ok((left, 2)));
    }

    #[test]
    fn long_results_are_kept() {
        let output = "x".repeat(3 * HEAD);
        let long = |id: i64, status: &str| {
            format!(
                "{{\"id\":{id},\"status\":\"{status}\",\"exit_code\":0,\"stdout\":\"{output}\"}}\n"
            )
        };
        let left = [long(1, "ok"), line(3, "ok"), long(4, "exit")].concat();
        let text = [
            long(1, "ok"),
            long(2, "interrupted"),
            line(3, "ok"),
            long(4, "exit"),
            long(5, "ok").trim_end().to_owned(),
        ];
        assert_eq!(resumed(&text.concat()), Ok((left, 3)));
        let refused = resumed(&(long(1, "ok") + "{\"id\":2}" + &output + "\n")).unwrap_err();
        assert!(
            refused.starts_with("FILE:2: it is not a result of"),
            "{}",
            &refused[..99]
        );
    }

    #[test]
    fn resumed_ids_match_the_tasks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        fs::write(
            &path,
            "{\"id\": \"a\", \"status\": \"ok\"}\n".to_owned() + &line(-7, "ok"),
        )
        .unwrap();
        let mut ids = open(&path).unwrap().ids;
        let met = ["a".into(), (-7).into(), 7.into()].map(|id: TaskId| ids.record_task(&id));
        assert_eq!(met, [IdState::Finished, IdState::Finished, IdState::New]);
    }

    #[test]
    fn other_files_are_rejected_unchanged() {
        let tasks = "{\"id\": 1, \"code\": \"pass\"}\n";
        let refused = resumed(tasks).unwrap_err();
        assert!(
            refused.starts_with(
                "FILE:1: it is not a result of `sandfork map`: missing field `status`"
            ),
            "{refused}"
        );
        let refused = resumed(&(line(1, "ok") + "\n" + &line(2, "ok"))).unwrap_err();
        assert!(refused.starts_with("FILE:2: "), "{refused}");
    }
}
