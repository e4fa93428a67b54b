//! Tests the compiled programs in an interpreter that shares no code with the compiler.

#![allow(clippy::unwrap_used)]

mod arguments;
mod cases;
mod interpreter;
mod lists;
mod oracle;
mod programs;
mod rules;
mod tables;

use super::{Arch, Filters, Surroundings, compile};
use sandfork_jail::program::BpfProgram;

const ARCHES: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

/// All combinations of tables that plans use.
const SURROUNDINGS: [Surroundings; 5] = [
    Surroundings::Namespaces,
    Surroundings::Loopback,
    Surroundings::SharedHost { landlock_abi: 1 },
    Surroundings::SharedHost { landlock_abi: 3 },
    Surroundings::SharedHost { landlock_abi: 6 },
];

/// Returns the total number of instructions. The kernel accepts 4096 in one program.
fn instructions(filters: &[BpfProgram]) -> usize {
    filters.iter().map(Vec::len).sum()
}

fn preset_filters(arch: Arch, surroundings: Surroundings) -> Filters {
    compile(arch, surroundings, &[] as &[&str], &[] as &[&str]).unwrap()
}
