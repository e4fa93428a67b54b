//! Ranks the wheels of a package by how well they fit an interpreter, by their file names. Pure.
//!
//! An installer prefers the wheel that is most specific to this interpreter and machine (PEP 425).

use super::lock::file_of;

/// How specific a wheel is to one interpreter and machine. The greatest value is the best.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Fit {
    kind: Exactness,
    /// The interpreter's version, such as `(3, 11)` for `cp311`.
    python: (u32, u32),
    /// The C library's version, such as `(2, 28)` for `manylinux_2_28`.
    libc: (u32, u32),
    /// The build number; 0 if the name has none.
    build: u32,
}

/// The specificity of a wheel, in ascending order.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
enum Exactness {
    /// Not a wheel's file name.
    #[default]
    Unknown,
    /// Any machine.
    AnyMachine,
    /// This machine, without an interpreter ABI.
    Machine,
    /// The stable ABI.
    StableInterface,
    /// The ABI of this interpreter.
    Interface,
}

/// Ranks the wheel at a URL, which must be compatible.
pub fn fit(url: &str) -> Fit {
    let file = file_of(url);
    let parts: Vec<&str> = file.strip_suffix(".whl").unwrap_or("").split('-').collect();
    let (build, python, interface, machine) = match parts[..] {
        [_, _, python, interface, machine] => ("", python, interface, machine),
        [_, _, build, python, interface, machine] => (build, python, interface, machine),
        _ => return Fit::default(),
    };
    let kind = match (interface, machine) {
        ("none", "any") => Exactness::AnyMachine,
        ("none", _) => Exactness::Machine,
        (interface, _) if interface.split('.').all(|it| it.starts_with("abi")) => {
            Exactness::StableInterface
        }
        _ => Exactness::Interface,
    };
    let number = |text: &str| text.parse().unwrap_or(0);
    let pythons = python.split('.').map(|python| {
        let digits = python.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let (major, minor) = digits.split_at_checked(1).unwrap_or_default();
        (number(major), number(minor))
    });
    let build = build.split(|c: char| !c.is_ascii_digit()).next();
    Fit {
        kind,
        python: pythons.max().unwrap_or_default(),
        libc: machine.split('.').map(libc).max().unwrap_or_default(),
        build: number(build.unwrap_or("")),
    }
}

/// Returns the version of the C library that a platform tag requires (PEP 600, PEP 656).
fn libc(tag: &str) -> (u32, u32) {
    let older = [
        ("manylinux1_", (2, 5)),
        ("manylinux2010_", (2, 12)),
        ("manylinux2014_", (2, 17)),
    ];
    if let Some((_, version)) = older.iter().find(|(name, _)| tag.starts_with(name)) {
        return *version;
    }
    let mut parts = tag.split('_').skip(1).map_while(|part| part.parse().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specific_wheels_rank_above_general_ones() {
        let best_first = [
            "cp311-cp311-manylinux_2_28_x86_64",
            "cp311-cp311-manylinux1_x86_64.manylinux_2_17_x86_64.manylinux2014_x86_64",
            "cp311-cp311-manylinux1_x86_64.manylinux2010_x86_64",
            "cp311-cp311-linux_x86_64",
            "cp310-abi3-manylinux_2_17_x86_64",
            "cp39-abi3-manylinux_2_28_x86_64",
            "cp37-abi3.abi4-manylinux_2_17_x86_64",
            "py3-none-manylinux2014_x86_64",
            "1b-py3-none-any",
            "py2.py3-none-any",
        ];
        let fits = best_first.map(|tags| fit(&format!("https://x/a%2B-1.0-{tags}.whl#b")));
        for (tags, pair) in best_first.iter().zip(fits.windows(2)) {
            assert!(pair[0] > pair[1], "{tags}: {pair:?}");
        }
        assert_eq!(fit("https://x/a-1.0.tar.gz"), Fit::default());
        assert!(fits[9] > Fit::default());
    }
}
