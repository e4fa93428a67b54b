//! Kinds of cells, and the result that each must have.

use std::time::Duration;

use sandfork::Status;

use crate::guests::DAEMON;

/// What a cell does at its end. Before that, each adds one to its session's count and prints its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Value,
    Exception,
    Exit,
    HardExit,
    Crash,
    Loop,
    DeafLoop,
    Interrupted,
    Memory,
    Output,
    Junk,
    Hangup,
    ForeignResult,
    EarlyResult,
    Daemon,
    ForkedToTheEnd,
    Tool,
    SetVariable,
}

/// The kinds of half of the cells.
const ORDINARY: [Kind; 4] = [Kind::Value, Kind::Tool, Kind::SetVariable, Kind::Exception];

const OTHERS: [Kind; 14] = [
    Kind::Exit,
    Kind::HardExit,
    Kind::Crash,
    Kind::Loop,
    Kind::DeafLoop,
    Kind::Interrupted,
    Kind::Memory,
    Kind::Output,
    Kind::Junk,
    Kind::Hangup,
    Kind::ForeignResult,
    Kind::EarlyResult,
    Kind::Daemon,
    Kind::ForkedToTheEnd,
];

/// The wall limit of cells that would never end.
const SHORT: Duration = Duration::from_millis(250);
/// The wall limit of the others, generous enough for a busy machine.
const LONG: Duration = Duration::from_secs(240);

/// What may happen to the session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum After {
    /// The session continues.
    Lives,
    /// The session ends.
    Ends,
    /// The session continues if Python reacts in time or releases its memory.
    Either,
}

impl Kind {
    /// Returns the kind of the cell with this number.
    pub fn of(number: usize) -> Self {
        let half = number / 2;
        if number.is_multiple_of(2) {
            ORDINARY[half % ORDINARY.len()]
        } else {
            OTHERS[half % OTHERS.len()]
        }
    }

    pub fn wall(self) -> Duration {
        match self {
            Self::Loop | Self::DeafLoop => SHORT,
            _ => LONG,
        }
    }

    /// Returns whether the cell may be interrupted before it has begun, on a slow machine.
    pub const fn may_not_begin(self) -> bool {
        matches!(self, Self::Loop | Self::DeafLoop | Self::Interrupted)
    }

    /// Returns the required status, and what happens to the session if the cell got as far as intended.
    pub fn outcome(self) -> (Status, After) {
        match self {
            Self::Value
            | Self::Tool
            | Self::SetVariable
            | Self::Daemon
            | Self::ForkedToTheEnd
            | Self::EarlyResult => (Status::Ok, After::Lives),
            Self::Exception => (Status::Exception, After::Lives),
            Self::Exit => (Status::Exit, After::Lives),
            Self::HardExit => (Status::Exit, After::Ends),
            Self::Crash => (Status::Signal, After::Ends),
            Self::Loop => (Status::Timeout, After::Either),
            Self::DeafLoop => (Status::Timeout, After::Ends),
            Self::Interrupted => (Status::Interrupted, After::Either),
            Self::Memory => (Status::MemoryLimit, After::Either),
            Self::Output => (Status::OutputLimit, After::Either),
            Self::Junk | Self::Hangup | Self::ForeignResult => {
                (Status::ProtocolViolation, After::Ends)
            }
        }
    }

    /// Returns the end of the cell's code. `request` is the number of the request in the protocol, which a guest
    /// can guess, and `who` the name that it prints.
    pub fn code(self, request: u64, who: &str) -> String {
        match self {
            Self::Value | Self::SetVariable => String::new(),
            Self::Exception => format!("raise ValueError({who:?})"),
            Self::Exit => "import sys; sys.exit(3)".into(),
            Self::HardExit => "import os; os._exit(4)".into(),
            Self::Crash => "import ctypes; ctypes.string_at(0)".into(),
            Self::Loop | Self::Interrupted => "while True: pass".into(),
            Self::DeafLoop => "import signal\n\
                               signal.signal(signal.SIGINT, signal.SIG_IGN)\n\
                               print('deaf', flush=True)\n\
                               while True: pass"
                .into(),
            // In a function, so that a `MemoryError` that Python survives releases everything.
            Self::Memory => "def fill():\n\
                             \x20   kept = []\n\
                             \x20   while True: kept.append(bytearray(1 << 20))\n\
                             fill()"
                .into(),
            Self::Output => "import os\nwhile True: os.write(1, b'x' * 65536)".into(),
            Self::Junk => "import os, time; os.write(1023, b'\\xff' * 99); time.sleep(100)".into(),
            Self::Hangup => "import os, time; os.close(1023); time.sleep(3)".into(),
            Self::ForeignResult => forged(request + 1, "time.sleep(100)"),
            // The real result arrives during another request, or between two.
            Self::EarlyResult => forged(request, "time.sleep(0.02)"),
            Self::Daemon => format!("{DAEMON}os.close(reader); os.close(writer)\n"),
            Self::ForkedToTheEnd => "import os; os.fork()".into(),
            Self::Tool => format!("assert echo({who:?}, count=count) == [{who:?}, count]"),
        }
    }
}

/// Returns code that forges a result for a request and then does something else.
fn forged(request: u64, then: &str) -> String {
    format!(
        "import json, os, struct, time\n\
         claim = json.dumps({{'kind': 'result', 'id': {request}, 'status': 'ok', 'value': 'forged'}})\n\
         os.write(1023, struct.pack('<II', len(claim), 0) + claim.encode())\n\
         {then}"
    )
}
