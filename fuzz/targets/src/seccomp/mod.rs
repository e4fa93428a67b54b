//! Compares the compiled filters with the meaning of the rules and a policy's lists, call by call.
//!
//! The programs run in the interpreter of the compiler's own tests, which shares no code with the
//! compiler. [`oracle`] derives the expected answers from the rules.

mod calls;
#[path = "../../../../src/plan/seccomp/tests/interpreter.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "of the tests beside the compiler"
)]
mod interpreter;
mod oracle;

use sandfork::internals::plan::seccomp::{Arch, Filters, Surroundings, compile};
use sandfork_jail::program::BpfProgram;

use crate::Target;
use crate::source::Source;
use calls::Generator;
use interpreter::{Answer, Call, answer, assert_loadable};
use oracle::Oracle;

pub(crate) const TARGET: Target = Target {
    name: "seccomp",
    run,
    inputs: 800,
};

/// The maximum number of calls of one input.
const MAX_CALLS: usize = 64;

fn run(bytes: &[u8]) -> bool {
    let mut source = Source::new(bytes);
    let case = Case::read(&mut source);
    match compile(case.arch, case.surroundings, &case.allow, &case.deny) {
        Ok(filters) => {
            for program in filters.zygote.iter().chain(&filters.worker) {
                assert_loadable(program);
            }
            let comparison = Comparison::new(&case, &filters);
            if let Some(difference) = comparison.first(&mut source) {
                panic!("{difference:x?}");
            }
            true
        }
        Err(error) => {
            assert!(
                !case.oracle().accepts(&case.allow, &case.deny),
                "honest lists are refused: {error}"
            );
            false
        }
    }
}

/// The lists of a policy, and the target platform.
#[derive(Clone, Debug)]
struct Case {
    arch: Arch,
    surroundings: Surroundings,
    allow: Vec<&'static str>,
    deny: Vec<&'static str>,
}

/// A call for which a filter differs from the rules.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "it is shown")]
pub struct Difference {
    case: Case,
    loaded: &'static str,
    call: Call,
    found: Answer,
    expected: Answer,
}

impl Case {
    fn read(source: &mut Source<'_>) -> Self {
        let what = source.byte();
        let arch = [Arch::X86_64, Arch::Aarch64][usize::from(what & 1)];
        let surroundings = match what >> 1 & 7 {
            0..=1 => Surroundings::Namespaces,
            2..=3 => Surroundings::Loopback,
            abi => Surroundings::SharedHost {
                landlock_abi: [0, 1, 3, 6][usize::from(abi) - 4],
            },
        };
        let names = oracle::names();
        let mut list = |count: u8| -> Vec<&'static str> {
            (0..count).filter_map(|_| source.pick(&names)).collect()
        };
        let allow = list(what >> 4 & 3);
        let deny = list(what >> 6 & 3);
        Self {
            arch,
            surroundings,
            allow,
            deny,
        }
    }

    fn oracle(&self) -> Oracle {
        Oracle::new(self.arch, self.surroundings)
    }
}

/// Filters, and the oracle that they are compared with.
struct Comparison<'a> {
    case: &'a Case,
    filters: &'a Filters,
    oracle: Oracle,
    generator: Generator,
}

impl<'a> Comparison<'a> {
    fn new(case: &'a Case, filters: &'a Filters) -> Self {
        Self {
            case,
            filters,
            oracle: case.oracle(),
            generator: Generator::new(case.arch, case.surroundings),
        }
    }

    /// Returns the first call with a wrong result.
    fn first(&self, source: &mut Source<'_>) -> Option<Difference> {
        let mut calls = 0;
        while calls < MAX_CALLS && (calls == 0 || !source.is_empty()) {
            let call = self.generator.call(source);
            if let Some(difference) = self.of_call(call) {
                return Some(difference);
            }
            calls += 1;
        }
        None
    }

    fn of_call(&self, call: Call) -> Option<Difference> {
        let Case { allow, deny, .. } = self.case;
        let Filters { zygote, worker } = self.filters;
        let both = answer(zygote.iter().chain(worker), &call);
        let guests = self.oracle.guest(allow, deny, &call);
        let zygotes = self.oracle.zygote(allow, &call);
        let answers = [
            ("both", both, guests),
            ("the zygote's", answer(zygote, &call), zygotes),
        ];
        let mut wrong = answers
            .into_iter()
            .filter(|(_, found, expected)| found != expected);
        wrong.next().map(|(loaded, found, expected)| Difference {
            case: self.case.clone(),
            loaded,
            call,
            found,
            expected,
        })
    }
}

/// Modifies the filters with `change`, and returns the first of these calls for which they are
/// wrong. This shows that the comparison can find errors. Uses `x86_64` in namespaces, without
/// lists.
pub fn difference<'a>(
    calls: impl IntoIterator<Item = &'a [u8]>,
    change: impl FnOnce(&mut Filters),
) -> Option<Difference> {
    let case = Case {
        arch: Arch::X86_64,
        surroundings: Surroundings::Namespaces,
        allow: Vec::new(),
        deny: Vec::new(),
    };
    let mut filters = compile(case.arch, case.surroundings, &case.allow, &case.deny).ok()?;
    change(&mut filters);
    let comparison = Comparison::new(&case, &filters);
    let mut calls = calls.into_iter().map(Source::new);
    calls.find_map(|mut source| comparison.first(&mut source))
}
