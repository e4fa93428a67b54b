//! The inputs that mutations start from.

use super::random::Random;
use crate::Behaviour;

/// Inputs with distinct behaviour.
#[derive(Debug, Default)]
pub(super) struct Pool {
    taken: Vec<Vec<u8>>,
    refused: Vec<Vec<u8>>,
}

impl Pool {
    /// Enough for every behaviour, and few enough for memory.
    const MOST: usize = 4096;

    pub(super) fn add(&mut self, behaviour: Behaviour, input: Vec<u8>) {
        let inputs = if behaviour.is_taken() {
            &mut self.taken
        } else {
            &mut self.refused
        };
        if inputs.len() < Self::MOST {
            inputs.push(input);
        }
    }

    /// Picks an accepted input most of the time: a nearly valid input gets further than an invalid
    /// one.
    pub(super) fn pick(&self, random: &mut Random) -> &[u8] {
        let (first, second) = if random.below(4) == 0 {
            (&self.refused, &self.taken)
        } else {
            (&self.taken, &self.refused)
        };
        let inputs = if first.is_empty() { second } else { first };
        random.pick(inputs).map_or(&[], Vec::as_slice)
    }
}
