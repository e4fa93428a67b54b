//! Retries of a task for which no sandbox could be provided.

use std::time::Duration;

use super::pool::Paused;

/// The most attempts: four within about a second, for a host that is only briefly short of a
/// resource.
const ATTEMPTS: u32 = 4;
/// The pause after the first attempt. Each further pause is four times as long as the one before.
const PAUSE: Duration = Duration::from_millis(50);

/// Makes attempts until one succeeds, fails permanently, or was the last. Returns the last result
/// and the number of attempts.
pub fn retry<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    may_pass: impl Fn(&E) -> bool,
    mut pause: impl FnMut(Duration) -> Paused,
) -> (Result<T, E>, u32) {
    let mut made = 1;
    let mut next = PAUSE;
    loop {
        match attempt() {
            Err(error) if made < ATTEMPTS && may_pass(&error) && pause(next) == Paused::Elapsed => {
                made += 1;
                next *= 4;
            }
            ended => return (ended, made),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of the attempts and the pauses in between.
    fn attempts(
        outcomes: &[Result<u8, bool>],
        stop_after: usize,
    ) -> (Result<u8, bool>, u32, Vec<u64>) {
        let mut left = outcomes.iter().copied();
        let mut pauses = Vec::new();
        let (ended, made) = retry(
            || left.next().expect("no more than four attempts"),
            |may_pass| *may_pass,
            |time| {
                pauses.push(u64::try_from(time.as_millis()).expect("short"));
                if pauses.len() > stop_after {
                    Paused::Stopped
                } else {
                    Paused::Elapsed
                }
            },
        );
        (ended, made, pauses)
    }

    #[test]
    fn what_succeeds_is_done_once() {
        assert_eq!(attempts(&[Ok(1)], 9), (Ok(1), 1, vec![]));
    }

    #[test]
    fn what_may_pass_is_tried_four_times() {
        let fails = [Err(true); 4];
        assert_eq!(attempts(&fails, 9), (Err(true), 4, vec![50, 200, 800]));
        assert_eq!(attempts(&[Err(true), Ok(2)], 9), (Ok(2), 2, vec![50]));
    }

    #[test]
    fn what_cannot_pass_is_tried_once() {
        assert_eq!(attempts(&[Err(false)], 9), (Err(false), 1, vec![]));
    }

    #[test]
    fn a_stop_is_the_end_of_it() {
        assert_eq!(attempts(&[Err(true); 4], 0), (Err(true), 1, vec![50]));
    }
}
