//! Retries a task for which no sandbox could be provided.

use std::time::Duration;

use super::pool::Paused;

/// The maximum number of attempts: four within about a second, for a host that is only briefly short of a resource.
const ATTEMPTS: u32 = 4;
/// The pause after the first attempt. Each further pause is four times as long.
const PAUSE: Duration = Duration::from_millis(50);

/// Makes attempts until one succeeds, fails permanently, or is the last. Returns the last result and the number of
/// attempts.
pub fn retry<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    is_transient: impl Fn(&E) -> bool,
    mut pause: impl FnMut(Duration) -> Paused,
) -> (Result<T, E>, u32) {
    let mut made = 1;
    let mut next = PAUSE;
    loop {
        match attempt() {
            Err(error)
                if made < ATTEMPTS && is_transient(&error) && pause(next) == Paused::Elapsed =>
            {
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

    /// Returns the last result, the number of attempts, and the pauses in milliseconds.
    fn attempts(
        outcomes: &[Result<u8, bool>],
        stop_after: usize,
    ) -> (Result<u8, bool>, u32, Vec<u64>) {
        let mut left = outcomes.iter().copied();
        let mut pauses = Vec::new();
        let (ended, made) = retry(
            || left.next().expect("no more than four attempts"),
            |is_transient| *is_transient,
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
    fn success_is_not_retried() {
        assert_eq!(attempts(&[Ok(1)], 9), (Ok(1), 1, vec![]));
    }

    #[test]
    fn transient_failure_is_tried_four_times() {
        let fails = [Err(true); 4];
        assert_eq!(attempts(&fails, 9), (Err(true), 4, vec![50, 200, 800]));
        assert_eq!(attempts(&[Err(true), Ok(2)], 9), (Ok(2), 2, vec![50]));
    }

    #[test]
    fn permanent_failure_is_tried_once() {
        assert_eq!(attempts(&[Err(false)], 9), (Err(false), 1, vec![]));
    }

    #[test]
    fn stop_ends_the_retries() {
        assert_eq!(attempts(&[Err(true); 4], 0), (Err(true), 1, vec![50]));
    }
}
