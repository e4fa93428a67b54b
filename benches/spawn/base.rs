//! The base of all comparisons, for parts in which it cannot take turns with the contestants.

use std::time::Duration;

use sandfork_measure::{Samples, Summary};

use crate::contestant::{Contestant, Error};
use crate::ground::Ground;
use crate::processes::{self, Process};

/// `python3 -c pass`, measured before and after such a part.
pub struct Base {
    process: Process,
    samples: Samples,
}

/// The number of processes in one sample.
const TIMES: usize = 15;

impl Base {
    pub fn new(ground: &Ground) -> Result<Self, Error> {
        Ok(Self {
            process: processes::python(&ground.python)?,
            samples: Samples::default(),
        })
    }

    pub fn sample(&mut self) -> Result<(), Error> {
        let samples = &mut self.samples;
        (0..TIMES).try_for_each(|_| {
            let mut record = |_, time: Duration| samples.push(time);
            self.process.turn(&mut record)
        })
    }

    pub fn summary(&self) -> Option<Summary> {
        self.samples.summary()
    }
}
