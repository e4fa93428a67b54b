//! Tests that the comparison of filters with the rules detects a wrong filter.

use fuzz_targets::difference;
use sandfork::internals::plan::seccomp::Filters;

/// Inverts the nth branch.
fn spoil(filters: &mut Filters, nth: usize) -> bool {
    let programs = filters.zygote.iter_mut().chain(&mut filters.worker);
    let branches = programs
        .flatten()
        .filter(|it| matches!(it.0, 0x15 | 0x35) && it.1 != it.2);
    branches
        .skip(nth)
        .take(1)
        .map(|it| std::mem::swap(&mut it.1, &mut it.2))
        .count()
        == 1
}

/// Every inverted branch of the filters is detected by some of the calls that these bytes
/// generate.
#[test]
fn wrong_filter_is_detected() {
    let mut state = 1u32;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    })
    .take(600_000)
    .collect();
    let honest = difference(bytes.chunks(1500), |_| {});
    assert!(honest.is_none(), "{honest:?}");
    let mut nth = 0;
    loop {
        let mut spoiled = true;
        let seen = difference(bytes.chunks(1500), |filters| spoiled = spoil(filters, nth));
        if !spoiled {
            break;
        }
        assert!(seen.is_some(), "branch {nth} turned round is not seen");
        nth += 1;
    }
    assert!(nth > 100, "only {nth} branches");
}
