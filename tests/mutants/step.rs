//! The steps of a jail's set-up: the observed calls, with the data that their arguments point to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use nix::unistd::Pid;

use crate::edit::file_of;
use crate::family::{Call, Role};
use crate::memory::Memory;
use crate::mutant::has_reported_jail;
use crate::tracer::{After, Before, Changes};

/// A call that makes part of the jail.
#[derive(Clone, Debug)]
pub struct Step {
    pub call: Call,
    pub detail: Detail,
}

/// Details of a step that are not in the call's register arguments.
#[derive(Clone, Debug)]
pub enum Detail {
    Plain,
    /// mount(2): the target, the type and the options.
    Mount {
        target: String,
        kind: String,
        options: String,
    },
    /// mount_setattr(2) of the tree that open_tree(2) cloned last.
    Tree {
        path: String,
        attributes: u64,
    },
    /// fsmount(2) of the file system that fsopen(2) named last.
    FileSystem {
        kind: String,
    },
    /// landlock_create_ruleset(2): the handled rights.
    Ruleset {
        files: u64,
        net: u64,
        scopes: u64,
    },
    /// landlock_add_rule(2).
    Rule {
        rights: u64,
    },
    /// write(2).
    Setting {
        file: String,
        value: String,
    },
}

pub type Steps = Rc<RefCell<Vec<Step>>>;

/// Records the steps.
#[derive(Default)]
pub struct Recorder {
    pub steps: Steps,
    last: HashMap<Pid, String>,
}

impl Recorder {
    fn record(&mut self, pid: Pid, call: &Call) -> io::Result<()> {
        if matches!(call.role, Role::Other | Role::WorkerInit) {
            return Ok(());
        }
        let memory = Memory::of(pid)?;
        let [first, second, third, fourth, fifth, _] = call.arguments;
        let detail = match call.name() {
            "open_tree" => {
                self.last.insert(pid, memory.text(second)?);
                Detail::Plain
            }
            "fsopen" => {
                self.last.insert(pid, memory.text(first)?);
                Detail::Plain
            }
            "mount" => Detail::Mount {
                target: memory.text(second)?,
                kind: memory.text(third)?,
                options: memory.text(fifth)?,
            },
            "mount_setattr" => Detail::Tree {
                path: self.last.get(&pid).cloned().unwrap_or_default(),
                attributes: memory.word(fourth)?,
            },
            "fsmount" => Detail::FileSystem {
                kind: self.last.get(&pid).cloned().unwrap_or_default(),
            },
            "landlock_create_ruleset" if first != 0 => Detail::Ruleset {
                files: memory.word(first)?,
                net: if second >= 16 {
                    memory.word(first + 8)?
                } else {
                    0
                },
                scopes: if second >= 24 {
                    memory.word(first + 16)?
                } else {
                    0
                },
            },
            "landlock_add_rule" => Detail::Rule {
                rights: memory.word(third)?,
            },
            "write" => {
                let Some(file) = file_of(pid, call) else {
                    return Ok(());
                };
                let length = usize::try_from(third).unwrap_or(0).min(64);
                let value = String::from_utf8_lossy(&memory.read(second, length)?).into_owned();
                Detail::Setting { file, value }
            }
            _ => Detail::Plain,
        };
        let call = *call;
        self.steps.borrow_mut().push(Step { call, detail });
        Ok(())
    }
}

impl Changes for Recorder {
    fn before(&mut self, pid: Pid, call: &Call, _: &mut libc::user_regs_struct) -> Before {
        // A process whose memory cannot be read has ended.
        _ = self.record(pid, call);
        Before::Untouched
    }

    fn after(&mut self, _: Pid, call: &Call) -> After {
        if has_reported_jail(call) {
            After::LetGo
        } else {
            After::Traced
        }
    }
}
