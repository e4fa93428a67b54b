//! Implements `SANDFORK_LOG`: prints the library's `tracing` output on stderr, one line per event and per closed span.

use std::io::{self, Write};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::failure::{Failure, say};

const VARIABLE: &str = "SANDFORK_LOG";

/// Starts logging at the level that the variable sets.
pub fn begin() -> Result<(), Failure> {
    let Some(wanted) = std::env::var_os(VARIABLE).filter(|wanted| !wanted.is_empty()) else {
        return Ok(());
    };
    let wanted = wanted.to_string_lossy().into_owned();
    // `tracing` also accepts numbers as levels; this command does not.
    let is_word = wanted.chars().all(|c| c.is_ascii_alphabetic());
    match wanted.parse::<LevelFilter>() {
        Ok(LevelFilter::OFF) => Ok(()),
        Ok(level) if is_word => {
            tracing_subscriber::fmt()
                .with_max_level(level)
                .with_span_events(FmtSpan::CLOSE)
                .with_writer(|| Line)
                .with_ansi(false)
                .with_target(false)
                .with_timer(())
                .init();
            Ok(())
        }
        _ => Err(Failure::Usage(format!(
            "{VARIABLE} is {wanted:?}: use off, error, warn, info, debug or trace"
        ))),
    }
}

/// Prints each formatted record as one line. A value that a guest chose can neither start another line nor move the
/// terminal's cursor.
struct Line;

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        say(String::from_utf8_lossy(line).trim());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
