//! Finds the shared libraries that programs need, with the dynamic linker (ldd(1)).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

/// The maximum number of programs in one command line.
const AT_ONCE: usize = 200;

/// Returns all files that the dynamic linker would load for these programs, including itself.
pub fn of(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut libraries = BTreeSet::new();
    for some in programs.chunks(AT_ONCE) {
        let mut ldd = Command::new("ldd");
        // Fails for programs that are not dynamically linked, which need no libraries.
        let output = ldd.args(some).stderr(Stdio::null()).output()?;
        libraries.extend(parse(&String::from_utf8_lossy(&output.stdout)));
    }
    Ok(libraries)
}

/// Parses lines such as `libm.so.6 => /lib/libm.so.6 (0x7f)` and `/lib64/ld-linux-x86-64.so.2 (0x7f)`.
/// Lines with the names of the inspected programs end with a colon.
fn parse(text: &str) -> impl Iterator<Item = PathBuf> {
    text.lines().filter_map(|line| {
        let (path, _) = line.trim().rsplit_once(" (")?;
        let path = path
            .rsplit_once(" => ")
            .map_or(path, |(_, resolved)| resolved);
        let path = Path::new(path);
        path.is_absolute().then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_linker_are_found() {
        let text = "\
/usr/bin/a:
\tlinux-vdso.so.1 (0x00007ffd)
\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f6c)
\tlibnone.so => not found
\t/lib64/ld-linux-x86-64.so.2 (0x00007f6d)
/usr/bin/static:
\tstatically linked
";
        let expected = [
            "/lib/x86_64-linux-gnu/libz.so.1",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        let found: Vec<PathBuf> = parse(text).collect();
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
