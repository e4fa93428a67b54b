//! Interprets classic BPF as the kernel does for seccomp (kernel/seccomp.c, net/core/filter.c). Supports
//! only the instructions that filters may contain and panics at any other. The fuzzers run programs in it
//! too (`fuzz/targets`).

use super::{Arch, BpfProgram};

/// `struct seccomp_data`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) audit_arch: u32,
    pub(super) number: u32,
    pub(super) arguments: [u64; 6],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    Allow,
    Errno(u16),
    Ask,
    /// The supervisor refuses the call with `EPERM`.
    Reported,
    KillProcess,
}

impl Answer {
    /// Returns the answer that the guest sees.
    pub(super) fn to_guest(self) -> Self {
        match self {
            Self::Reported => Self::Errno(1),
            other => other,
        }
    }
}

impl Call {
    pub(super) fn new(arch: Arch, number: u32, arguments: [u64; 6]) -> Self {
        let audit_arch = match arch {
            Arch::X86_64 => 0xc000_003e,
            Arch::Aarch64 => 0xc000_00b7,
        };
        Self {
            audit_arch,
            number,
            arguments,
        }
    }

    fn word(&self, offset: u32) -> u32 {
        assert_eq!(offset % 4, 0, "unaligned load");
        let argument = |index: u32| self.arguments[index as usize];
        match offset {
            0 => self.number,
            4 => self.audit_arch,
            16.. if offset.is_multiple_of(8) => (argument((offset - 16) / 8) & 0xffff_ffff) as u32,
            20.. => (argument((offset - 20) / 8) >> 32) as u32,
            _ => panic!("load of the instruction pointer"),
        }
    }
}

/// Returns the kernel's answer to a process that has loaded `programs`, oldest first: the smallest action as
/// a signed number wins, and among equal actions that of the most recent program.
pub(super) fn answer<'a>(
    programs: impl IntoIterator<Item = &'a BpfProgram>,
    call: &Call,
) -> Answer {
    let mut values: Vec<u32> = programs
        .into_iter()
        .map(|program| run(program, call))
        .collect();
    values.reverse();
    let action = |(_, value): &(usize, u32)| (value & 0xffff_0000).cast_signed();
    let (age, value) = values
        .into_iter()
        .enumerate()
        .min_by_key(action)
        .unwrap_or((0, 0x7fff_0000));
    match decode(value) {
        // A supervisor listens to the most recent program only.
        Answer::Reported if age > 0 => Answer::Errno(38),
        answer => answer,
    }
}

fn decode(value: u32) -> Answer {
    match value & 0xffff_0000 {
        0x7fff_0000 => Answer::Allow,
        0x7fc0_0000 if value == 0x7fc0_0002 => Answer::Reported,
        0x7fc0_0000 => Answer::Ask,
        0x0005_0000 => Answer::Errno((value & 0xffff) as u16),
        0x8000_0000 => Answer::KillProcess,
        other => panic!("unexpected action {other:#x}"),
    }
}

/// Runs one program and returns its raw return value.
fn run(program: &BpfProgram, call: &Call) -> u32 {
    let mut accumulator = 0;
    let mut next = 0;
    loop {
        let (code, yes, no, operand) = program[next];
        next += 1;
        match code {
            0x20 => accumulator = call.word(operand),
            0x54 => accumulator &= operand,
            0x05 => next += operand as usize,
            0x15 => next += usize::from(if accumulator == operand { yes } else { no }),
            0x25 => next += usize::from(if accumulator > operand { yes } else { no }),
            0x35 => next += usize::from(if accumulator >= operand { yes } else { no }),
            0x06 => return operand,
            _ => panic!("unsupported instruction {code:#x}"),
        }
    }
}

/// Performs the kernel's checks on a program: its length, jumps within it, and a return at the end.
pub(super) fn assert_loadable(program: &BpfProgram) {
    assert!((1..=4096).contains(&program.len()));
    assert_eq!(program.last().unwrap().0, 0x06);
    for (index, &(code, yes, no, operand)) in program.iter().enumerate() {
        let left = program.len() - index - 1;
        match code {
            0x05 => assert!(
                (operand as usize) < left,
                "jump at {index} out of the program"
            ),
            0x15 | 0x35 => assert!(usize::from(yes.max(no)) < left, "branch at {index}"),
            0x20 => assert!(operand < 64 && operand % 4 == 0, "load at {index}"),
            0x54 | 0x06 => {}
            _ => panic!("instruction {code:#x} at {index}"),
        }
    }
}

#[test]
fn stricter_answer_wins_and_the_most_recent_of_equals() {
    let constant = |value| vec![(0x06, 0, 0, value)];
    let (allow, perm, nosys, kill) = (
        constant(0x7fff_0000),
        constant(0x0005_0001),
        constant(0x0005_0026),
        constant(0x8000_0000),
    );
    let call = Call::new(Arch::X86_64, 0, [0; 6]);
    assert_eq!(answer([&allow, &perm], &call), Answer::Errno(1));
    assert_eq!(answer([&perm, &allow], &call), Answer::Errno(1));
    assert_eq!(answer([&perm, &nosys], &call), Answer::Errno(38));
    assert_eq!(answer([&nosys, &perm], &call), Answer::Errno(1));
    assert_eq!(answer([&kill, &perm], &call), Answer::KillProcess);
}
