//! Assembles verdicts into classic BPF (Documentation/networking/filter.rst): an architecture check, a
//! binary search over ranges of system call numbers, and argument checks at its leaves.
//!
//! Each comparison takes one instruction and each answer one return. `seccompiler` emits a chain of
//! equality tests, which is more than five times as long for the same rules, and supports only one error
//! number per program. A test compares the two. Length matters: the kernel runs a program once for each
//! allowed number when it loads it, and again at each call whose arguments the program checks.

use std::collections::BTreeMap;

use sandfork_jail::filter::{ASK_OR_ALLOW, ASK_OR_REFUSE, RETURN};
use sandfork_jail::program::{BpfInstruction, BpfProgram};

use super::Arch;
use super::rule::{Answered, Check, Errno, Refusals, Verdict, WithoutListener};

// linux/bpf_common.h
const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K

// linux/seccomp.h
const RET_KILL_PROCESS: u32 = 0x8000_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_ASK: u32 = 0x7fc0_0000; // SECCOMP_RET_USER_NOTIF
const RET_ALLOW: u32 = 0x7fff_0000;

// Offsets into `struct seccomp_data`. Both architectures are little-endian.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// The answer to a system call without a verdict.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fallback {
    /// Allow the call: the program is a deny-list.
    Allow,
    /// Return `ENOSYS`: the program is an allow-list.
    NoSys,
}

/// Assembles the verdicts for system call numbers into a program. The program kills the process at a call of
/// another architecture, including `int 0x80` on x86_64. The numbers of x32 are above all verdicts and get
/// the fallback.
pub(super) fn assemble(
    arch: Arch,
    verdicts: &BTreeMap<u32, Answered>,
    fallback: Fallback,
) -> BpfProgram {
    let mut assembler = Assembler::default();
    let fallback = match fallback {
        Fallback::Allow => RET_ALLOW,
        Fallback::NoSys => error(Errno::NoSys),
    };
    let ranges = assembler.ranges(verdicts, fallback);
    let search = assembler.search(&ranges);
    assembler.enter(search);
    let number = assembler.push((LOAD_WORD, 0, 0, NUMBER));
    let kill = assembler.push((RETURN, 0, 0, RET_KILL_PROCESS));
    assembler.branch(JUMP_IF_EQUAL, audit_arch(arch), number, kill);
    assembler.push((LOAD_WORD, 0, 0, ARCHITECTURE));
    assembler.finish()
}

/// Returns `AUDIT_ARCH_*` of linux/audit.h.
fn audit_arch(arch: Arch) -> u32 {
    match arch {
        Arch::X86_64 => 0xc000_003e,
        Arch::Aarch64 => 0xc000_00b7,
    }
}

fn error(errno: Errno) -> u32 {
    RET_ERRNO | errno as u32
}

/// An emitted instruction: its index in the reversed program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Label(usize);

/// Emits the program backwards. Classic BPF only jumps forwards, so the target of a jump then always exists
/// before the jump.
#[derive(Default)]
struct Assembler {
    reversed: Vec<BpfInstruction>,
    /// For each return value, the return instruction nearest to the start of the program.
    returns: BTreeMap<u32, Label>,
}

impl Assembler {
    /// The range of conditional jumps, which have 8-bit offsets. Two instructions are reserved: making one
    /// target reachable may insert an instruction before the other.
    const REACH: usize = u8::MAX as usize - 2;

    fn push(&mut self, instruction: BpfInstruction) -> Label {
        self.reversed.push(instruction);
        Label(self.reversed.len() - 1)
    }

    /// Returns the number of instructions between the next instruction and `target`.
    fn distance(&self, target: Label) -> usize {
        self.reversed.len() - target.0 - 1
    }

    fn answer(&mut self, value: u32) -> Label {
        match self.returns.get(&value) {
            Some(&label) => label,
            None => self.copy_of_return(value),
        }
    }

    fn copy_of_return(&mut self, value: u32) -> Label {
        let label = self.push((RETURN, 0, 0, value));
        self.returns.insert(value, label);
        label
    }

    /// Returns a label that is equivalent to `target` and in the range of a conditional jump.
    fn reachable(&mut self, target: Label) -> Label {
        if self.distance(target) <= Self::REACH {
            return target;
        }
        match self.reversed[target.0] {
            (RETURN, _, _, value) => {
                let nearest = self.answer(value);
                if self.distance(nearest) <= Self::REACH {
                    nearest
                } else {
                    self.copy_of_return(value)
                }
            }
            _ => self.jump(target),
        }
    }

    fn jump(&mut self, target: Label) -> Label {
        // The offset fits, because the kernel rejects programs of more than 4096 instructions.
        let offset = u32::try_from(self.distance(target)).unwrap_or(u32::MAX);
        self.push((JUMP, 0, 0, offset))
    }

    fn branch(&mut self, code: u16, operand: u32, yes: Label, no: Label) -> Label {
        let yes = self.reachable(yes);
        let no = self.reachable(no);
        let [yes, no] =
            [yes, no].map(|label| u8::try_from(self.distance(label)).unwrap_or(u8::MAX));
        self.push((code, yes, no, operand))
    }

    /// Makes the next pushed instruction fall through to `target`.
    fn enter(&mut self, target: Label) {
        if self.distance(target) > 0 {
            self.jump(target);
        }
    }

    /// Returns the first number of each range of numbers with the same answer, and the answer.
    fn ranges(&mut self, verdicts: &BTreeMap<u32, Answered>, fallback: u32) -> Vec<(u32, Label)> {
        let otherwise = self.answer(fallback);
        let mut ranges = vec![(0, otherwise)];
        // Calls with equal verdicts share instructions.
        let mut known: Vec<(&Answered, Label)> = Vec::new();
        let mut expected = 0;
        for (&number, verdict) in verdicts {
            if number != expected {
                extend(&mut ranges, expected, otherwise);
            }
            let label = match known.iter().find(|(other, _)| *other == verdict) {
                Some((_, label)) => *label,
                None => self.verdict(verdict),
            };
            known.push((verdict, label));
            extend(&mut ranges, number, label);
            expected = number + 1;
        }
        extend(&mut ranges, expected, otherwise);
        ranges
    }

    fn search(&mut self, ranges: &[(u32, Label)]) -> Label {
        if let [(_, label)] = ranges {
            return *label;
        }
        let (below, from) = ranges.split_at(ranges.len() / 2);
        let first = from[0].0;
        let from = self.search(from);
        let below = self.search(below);
        self.branch(JUMP_IF_AT_LEAST, first, from, below)
    }

    fn verdict(&mut self, Answered { verdict, refusals }: &Answered) -> Label {
        let refused = |errno| match (errno, refusals) {
            (Errno::Perm, Refusals::Reported) => ASK_OR_REFUSE,
            _ => error(errno),
        };
        match verdict {
            Verdict::Allow => self.answer(RET_ALLOW),
            Verdict::Refuse { errno, .. } => self.answer(refused(*errno)),
            Verdict::AllowIf {
                ignored,
                checks,
                otherwise,
            } => {
                let rest = self.allow_if(checks, refused(*otherwise));
                self.ignore_if(ignored, rest)
            }
            Verdict::AskIf {
                without_listener,
                asked,
                checks,
                otherwise,
            } => {
                let unasked = self.allow_if(checks, refused(*otherwise));
                let ask = self.answer(match without_listener {
                    WithoutListener::NoSys => RET_ASK,
                    WithoutListener::Allow => ASK_OR_ALLOW,
                });
                self.check(asked, ask, unasked)
            }
        }
    }

    fn allow_if(&mut self, checks: &[Check], refused: u32) -> Label {
        let refused = self.answer(refused);
        let allowed = self.answer(RET_ALLOW);
        checks
            .iter()
            .rev()
            .fold(allowed, |passed, check| self.check(check, passed, refused))
    }

    fn ignore_if(&mut self, ignored: &[Check], rest: Label) -> Label {
        if ignored.is_empty() {
            return rest;
        }
        let nothing = self.answer(error(Errno::Nothing));
        ignored
            .iter()
            .rev()
            .fold(nothing, |passed, check| self.check(check, passed, rest))
    }

    fn check(&mut self, check: &Check, passed: Label, failed: Label) -> Label {
        match *check {
            Check::OneOf {
                argument,
                mask,
                values,
            } => self.compare(argument, mask, values, passed, failed),
            Check::NoneOf {
                argument,
                mask,
                values,
            } => self.compare(argument, mask, values, failed, passed),
            Check::When {
                argument,
                values,
                then,
            } => {
                let then = self.check(then, passed, failed);
                self.compare(argument, u32::MAX, values, then, passed)
            }
        }
    }

    fn compare(
        &mut self,
        argument: u8,
        mask: u32,
        values: &[u32],
        found: Label,
        missing: Label,
    ) -> Label {
        let first = values.iter().rev().fold(missing, |next, &value| {
            self.branch(JUMP_IF_EQUAL, value, found, next)
        });
        self.enter(first);
        if mask != u32::MAX {
            self.push((AND, 0, 0, mask));
        }
        self.push((LOAD_WORD, 0, 0, offset(argument)))
    }

    fn finish(mut self) -> BpfProgram {
        self.reversed.reverse();
        self.reversed
    }
}

/// Appends a range, unless the last range has the same answer.
fn extend(ranges: &mut Vec<(u32, Label)>, first: u32, label: Label) {
    match ranges.last_mut() {
        Some(last) if last.0 == first => last.1 = label,
        Some(last) if last.1 == label => {}
        _ => ranges.push((first, label)),
    }
}

/// Returns the offset of the low half of an argument.
fn offset(argument: u8) -> u32 {
    ARGUMENTS + 8 * u32::from(argument)
}
