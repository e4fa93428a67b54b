//! Going on behind the results that a file has: what they are of, and what has to go before.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use sandfork::batch::RecordLine;

use super::ids::Ids;
use super::lines::{Closed, Lines};
use super::results::{ResultsError, lock, open_error};

/// A file that can be gone on with.
#[derive(Debug)]
pub struct Found {
    /// Where the next result is appended.
    pub file: Flock<File>,
    /// The ids whose programs have had their run.
    pub ids: Ids,
}

/// The longest line, in bytes. Output is written in up to six bytes for each.
const MOST_BYTES: usize = 1 << 30;

/// Opens a file of results, and has it end with a whole one.
///
/// A last line without its newline was cut short when it was written: it goes. So do results that are
/// none, of tasks that got no sandbox or were called off: they get another.
pub fn open(path: &Path, name: &str) -> Result<Found, ResultsError> {
    let unusable = |cause| ResultsError::Unusable {
        name: name.to_owned(),
        cause,
    };
    // A link stays one, and what it leads to is replaced.
    let path = &fs::canonicalize(path).map_err(|cause| open_error(name, cause))?;
    let opened = OpenOptions::new().read(true).append(true).open(path);
    let file = lock(opened.map_err(|cause| open_error(name, cause))?, name)?;
    if !is_at(&file, path).map_err(unusable)? {
        // Another one replaced it in between.
        return Err(ResultsError::Locked(name.to_owned()));
    }
    let scanned = scan(&file, name)?;
    let file = if scanned.unfinished == 0 {
        file.set_len(scanned.end).map_err(unusable)?;
        file
    } else {
        let copy = Copy::beside(path).map_err(unusable)?;
        let locked = lock(copy.file.try_clone().map_err(unusable)?, name)?;
        copy.take_the_place_of(path, scanned.end)
            .map_err(unusable)?;
        locked
    };
    let ids = scanned.ids;
    Ok(Found { file, ids })
}

/// Whether a path leads to this open file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (open, there) = (file.metadata()?, fs::metadata(path)?);
    Ok((open.dev(), open.ino()) == (there.dev(), there.ino()))
}

/// What a file has.
struct Scanned {
    ids: Ids,
    /// How many lines have to go.
    unfinished: u64,
    /// Where the last whole line ends, bytes.
    end: u64,
}

fn scan(file: &File, name: &str) -> Result<Scanned, ResultsError> {
    let mut scanned = Scanned {
        ids: Ids::default(),
        unfinished: 0,
        end: 0,
    };
    let mut lines = Lines::new(BufReader::new(file), MOST_BYTES);
    while let Some(line) = lines.next().map_err(|cause| ResultsError::Unusable {
        name: name.to_owned(),
        cause,
    })? {
        let wrong = |what: String| ResultsError::NotResults {
            name: name.to_owned(),
            line: line.number,
            what,
        };
        match line.closed {
            Closed::ByTheEnd => break,
            Closed::Never => return Err(wrong("it is too long for a result".to_owned())),
            Closed::ByNewline => {}
        }
        let record = RecordLine::parse(&line.text).map_err(|error| wrong(error.to_string()))?;
        if record.finished {
            scanned.ids.finish(&record.id);
        } else {
            scanned.unfinished += 1;
        }
        scanned.end = line.end;
    }
    Ok(scanned)
}

/// A file beside another, which takes its place whole or not at all.
struct Copy {
    file: File,
    path: PathBuf,
}

impl Copy {
    fn beside(path: &Path) -> io::Result<Self> {
        let mut name: OsString = path.as_os_str().to_owned();
        name.push(".resuming");
        let path = PathBuf::from(name);
        // One that is there was left by a process that was killed: only whoever has locked the file
        // beside it makes one.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .append(true)
            .create_new(true)
            .open(&path)?;
        Ok(Self { file, path })
    }

    /// Takes over what is finished of the first `end` bytes, and the name.
    fn take_the_place_of(&self, path: &Path, end: u64) -> io::Result<()> {
        let replaced = self
            .copy_finished(&File::open(path)?, end)
            .and_then(|()| self.file.set_permissions(fs::metadata(path)?.permissions()))
            .and_then(|()| self.file.sync_all())
            .and_then(|()| fs::rename(&self.path, path));
        if replaced.is_err() {
            _ = fs::remove_file(&self.path);
        }
        replaced
    }

    fn copy_finished(&self, from: &File, end: u64) -> io::Result<()> {
        let mut to = BufWriter::new(&self.file);
        let mut lines = Lines::new(BufReader::new(from.take(end)), MOST_BYTES);
        while let Some(line) = lines.next()? {
            if RecordLine::parse(&line.text).is_ok_and(|record| record.finished) {
                to.write_all(&line.text)?;
                to.write_all(b"\n")?;
            }
        }
        to.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use sandfork::batch::TaskId;

    use super::*;
    use crate::cli::map::ids::Met;

    fn line(id: i64, status: &str) -> String {
        format!("{{\"id\":{id},\"status\":\"{status}\"}}\n")
    }

    /// What is left of a file, and which ids are finished; or why not.
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
        let found = open(&link, "FILE").map_err(|error| error.to_string());
        if found.is_err() {
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "it was changed");
        }
        let Found { file, ids } = found?;
        let left = fs::read_to_string(&path).unwrap();
        // What is appended is behind it, in the file that has the name.
        (&*file).write_all(b"next").unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), format!("{left}next"));
        let held = open(&path, "FILE").unwrap_err();
        assert!(matches!(held, ResultsError::Locked(_)), "{held}");
        assert!(link.is_symlink());
        Ok((left, ids.count()))
    }

    #[test]
    fn whole_results_stay() {
        let text = line(1, "ok") + &line(2, "exception");
        assert_eq!(resumed(&text), Ok((text, 2)));
        assert_eq!(resumed(""), Ok((String::new(), 0)));
    }

    #[test]
    fn a_torn_line_goes() {
        for torn in ["{", "{\"id\":3,\"status\":\"ok\"}", "\0\0\0"] {
            let whole = line(1, "ok");
            assert_eq!(resumed(&format!("{whole}{torn}")), Ok((whole, 1)));
        }
    }

    #[test]
    fn results_that_are_none_go() {
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
    fn the_ids_are_those_of_the_tasks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        fs::write(
            &path,
            "{\"id\": \"a\", \"status\": \"ok\"}\n".to_owned() + &line(-7, "ok"),
        )
        .unwrap();
        let mut ids = open(&path, "FILE").unwrap().ids;
        let met = ["a".into(), (-7).into(), 7.into()].map(|id: TaskId| ids.meet(&id));
        assert_eq!(met, [Met::Finished, Met::Finished, Met::New]);
    }

    #[test]
    fn other_files_are_left_alone() {
        let tasks = "{\"id\": 1, \"code\": \"pass\"}\n";
        let refused = resumed(tasks).unwrap_err();
        assert!(
            refused
                .starts_with("FILE:1: it is no result of `sandfork map`: missing field `status`"),
            "{refused}"
        );
        let refused = resumed(&(line(1, "ok") + "\n" + &line(2, "ok"))).unwrap_err();
        assert!(refused.starts_with("FILE:2: "), "{refused}");
    }
}
