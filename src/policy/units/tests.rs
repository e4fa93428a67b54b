use insta::assert_snapshot;
use proptest::prelude::*;

use super::*;

fn size(text: &str) -> Result<u64, String> {
    Unit::Size.parse(text)
}

fn milliseconds(text: &str) -> Result<u64, String> {
    Unit::Duration.parse(text)
}

fn error(result: Result<u64, String>) -> String {
    result.expect_err("refused")
}

#[test]
fn size_units_are_powers_of_1024_or_1000() {
    assert_eq!(size("1B"), Ok(1));
    assert_eq!(size("2KiB"), Ok(2048));
    assert_eq!(size("2kB"), Ok(2000));
    assert_eq!(size("256MiB"), Ok(268_435_456));
    assert_eq!(size("256MB"), Ok(256_000_000));
    assert_eq!(size("1.5 GiB"), Ok(1_610_612_736));
    assert_eq!(size("0.5TB"), Ok(500_000_000_000));
    assert_eq!(size("007B"), Ok(7));
}

#[test]
fn durations_are_in_milliseconds() {
    assert_eq!(milliseconds("500ms"), Ok(500));
    assert_eq!(milliseconds("0.25s"), Ok(250));
    assert_eq!(milliseconds("2s"), Ok(2000));
    assert_eq!(milliseconds("1.5 m"), Ok(90_000));
    assert_eq!(milliseconds("24h"), Ok(86_400_000));
}

#[test]
fn malformed_amounts_are_rejected() {
    for text in [
        "", " ", "MiB", ".5MiB", "5.MiB", "1.2.3MiB", "-1MiB", "+1MiB", " 1MiB", "٣MiB",
    ] {
        let refused = size(text).expect_err(text);
        assert!(refused.contains("is not a size: "), "{refused}");
    }
    for text in [
        "1mib", "1M", "1  MiB", "1MiB ", "1e3MiB", "1_000B", "1MiB2KiB", "1s",
    ] {
        let refused = size(text).expect_err(text);
        assert!(refused.contains("has an unknown unit"), "{refused}");
    }
}

#[test]
fn errors_name_the_remedy() {
    assert_snapshot!(error(size("lots")), @r#""lots" is not a size: write a whole or decimal number and a unit, such as "256MiB""#);
    assert_snapshot!(error(size("256")), @r#""256" has no unit: write B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as "256MiB""#);
    assert_snapshot!(error(size("256mib")), @r#""256mib" has an unknown unit `mib`: did you mean `MiB`? Write B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"#);
    assert_snapshot!(error(size("256 parsecs")), @r#""256 parsecs" has an unknown unit `parsecs`: write B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"#);
    assert_snapshot!(error(size("0.1B")), @r#""0.1B" is not a whole number of bytes: use a smaller unit or fewer decimals"#);
    assert_snapshot!(error(size("99999999TiB")), @r#""99999999TiB" is too large for the kernel: write a smaller size"#);
    assert_snapshot!(error(milliseconds("soon")), @r#""soon" is not a duration: write a whole or decimal number and a unit, such as "2s""#);
    assert_snapshot!(error(milliseconds("2")), @r#""2" has no unit: write ms, s, m or h, such as "2s""#);
    assert_snapshot!(error(milliseconds("2sec")), @r#""2sec" has an unknown unit `sec`: did you mean `s`? Write ms, s, m or h"#);
    assert_snapshot!(error(milliseconds("1.5ms")), @r#""1.5ms" is not a whole number of milliseconds: use a smaller unit or fewer decimals"#);
    assert_snapshot!(error(milliseconds("99999999999999999999h")), @r#""99999999999999999999h" is too large for the kernel: write a smaller duration"#);
}

#[test]
fn largest_value_fits_a_signed_integer() {
    assert_eq!(size(&format!("{LARGEST}B")), Ok(LARGEST));
    let above = error(size(&format!("{}B", LARGEST + 1)));
    assert!(above.contains("too large for the kernel"), "{above}");
}

#[test]
fn values_are_written_in_the_largest_exact_unit() {
    assert_eq!(Unit::Size.text(0), "0B");
    assert_eq!(Unit::Size.text(1023), "1023B");
    assert_eq!(Unit::Size.text(1024), "1KiB");
    assert_eq!(Unit::Size.text(1000), "1kB");
    assert_eq!(Unit::Size.text(256 << 20), "256MiB");
    assert_eq!(Unit::Duration.text(0), "0ms");
    assert_eq!(Unit::Duration.text(1500), "1500ms");
    assert_eq!(Unit::Duration.text(90_000), "90s");
    assert_eq!(Unit::Duration.text(7_200_000), "2h");
}

/// Computes `whole.fraction * factor` differently from the parser: as one integer of all decimal digits,
/// divided by a power of ten.
fn exact(whole: u32, fraction: &str, factor: u64) -> Option<u64> {
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scaled = digits * u128::from(factor);
    let divisor = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let value = u64::try_from(scaled / divisor).ok()?;
    scaled.is_multiple_of(divisor).then_some(value)
}

proptest! {
    #[test]
    fn sizes_round_trip(bytes in 0..=LARGEST) {
        prop_assert_eq!(size(&Unit::Size.text(bytes)), Ok(bytes));
    }

    #[test]
    fn durations_round_trip(ms in 0..=LARGEST) {
        prop_assert_eq!(milliseconds(&Unit::Duration.text(ms)), Ok(ms));
    }

    #[test]
    fn multiple_of_a_unit_is_written_in_that_unit(count in 1_u64..1024, unit in 0_usize..4) {
        let (name, factor) = SIZES[unit];
        let written = Unit::Size.text(count * factor);
        prop_assert_eq!(written, format!("{count}{name}"));
    }

    #[test]
    fn decimals_are_exact_or_rejected(
        whole in 0_u32..100_000,
        fraction in "[0-9]{1,6}",
        unit in 0..SIZES.len(),
    ) {
        let (name, factor) = SIZES[unit];
        let read = size(&format!("{whole}.{fraction}{name}"));
        match exact(whole, &fraction, factor) {
            Some(bytes) => prop_assert_eq!(read, Ok(bytes)),
            None => prop_assert!(error(read).contains("is not a whole number of bytes")),
        }
    }

    #[test]
    fn parsing_never_panics(text in any::<String>()) {
        let _ = size(&text);
        let _ = milliseconds(&text);
    }

    #[test]
    fn parsed_amounts_are_at_most_the_largest_value(text in "[0-9.]{0,60} ?[kKMGTiBmshb]{0,3}") {
        if let Ok(bytes) = size(&text) {
            prop_assert!(bytes <= LARGEST);
        }
        if let Ok(ms) = milliseconds(&text) {
            prop_assert!(ms <= LARGEST);
        }
    }
}
