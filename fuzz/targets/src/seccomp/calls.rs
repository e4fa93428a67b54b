//! Generates system calls at the boundaries of the rules.

use sandfork::internals::plan::seccomp::{
    Arch, Check, Preset, Surroundings, Verdict, syscall_number, syscalls,
};

use super::interpreter::Call;
use crate::source::Source;

/// The bit that marks a call of x32 (asm/unistd.h, `__X32_SYSCALL_BIT`).
const X32: u32 = 0x4000_0000;
/// `AUDIT_ARCH_I386`, which `int 0x80` uses, and 32-bit ARM.
const FOREIGN: [u32; 2] = [0x4000_0003, 0x4000_0028];

pub(super) struct Generator {
    arch: Arch,
    numbers: Vec<u32>,
    /// Calls whose rule checks arguments, each with the index of its rule. Half of the choices are such calls.
    conditional: Vec<(u32, usize)>,
    /// The values that each such rule compares arguments with.
    of_rules: Vec<Vec<u32>>,
    /// The values of all rules.
    values: Vec<u32>,
}

impl Generator {
    pub(super) fn new(arch: Arch, surroundings: Surroundings) -> Self {
        let preset = Preset::of(surroundings);
        let mut conditional = Vec::new();
        let mut of_rules = Vec::new();
        let mut values = vec![0];
        for (name, rule) in &preset.guest {
            if let Verdict::AllowIf { checks, .. } | Verdict::AskIf { checks, .. } = rule.verdict {
                let of_rule: Vec<u32> = checks.iter().flat_map(numbers).collect();
                values.extend(&of_rule);
                conditional.extend(syscall_number(arch, name).map(|it| (it, of_rules.len())));
                of_rules.push(of_rule);
            }
        }
        values.sort_unstable();
        values.dedup();
        Self {
            arch,
            numbers: syscalls(arch).map(|(_, number)| number).collect(),
            conditional,
            of_rules,
            values,
        }
    }

    pub(super) fn call(&self, source: &mut Source<'_>) -> Call {
        let how = source.byte();
        let mut values = &self.values;
        let number = match how & 7 {
            0..=3 => {
                let (number, rule) = source.pick(&self.conditional).unwrap_or_default();
                // All arguments are from the rule's own values, because several have to match at once.
                values = self.of_rules.get(rule).unwrap_or(values);
                number
            }
            4..=5 => source.pick(&self.numbers).unwrap_or(0),
            6 => source.short().into(),
            _ => source.word(),
        };
        let number = if how & 0x18 == 0x18 {
            number ^ X32
        } else {
            number
        };
        let mut call = Call::new(self.arch, number, [0; 6]);
        for argument in &mut call.arguments {
            *argument = argument_of(values, source);
        }
        match how >> 5 {
            6 => call.audit_arch = source.pick(&FOREIGN).unwrap_or(0),
            7 => call.audit_arch = source.word(),
            _ => {}
        }
        call
    }
}

/// Returns a value of a rule or a neighbour of it, with any upper half.
fn argument_of(values: &[u32], source: &mut Source<'_>) -> u64 {
    let how = source.byte();
    let value = source.pick(values).unwrap_or(0);
    let bit = 1u32 << (how >> 3);
    let low = match how & 7 {
        0..=3 => value,
        4 => value ^ bit,
        5 if how & 8 == 0 => value.wrapping_add(1),
        5 => value.wrapping_sub(1),
        6 if how & 8 == 0 => value | source.pick(values).unwrap_or(0),
        6 => !value,
        _ => return source.long(),
    };
    let high = match how >> 6 {
        0 | 1 => 0,
        2 => u32::MAX,
        _ => source.word(),
    };
    u64::from(high) << 32 | u64::from(low)
}

fn numbers(check: &Check) -> Vec<u32> {
    match *check {
        Check::OneOf { mask, values, .. } | Check::NoneOf { mask, values, .. } => {
            values.iter().copied().chain([mask, !mask]).collect()
        }
        Check::When { values, then, .. } => [values.to_vec(), numbers(then)].concat(),
    }
}
