//! `sandfork plan` and `sandfork doctor`: what the sandbox would enforce here, and what it could.

use crate::outcome::exit_code;
use std::collections::BTreeSet;

use crate::host::{
    self, CallerEnvironment, Machine, Needs, probe_interpreter, resolve_interpreter,
};
use crate::plan::{self, diagnose, explain};
use crate::{Error, Policy};

use super::args::{DoctorArguments, PlanArguments};
use super::failure::Failure;
use super::policy::chosen;
use super::{print, print_json};

/// Shows the plan of a policy on this host.
pub fn plan(arguments: &PlanArguments) -> Result<u8, Failure> {
    let policy = chosen(&arguments.policy)?;
    let plan = plan_here(&policy)?;
    if arguments.output.json {
        print_json(&plan)
    } else {
        print(explain(&plan))
    }
}

pub(super) fn plan_here(policy: &Policy) -> Result<plan::Plan, Error> {
    // The values of passed variables are the caller's secrets, and plans are printed and kept.
    let needs = Needs {
        variables: BTreeSet::new(),
        ..plan::needs(policy)
    };
    let host = host::probe(&policy.python().interpreter.value, &needs)?;
    Ok(plan::plan(policy, &host)?)
}

/// Checks this host, layer by layer. Fails if nothing could be run.
pub fn doctor(arguments: &DoctorArguments) -> Result<u8, Failure> {
    let machine = Machine::probe().map_err(Error::from)?;
    let environment = CallerEnvironment::current();
    let policy = Policy::default();
    let interpreter = resolve_interpreter(&policy.python().interpreter.value, &environment)
        .and_then(|path| probe_interpreter(&path, &environment));
    let diagnosis = diagnose(&machine, interpreter.as_ref());
    if arguments.output.json {
        print_json(&diagnosis)?;
    } else {
        print(diagnosis.to_string())?;
    }
    Ok(if diagnosis.is_usable() {
        exit_code::OK
    } else {
        exit_code::SANDBOX_UNAVAILABLE
    })
}
