//! Parses `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Mount {
    /// The directory within the file system that is mounted.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
    /// The file system type.
    pub kind: String,
    /// The options of the file system.
    pub options: Vec<String>,
}

/// Parses all mounts, in the kernel's order. Skips malformed lines.
pub(super) fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    let (own, filesystem) = line.split_once(" - ")?;
    let mut own = own.split(' ').skip(3);
    let mut path = || Some(unescape(own.next()?).into_owned());
    let (root, point) = (path()?, path()?);
    let mut filesystem = filesystem.split(' ');
    let kind = filesystem.next()?.to_owned();
    let options = filesystem.nth(1)?.split(',').map(str::to_owned).collect();
    Some(Mount {
        root,
        point,
        kind,
        options,
    })
}

/// Decodes the kernel's octal escapes of space, tab, newline and backslash.
pub(crate) fn unescape(field: &str) -> Cow<'_, Path> {
    if !field.contains('\\') {
        return Cow::Borrowed(Path::new(field));
    }
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if let [
            b'\\',
            a @ b'0'..=b'3',
            b @ b'0'..=b'7',
            c @ b'0'..=b'7',
            tail @ ..,
        ] = rest
        {
            bytes.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    Cow::Owned(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_with_escapes_and_optional_fields_is_parsed() {
        let line =
            "36 35 98:0 /a\\040b /mnt/c\\134d rw,noatime master:1 shared:2 - cgroup none rw,memory";
        assert_eq!(
            parse(line),
            [Mount {
                root: "/a b".into(),
                point: "/mnt/c\\d".into(),
                kind: "cgroup".into(),
                options: vec!["rw".into(), "memory".into()],
            }]
        );
    }

    #[test]
    fn malformed_lines_are_skipped() {
        assert_eq!(parse("\nnonsense\n1 2 3:4 / - tmpfs\n"), []);
    }
}
