//! Maps system call names to numbers, according to `syscalls.tbl`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::Arch;

/// The numbers of a system call on the supported architectures.
struct Numbers {
    x86_64: Option<u32>,
    aarch64: Option<u32>,
}

static TABLE: LazyLock<BTreeMap<&'static str, Numbers>> = LazyLock::new(|| {
    include_str!("syscalls.tbl")
        .lines()
        .filter_map(row)
        .collect()
});

fn row(line: &'static str) -> Option<(&'static str, Numbers)> {
    let mut columns = line.split_whitespace();
    let name = columns.next().filter(|name| !name.starts_with('#'))?;
    let mut number = || columns.next().and_then(|column| column.parse().ok());
    Some((
        name,
        Numbers {
            x86_64: number(),
            aarch64: number(),
        },
    ))
}

/// Returns whether a supported architecture has a system call of this name.
pub fn known_syscall(name: &str) -> bool {
    TABLE.contains_key(name)
}

/// Returns the number of a system call, or `None` if the architecture lacks it.
pub fn syscall_number(arch: Arch, name: &str) -> Option<u32> {
    TABLE.get(name).and_then(|numbers| match arch {
        Arch::X86_64 => numbers.x86_64,
        Arch::Aarch64 => numbers.aarch64,
    })
}

/// Returns the name of the system call with this number, or `None` if the architecture has none.
pub fn syscall_name(arch: Arch, number: u32) -> Option<&'static str> {
    TABLE
        .keys()
        .copied()
        .find(|name| syscall_number(arch, name) == Some(number))
}

/// Returns every system call of an architecture with its number, sorted by name. For tests.
#[cfg(any(test, feature = "internals"))]
pub fn syscalls(arch: Arch) -> impl Iterator<Item = (&'static str, u32)> {
    TABLE
        .keys()
        .filter_map(move |&name| Some((name, syscall_number(arch, name)?)))
}
