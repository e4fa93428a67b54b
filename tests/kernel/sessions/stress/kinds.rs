//! What cells do, and what must come of it.

use std::time::Duration;

use sandfork::Status;

use crate::guests::DAEMON;

/// What a cell does at its end. Before that each adds one to its session's count and says who it is.
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

/// One cell in two is an ordinary one.
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

/// How long those may take that would never end.
const SHORT: Duration = Duration::from_millis(250);
/// The time that the others may take, also on a busy machine.
const LONG: Duration = Duration::from_secs(240);

/// What may become of the session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum After {
    /// It lives on.
    Lives,
    /// It is lost.
    Ends,
    /// It lives on if Python took notice in time, or let go of what it held.
    Either,
}

impl Kind {
    /// The kind of a numbered cell.
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

    /// Whether it may be interrupted before it has begun, on a machine that is slow.
    pub const fn may_not_begin(self) -> bool {
        matches!(self, Self::Loop | Self::DeafLoop | Self::Interrupted)
    }

    /// How it must end, and what that means for the session if it came as far as it wanted to.
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

    /// The end of its code. `ask` is the number of the question in the protocol, which a guest can
    /// guess, and `who` what it has to say.
    pub fn code(self, ask: u64, who: &str) -> String {
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
            // In a function, so that nothing is kept where Python gets away with a `MemoryError`.
            Self::Memory => "def fill():\n\
                             \x20   kept = []\n\
                             \x20   while True: kept.append(bytearray(1 << 20))\n\
                             fill()"
                .into(),
            Self::Output => "import os\nwhile True: os.write(1, b'x' * 65536)".into(),
            Self::Junk => "import os, time; os.write(1023, b'\\xff' * 99); time.sleep(100)".into(),
            Self::Hangup => "import os, time; os.close(1023); time.sleep(3)".into(),
            Self::ForeignResult => forged(ask + 1, "time.sleep(100)"),
            // Its own result comes when another question is under way, or none.
            Self::EarlyResult => forged(ask, "time.sleep(0.02)"),
            Self::Daemon => format!("{DAEMON}os.close(reader); os.close(writer)\n"),
            Self::ForkedToTheEnd => "import os; os.fork()".into(),
            Self::Tool => format!("assert echo({who:?}, count=count) == [{who:?}, count]"),
        }
    }
}

/// Claims a result for a question, then does something else.
fn forged(ask: u64, then: &str) -> String {
    format!(
        "import json, os, struct, time\n\
         claim = json.dumps({{'kind': 'result', 'id': {ask}, 'status': 'ok', 'value': 'forged'}})\n\
         os.write(1023, struct.pack('<II', len(claim), 0) + claim.encode())\n\
         {then}"
    )
}
