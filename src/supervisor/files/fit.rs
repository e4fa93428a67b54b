//! Checks whether files fit into a new work directory, before it is created.

use sandfork_jail::sys::process::page_size;

use super::GuestPath;
use crate::error::{Error, ErrorKind};
use crate::policy::{LimitName, Limits};

/// Checks whether files can be in one work directory under these limits. If two have the same path, the later one
/// counts.
pub fn check(files: &[(GuestPath, Vec<u8>)], limits: &Limits) -> Result<(), Error> {
    // Sorting puts a path right before the paths beneath it. The sort is stable, and the reversed order puts the last
    // of equal paths first.
    let mut sorted: Vec<_> = files.iter().rev().collect();
    sorted.sort_by(|(one, _), (other, _)| one.names.cmp(&other.names));
    sorted.dedup_by(|(one, _), (other, _)| one == other);

    let (page, room) = (page_size(), limits.work_size());
    let pages = sorted
        .iter()
        .map(|(_, contents)| (contents.len() as u64).div_ceil(page));
    let taken: u64 = pages.sum();
    if taken > room.div_ceil(page) {
        return Err(misfit(format!(
            "the files take {} bytes in whole pages, over the {} of the work directory: raise that in the policy \
             (`--set filesystem.work_size=...`)",
            taken * page,
            limits.text(LimitName::WorkSize)
        )));
    }

    // The work directory itself is an entry too.
    let (mut entries, mut before) = (1, &[] as &[String]);
    for (path, _) in sorted {
        let pairs = before.iter().zip(&path.names);
        let shared = pairs.take_while(|(one, other)| one == other).count();
        if shared > 0 && shared == before.len() {
            return Err(misfit(format!(
                "`{}` is a file, and `{path}` needs a directory there: rename one of both",
                before.join("/")
            )));
        }
        entries += (path.names.len() - shared) as u64;
        before = &path.names;
    }
    let allowed = limits.work_inodes();
    if entries > allowed {
        return Err(misfit(format!(
            "the files are {entries} with their directories, over the {allowed} of the work directory: raise that in \
             the policy (`--set filesystem.work_inodes=...`)"
        )));
    }
    Ok(())
}

/// Builds the error for files that cannot be in one work directory together.
fn misfit(why: String) -> Error {
    Error::new(ErrorKind::Request, why)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::policy::{BuiltInsOnly, Policy};

    fn fit(files: &[(&str, usize)]) -> Result<(), String> {
        let sets = ["filesystem.work_size=64KiB", "filesystem.work_inodes=16"];
        let sets = sets.map(|set| set.parse().unwrap());
        let policy = Policy::load("standard", &sets, &BuiltInsOnly).unwrap();
        let file = |(path, size): &(&str, usize)| {
            (GuestPath::parse_file(path).unwrap(), vec![b'x'; *size])
        };
        let files: Vec<_> = files.iter().map(file).collect();
        check(&files, &policy.limits).map_err(|error| error.to_string())
    }

    #[test]
    fn path_through_a_file_is_a_conflict() {
        for (files, conflict) in [
            (["a", "a/b", "c"], Some(("a", "a/b"))),
            (["a/b/c", "a.b", "a/b"], Some(("a/b", "a/b/c"))),
            (["a/./b/../b", "a/b/c", "a!"], Some(("a/b", "a/b/c"))),
            (["a", "a.b", "ab/c"], None),
            (["a", "b/../a", "c"], None),
        ] {
            let sentence = conflict.map(|(file, beneath)| {
                format!("`{file}` is a file, and `{beneath}` needs a directory there: rename one of both")
            });
            assert_eq!(
                fit(&files.map(|path| (path, 1))).err(),
                sentence,
                "{files:?}"
            );
        }
    }

    #[test]
    fn files_take_whole_pages_and_one_entry_each() {
        let page = usize::try_from(page_size()).unwrap();
        let room = 64 << 10;
        assert_eq!(fit(&[("a", room)]), Ok(()));
        assert_eq!(fit(&[("a", room), ("empty", 0), ("a", page)]), Ok(()));
        let over = fit(&[("a", room - page + 1), ("b", 1)]).unwrap_err();
        let sentence = format!(
            "the files take {} bytes in whole pages, over the 64KiB of",
            room + page
        );
        assert!(over.starts_with(&sentence), "{over}");

        let names: Vec<String> = (0..16).map(|number| format!("d/e/{number}")).collect();
        let files: Vec<_> = names.iter().map(|name| (name.as_str(), 0)).collect();
        assert_eq!(fit(&files[..13]), Ok(()));
        let over = fit(&files[..14]).unwrap_err();
        let sentence = "the files are 17 with their directories, over the 16 of";
        assert!(over.starts_with(sentence), "{over}");
    }
}
