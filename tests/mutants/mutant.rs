//! A jail in which one part differs from the plan.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use nix::unistd::Pid;
use sandfork::Layer;

use crate::edit::{Edit, Made};
use crate::family::{Call, Role};
use crate::off::Off;
use crate::tracer::{After, Before, Changes};

/// One mutant. Its name states what is missing.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub layer: Layer,
    pub name: String,
    pub edits: Vec<Edit>,
    /// The policy settings under which the mutant applies.
    pub settings: &'static str,
}

impl Mutant {
    pub fn new(layer: Layer, name: impl Into<String>, edits: Vec<Edit>) -> Self {
        let name = name.into();
        Self {
            layer,
            name,
            edits,
            settings: "",
        }
    }

    /// Returns the same mutant under these settings.
    pub fn with(self, settings: &'static str) -> Self {
        Self { settings, ..self }
    }
}

/// Applies changes to processes while they set themselves up.
pub struct Mutation {
    edits: Vec<Edit>,
    off: Option<Off>,
    made: Made,
    /// Workers that have reported their jail and wait to be verified.
    standing: HashSet<Pid>,
    trouble: Trouble,
}

/// Receives the report that a call could not be changed.
pub type Trouble = Rc<RefCell<Option<String>>>;

impl Mutation {
    pub fn new(mutant: Vec<Edit>, off: Option<Off>) -> Self {
        let mut edits = mutant;
        edits.extend(off.iter().flat_map(|off| off.edits.clone()));
        Self {
            edits,
            off,
            made: Made::new(),
            standing: HashSet::new(),
            trouble: Trouble::default(),
        }
    }

    /// Returns the place where it reports calls that it could not change.
    pub fn trouble(&self) -> Trouble {
        Rc::clone(&self.trouble)
    }

    /// Returns whether it affects only workers, so that their zygote can be a sound one.
    pub fn is_of_workers_only(&self) -> bool {
        // Mounts into a worker's root also appear in its zygote's root.
        let leaves_traces = self.off.as_ref().is_some_and(Off::is_seen_by_others);
        !leaves_traces && self.edits.iter().all(|edit| edit.at.role == Role::Worker)
    }

    fn record_trouble(&self, trouble: String) {
        self.trouble.borrow_mut().get_or_insert(trouble);
    }
}

impl Changes for Mutation {
    fn before(&mut self, pid: Pid, call: &Call, registers: &mut libc::user_regs_struct) -> Before {
        if let Some(off) = &self.off {
            off.record_limit(pid, call);
        }
        let mut all = Before::Untouched;
        for edit in &self.edits {
            match edit.apply(pid, call, &self.made, registers) {
                Ok(Before::Untouched) => {}
                Ok(before) => all = before,
                Err(error) => self.record_trouble(format!("{call} could not be changed: {error}")),
            }
        }
        if call.role != Role::Supervisor {
            self.made.insert((pid, call.name()));
        }
        all
    }

    fn after(&mut self, pid: Pid, call: &Call) -> After {
        let Some(off) = &self.off else {
            return if has_reported_jail(call) {
                After::LetGo
            } else {
                After::Traced
            };
        };
        if call.role == Role::Supervisor {
            off.forge(pid, call);
        }
        if has_reported_jail(call) {
            self.standing.insert(pid);
        }
        // The worker receives data from the supervisor, which has verified it by then.
        if self.standing.contains(&pid) && call.is(&["read", "recvfrom"]) && call.is_on_data() {
            if let Err(error) = off.take_away(pid) {
                self.record_trouble(error);
            }
            return After::LetGo;
        }
        After::Traced
    }
}

impl Changes for Rc<RefCell<Mutation>> {
    fn before(&mut self, pid: Pid, call: &Call, registers: &mut libc::user_regs_struct) -> Before {
        self.borrow_mut().before(pid, call, registers)
    }

    fn after(&mut self, pid: Pid, call: &Call) -> After {
        self.borrow_mut().after(pid, call)
    }
}

/// Returns whether a worker has just reported its jail: the message before that passes its directories.
pub fn has_reported_jail(call: &Call) -> bool {
    call.role == Role::Worker && call.is(&["sendmsg"]) && call.occurrence == 2
}
