//! The sequence of requests: the same for the same seed, for every caller and at any time.

use crate::repertoire::{Fit, Guest, guests};

/// A SplitMix64 generator: each seed gives another sequence.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Returns the generator of one request.
    pub fn of(seed: u64, question: usize) -> Self {
        Self(seed ^ (question as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.next() % u64::from(end)).unwrap_or(0)
    }

    /// Picks an element with a probability proportional to its share.
    fn one_of<T: Copy>(&mut self, all: impl Iterator<Item = (u32, T)> + Clone) -> T {
        let sum = all.clone().map(|(share, _)| share).sum();
        let mut left = self.below(sum);
        for (share, one) in all {
            match left.checked_sub(share) {
                Some(rest) => left = rest,
                None => return one,
            }
        }
        unreachable!("it is below the sum of the shares")
    }

    /// Picks a guest that fits.
    pub fn guest(&mut self, fit: Fit) -> &'static Guest {
        let fitting = guests().filter(|guest| fit == Fit::Run || guest.fit == fit);
        self.one_of(fitting.map(|guest| (guest.share, guest)))
    }
}

/// The sandbox for a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Home {
    /// The built-in policy, each worker made on demand.
    Standard,
    /// The same, with a pool of ready workers.
    Ready,
    /// Another policy.
    Strict,
}

/// One request, which uses one worker or several.
#[derive(Clone, Copy, Debug)]
pub enum Question {
    /// A run.
    Run(Home),
    /// A sandbox that is built for one run.
    Sandbox,
    /// A session in this process.
    Session(End),
    /// A session or a batch over the protocol.
    Served(Plot),
}

/// How a session ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    Dropped,
    /// It is replaced by another worker with the same tools.
    Restarted,
    /// Its guest is interrupted.
    Interrupted,
    /// It was forked, rolled back and paused.
    Copied,
}

/// What a client does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Plot {
    /// Uses tools, files and a guest, and closes the session.
    Polite,
    /// Runs one cell after which the worker ends, as the Python client runs a program.
    Once,
    Restart,
    Interrupt,
    /// Uses a policy that few others use, so that sandboxes are built and dropped.
    OwnPolicy,
    /// Comes back after its session was ended for being idle.
    Abandons,
    Batch,
    /// Disconnects while its session is idle.
    VanishesIdle,
    /// Disconnects while a cell runs.
    VanishesInCell,
    /// Disconnects while the guest waits for a tool.
    VanishesInCall,
    /// Disconnects in the middle of a frame.
    VanishesInFrame,
    /// Disconnects in the middle of a batch.
    VanishesInBatch,
    /// Sends an invalid message.
    Garbage,
}

const QUESTIONS: [(u32, Question); 21] = [
    (260, Question::Run(Home::Standard)),
    (260, Question::Run(Home::Ready)),
    (140, Question::Run(Home::Strict)),
    (1, Question::Sandbox),
    (50, Question::Session(End::Dropped)),
    (10, Question::Session(End::Restarted)),
    (10, Question::Session(End::Interrupted)),
    (16, Question::Session(End::Copied)),
    (100, Question::Served(Plot::Polite)),
    (70, Question::Served(Plot::Once)),
    (8, Question::Served(Plot::Restart)),
    (8, Question::Served(Plot::Interrupt)),
    (3, Question::Served(Plot::OwnPolicy)),
    (4, Question::Served(Plot::Abandons)),
    (8, Question::Served(Plot::Batch)),
    (12, Question::Served(Plot::VanishesIdle)),
    (12, Question::Served(Plot::VanishesInCell)),
    (12, Question::Served(Plot::VanishesInCall)),
    (8, Question::Served(Plot::VanishesInFrame)),
    (4, Question::Served(Plot::VanishesInBatch)),
    (8, Question::Served(Plot::Garbage)),
];

impl Question {
    /// Picks the request.
    pub fn of(numbers: &mut Numbers) -> Self {
        numbers.one_of(QUESTIONS.iter().copied())
    }
}
