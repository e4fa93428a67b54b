//! Changes the jail's own system calls on their way to the kernel.

use std::collections::HashSet;
use std::fs;
use std::io;

use nix::unistd::Pid;
use sandfork::internals::plan::seccomp::{Arch, syscall_number};
use sandfork_jail::program::BpfInstruction;

use crate::family::{Call, Role};
use crate::memory::Memory;
use crate::tracer::Before;

/// One change, and the calls to which it applies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Edit {
    pub at: Site,
    pub act: Act,
}

/// The calls to which a change applies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Site {
    pub role: Role,
    pub name: &'static str,
    pub which: Which,
    /// Only once the process has made a call of this name.
    pub after: Option<&'static str>,
}

/// Selects among the calls of one name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Which {
    /// The nth since the process was born or received the command.
    Nth(usize),
    /// Those on a descriptor of a file with this name.
    On(String),
    /// Those with this path as their second argument.
    At(&'static str),
    /// Those whose first arguments are these.
    With(Vec<u64>),
    /// Of prlimit64(2), those that set a limit.
    Setting,
    Every,
}

/// How a call is changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Act {
    /// The call is not made and returns this value.
    LeaveOut(i64),
    /// The call is not made, but reports that it wrote all data.
    Swallow,
    /// These bits of an argument are cleared.
    Without { argument: usize, bits: u64 },
    /// Bits of a word in the structure that an argument points to are changed.
    Word {
        argument: usize,
        offset: u64,
        clear: u64,
        set: u64,
    },
    /// An option is removed from a comma-separated list.
    Option { argument: usize, without: String },
    /// Another call is made instead.
    Instead {
        name: &'static str,
        arguments: Vec<Value>,
    },
    /// These instructions are prepended to a filter program.
    Filter(Vec<BpfInstruction>),
}

/// An argument of the call that is made instead.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// The value of the original argument, with these bits set.
    With(usize, u64),
    Number(u64),
    Text(&'static str),
}

impl Site {
    pub fn of(call: &Call) -> Self {
        Self {
            role: call.role,
            name: call.name(),
            which: Which::Nth(call.occurrence),
            after: None,
        }
    }

    pub fn every(role: Role, name: &'static str) -> Self {
        Self {
            role,
            name,
            which: Which::Every,
            after: None,
        }
    }

    /// Restricts the change to the calls that match `which`.
    pub fn which(self, which: Which) -> Self {
        Self { which, ..self }
    }

    /// Restricts the change to calls that follow a call of this name.
    pub fn after(self, name: &'static str) -> Self {
        let after = Some(name);
        Self { after, ..self }
    }

    fn is(&self, pid: Pid, call: &Call, made: &Made) -> bool {
        self.role == call.role
            && call.is(&[self.name])
            && self.after.is_none_or(|name| made.contains(&(pid, name)))
            && match &self.which {
                Which::Nth(nth) => *nth == call.occurrence,
                Which::On(file) => file_of(pid, call).as_ref() == Some(file),
                Which::At(path) => {
                    let named = Memory::of(pid).and_then(|memory| memory.text(call.arguments[1]));
                    named.is_ok_and(|named| named == *path)
                }
                Which::With(arguments) => call.arguments.starts_with(arguments),
                Which::Setting => call.arguments[2] != 0,
                Which::Every => true,
            }
    }
}

/// The names of the calls that each process has made.
pub type Made = HashSet<(Pid, &'static str)>;

/// Returns the name of the file whose descriptor is the call's first argument.
pub fn file_of(pid: Pid, call: &Call) -> Option<String> {
    let [descriptor, ..] = call.arguments;
    let path = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
    Some(path.file_name()?.to_string_lossy().into_owned())
}

impl Edit {
    pub fn new(at: Site, act: Act) -> Self {
        Self { at, act }
    }

    /// Applies the change if the call matches.
    pub fn apply(
        &self,
        pid: Pid,
        call: &Call,
        made: &Made,
        registers: &mut libc::user_regs_struct,
    ) -> io::Result<Before> {
        if !self.at.is(pid, call, made) {
            return Ok(Before::Untouched);
        }
        match &self.act {
            Act::LeaveOut(returns) => return Ok(Before::LeftOut(*returns)),
            Act::Swallow => return Ok(Before::LeftOut(call.arguments[2].cast_signed())),
            Act::Without { argument, bits } => *register(registers, *argument) &= !bits,
            Act::Word {
                argument,
                offset,
                clear,
                set,
            } => {
                let memory = Memory::of(pid)?;
                let address = call.arguments[*argument] + offset;
                let word = (memory.word(address)? & !clear) | set;
                memory.write(address, &word.to_le_bytes())?;
            }
            Act::Option { argument, without } => {
                let memory = Memory::of(pid)?;
                let address = call.arguments[*argument];
                let options = memory.text(address)?;
                let kept = options.split(',').filter(|option| option != without);
                let kept = kept.collect::<Vec<_>>().join(",");
                memory.write(address, &[kept.as_bytes(), &[0]].concat())?;
            }
            Act::Instead { name, arguments } => {
                let number = syscall_number(Arch::X86_64, name).expect("a known system call");
                registers.orig_rax = number.into();
                for (place, value) in arguments.iter().enumerate() {
                    *register(registers, place) = match value {
                        Value::With(argument, bits) => call.arguments[*argument] | bits,
                        Value::Number(number) => *number,
                        Value::Text(text) => {
                            let at = below(registers.rsp);
                            Memory::of(pid)?.write(at, &[text.as_bytes(), &[0]].concat())?;
                            at
                        }
                    };
                }
            }
            Act::Filter(first) => {
                let header = put_before(pid, call.arguments[2], registers.rsp, first)?;
                registers.rdx = header;
            }
        }
        Ok(Before::Changed)
    }
}

/// Returns an address below the used part of the stack.
fn below(stack: u64) -> u64 {
    (stack - (64 << 10)) & !0xf
}

/// Writes a longer program there and returns the address of its header.
///
/// Jumps of classic BPF are relative, so the original instructions stay unchanged.
fn put_before(pid: Pid, header: u64, stack: u64, first: &[BpfInstruction]) -> io::Result<u64> {
    let memory = Memory::of(pid)?;
    let length = u16::from_le_bytes([memory.read(header, 1)?[0], memory.read(header + 1, 1)?[0]]);
    let program = memory.read(memory.word(header + 8)?, usize::from(length) * 8)?;
    let mut bytes: Vec<u8> = Vec::new();
    for (code, yes, no, operand) in first {
        bytes.extend(code.to_le_bytes());
        bytes.extend([*yes, *no]);
        bytes.extend(operand.to_le_bytes());
    }
    let added = u16::try_from(first.len()).expect("fewer than 256 instructions");
    bytes.extend(program);
    let at = below(stack);
    memory.write(at + 16, &bytes)?;
    memory.write(at, &u64::from(length + added).to_le_bytes())?;
    memory.write(at + 8, &(at + 16).to_le_bytes())?;
    Ok(at)
}

fn register(registers: &mut libc::user_regs_struct, argument: usize) -> &mut u64 {
    match argument {
        0 => &mut registers.rdi,
        1 => &mut registers.rsi,
        2 => &mut registers.rdx,
        3 => &mut registers.r10,
        4 => &mut registers.r8,
        _ => &mut registers.r9,
    }
}
